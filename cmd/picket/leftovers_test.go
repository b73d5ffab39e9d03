package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/picket-dev/picket/cmd/picket/demo"
)

// processesIn finds command lines that name a directory or what is in it, by process id. The
// name of one script's directory may be the beginning of another one's, which does not count.
func processesIn(dir string) map[int]string {
	return processesMatching(regexp.QuoteMeta(dir) + `([^\w.-]|$)`)
}

// processesMatching finds command lines that match a regular expression, by process id.
func processesMatching(expression string) map[int]string {
	matcher := regexp.MustCompile(expression)
	found := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		line, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil && matcher.Match(line) {
			found[pid] = strings.ReplaceAll(string(line), "\x00", " ")
		}
	}
	return found
}

// killLeftovers ends what a script that failed half-way left behind. Everything that
// outlives its starter names a path of the script's own directory. A worker
// ends its agents at the second SIGTERM only, and two at once are one to the
// kernel: the next one is sent when the last has been taken.
func killLeftovers(t *testing.T, dir string) {
	told := map[int]bool{}
	err := demo.PollUntil(context.Background(), func() (bool, error) {
		left := processesIn(dir)
		delete(left, os.Getpid())
		for pid, line := range left {
			if !told[pid] {
				t.Logf("ending process %d: %s", pid, line)
				told[pid] = true
			}
			if !signalPending(pid, syscall.SIGTERM) {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		return len(left) == 0, nil
	})
	if err != nil {
		for pid, line := range processesIn(dir) {
			if pid != os.Getpid() {
				t.Logf("killing process %d: %s", pid, line)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// signalPending reports whether a process has not yet taken a signal it was sent.
func signalPending(pid int, sig syscall.Signal) bool {
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return slices.ContainsFunc(strings.Split(string(status), "\n"), func(line string) bool {
		name, mask, _ := strings.Cut(line, ":")
		set, _ := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
		return (name == "SigPnd" || name == "ShdPnd") && set&(1<<(sig-1)) != 0
	})
}

// Anyone who ends at the second signal only has ended by it when a script's end is over.
func TestLeftoverProcessesAreEnded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "script-tool")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	other := exec.Command("sh", "-c", "read line", "sh", dir+"doctor/picket.yaml")
	open, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = open.Close()
		if _ = other.Wait(); other.ProcessState.ExitCode() != 1 {
			t.Errorf("a process of another script ended with %v", other.ProcessState)
		}
	}()
	began := filepath.Join(dir, "began")
	cmd := exec.Command("sh", "-c",
		`n=0; trap 'n=$((n + 1)); test $n -lt 2 || exit 7' TERM; echo >"$1"; while :; do sleep 0.05; done`, "sh", began)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = demo.PollUntil(t.Context(), func() (bool, error) { _, err := os.Stat(began); return err == nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	killLeftovers(t, dir)
	if left := processesIn(dir); len(left) > 0 {
		_ = cmd.Process.Kill()
		t.Errorf("left behind: %v", left)
	}
	if <-ended; cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
}
