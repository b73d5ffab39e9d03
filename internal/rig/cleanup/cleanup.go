// Package cleanup keeps together what a test program starts and writes, so that
// nothing of it is left when the program ends, however it ends.
package cleanup

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// OwnTempDir makes a directory for this test program and makes TMPDIR name it. All
// temporary directories are then inside it, and every process that is started with
// the program's environment or in one of those directories carries it. However the
// program ends, those processes are killed and the directory is removed; end does
// the same after the tests.
func OwnTempDir(name string) (end func(), err error) {
	dir, err := os.MkdirTemp("", name)
	if err == nil {
		err = os.Chmod(dir, 0o711) // some of what is started runs as another user
	}
	if err == nil {
		err = os.Setenv("TMPDIR", dir)
	}
	if err == nil {
		end, err = KillAtEnd(dir)
	}
	if err != nil {
		return nil, err
	}
	return end, nil
}

// WithTempDir returns the tests of a program that has a directory of its own, see
// [OwnTempDir].
func WithTempDir(m Tests, name string) Tests { return &ownedTests{m, name} }

// Tests is what a testing.M does.
type Tests interface{ Run() int }

type ownedTests struct {
	tests Tests
	name  string
}

func (o *ownedTests) Run() int {
	end, err := OwnTempDir(o.name)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer end()
	return o.tests.Run()
}

// KillAtEnd makes every end of this program kill the processes that carry dir and
// remove dir: its normal end (when end is called), SIGTERM and SIGINT, a panic,
// and SIGKILL. Two mechanisms do this. A signal handler answers at once and exits
// with status 1. A watcher process does the work when this program is gone.
func KillAtEnd(dir string) (end func(), err error) {
	w, err := newWatcher(dir)
	if err != nil {
		return nil, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	go func() {
		select {
		case sig := <-signals:
			// Tests go on until the exit, but they can start no process any more.
			syscall.ForkLock.RLock()
			left := killAll(dir)
			remove(dir)
			fmt.Fprintf(os.Stderr, "%v: the processes of this run were killed, %d are left\n", sig, left)
			remove(dir)
			os.Exit(1)
		case <-done:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		w.end()
		_ = os.RemoveAll(dir)
	}, nil
}

// killTimeout bounds how long processes are ended: what a killed one has started a
// moment before is found by the next look.
const killTimeout = 10 * time.Second

// killAll kills what carries dir until nothing does, and answers how many are left.
// One look that finds nothing is not enough: just after it has become another
// program a process shows no environment.
func killAll(dir string) int {
	nothing := 0
	for deadline := time.Now().Add(killTimeout); ; time.Sleep(20 * time.Millisecond) {
		left := Processes(dir)
		if nothing++; len(left) > 0 {
			nothing = 0
		}
		if nothing == 3 || time.Now().After(deadline) {
			return len(left)
		}
		for pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// remove tries again for a while: tests that lose their processes write still.
func remove(dir string) {
	for range 100 {
		if err := os.RemoveAll(dir); err == nil {
			return
		}
	}
}

// Processes returns the command lines, by process id, of the other living processes
// that name dir, or a directory inside it, in their environment, their arguments or
// as their working directory. Without /proc it finds none.
func Processes(dir string) map[int]string {
	found := map[int]string{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		of := filepath.Join("/proc", e.Name())
		env, _ := os.ReadFile(filepath.Join(of, "environ"))
		args, _ := os.ReadFile(filepath.Join(of, "cmdline"))
		cwd, _ := os.Readlink(filepath.Join(of, "cwd"))
		if mentions(string(env), dir) || mentions(string(args), dir) || mentions(cwd, dir) {
			found[pid] = strings.ReplaceAll(string(args), "\x00", " ")
		}
	}
	return found
}

// mentions reports whether a text names a directory or something in it.
func mentions(text, dir string) bool {
	for {
		_, after, found := strings.Cut(text, dir)
		if !found || after == "" {
			return found
		}
		if strings.IndexByte("/\x00: ,;\"'", after[0]) >= 0 {
			return true // not the beginning of another's name
		}
		text = after
	}
}
