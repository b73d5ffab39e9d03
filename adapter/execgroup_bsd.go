//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package adapter

import "golang.org/x/sys/unix"

// killMarked ends a program; what it started ends with the agent.
func killMarked(pid int, _ string) {
	if pid > 0 {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// countMarked counts nobody: there is no list to count in.
func countMarked(int, string) int { return 0 }

// limitExecMemory is left to the limits of the adapter itself, too.
func limitExecMemory(int, treeLimits) {}

// limitExecFiles is left to the limits of the adapter itself.
func limitExecFiles(int) {}
