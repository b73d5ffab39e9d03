package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
)

// heldLock is a data directory whose lock is taken in the name of a process.
func heldLock(t *testing.T, pid int) (data string, lock *os.File) {
	t.Helper()
	data = t.TempDir()
	f, err := os.Create(filepath.Join(data, "up.lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(strconv.Itoa(pid) + "\n")
	return data, f
}

// A server that was killed holds its lock until the last of its threads is gone: the next one waits
// for that. A server that runs is reported at once.
func TestTheLockOfAServerThatEnds(t *testing.T) {
	data, _ := heldLock(t, os.Getpid())
	if _, err := lockData(data); picket.CodeOf(err) != picket.CodeStateConflict {
		t.Errorf("beside one that runs: %v", err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	data, lock := heldLock(t, gone.Process.Pid)
	time.AfterFunc(200*time.Millisecond, func() { lock.Close() })
	unlock, err := lockData(data)
	if err != nil {
		t.Fatalf("after one that was killed: %v", err)
	}
	unlock()
}
