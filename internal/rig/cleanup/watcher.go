package cleanup

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// watcherRole is the environment variable that makes a test program a watcher
// (or the process that starts one) instead of running its tests.
const watcherRole = "PICKET_TEST_WATCHER"

// init runs before any test: a watcher is a copy of the test program, because
// nothing else is certain to be installed.
func init() {
	switch os.Getenv(watcherRole) {
	case "start":
		os.Exit(startDetached())
	case "watch":
		watch(os.Stdin)
		os.Exit(0)
	}
}

// watcher is a process outside of the test program that outlives it. Its standard
// input is a pipe that only the test program holds open, so it notices every end
// of that program, SIGKILL and a panic included. It then kills the processes that
// carry the program's directory and removes the directory.
type watcher struct {
	held *os.File // closed by us, or by the kernel when this program ends
	done *os.File // reads end-of-file when the watcher has ended
}

// newWatcher starts the watcher of dir. The directory is sent through the pipe:
// the watcher must not carry it, or it would be found among the left processes.
func newWatcher(dir string) (*watcher, error) {
	in, held, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	done, out, err := os.Pipe()
	if err != nil {
		_ = held.Close()
		return nil, err
	}
	defer out.Close()
	start := exec.Command(os.Args[0])
	start.Env = []string{watcherRole + "=start"}
	start.Dir = "/"
	start.Stdin, start.Stdout, start.Stderr = in, out, os.Stderr
	if err = start.Run(); err == nil {
		_, err = fmt.Fprintln(held, dir)
	}
	w := &watcher{held, done}
	if err == nil {
		_, err = done.Read(make([]byte, 1)) // it has read the directory
	}
	if err != nil {
		w.end()
		return nil, fmt.Errorf("start the watcher of %s: %w", dir, err)
	}
	return w, nil
}

// end makes the watcher do its work now, and waits until it has ended.
func (w *watcher) end() {
	_ = w.held.Close()
	_, _ = io.Copy(io.Discard, w.done)
	_ = w.done.Close()
}

// startDetached starts the watcher and ends: the watcher is then no child of the
// test program, whose tests count and reap children.
func startDetached() int {
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{watcherRole + "=watch"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the tests
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func watch(in *os.File) {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	r := bufio.NewReader(in)
	dir, err := r.ReadString('\n')
	if dir = strings.TrimSpace(dir); err != nil || dir == "" {
		return
	}
	fmt.Println("watching")
	_, _ = io.Copy(io.Discard, r)
	if _, err := os.Stat(dir); err == nil {
		killAll(dir)
		remove(dir)
	}
}
