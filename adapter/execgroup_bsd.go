//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package adapter

import "golang.org/x/sys/unix"

// killMarked ends a program; what it started ends with the agent.
func killMarked(pid int, _ string) {
	if pid > 0 {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// livingMarked counts nobody: there is no list to count in.
func livingMarked(int, string) int { return 0 }

// limitData is left to the limits of the adapter itself, too.
func limitData(int, ceiling) {}

// limitExec is left to the limits of the adapter itself.
func limitExec(int) {}
