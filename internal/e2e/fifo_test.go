//go:build linux

package e2e

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fifo is a named pipe between a test and an agent's script: the script blocks
// in `read` until the test sends a line, or the test until the script has
// echoed one. Both ends are open here, so neither side blocks in open.
type fifo struct {
	t    *testing.T
	name string
	file *os.File
	r    *bufio.Reader
}

// fifo makes the pipe $E2E/name.
func (w *testEnv) fifo(name string) *fifo {
	w.t.Helper()
	path := w.path(name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		w.t.Fatalf("mkfifo %s: %v", path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { f.Close() })
	c := &fifo{t: w.t, name: name, file: f, r: bufio.NewReader(f)}
	w.fifos = append(w.fifos, c)
	return c
}

// give lets a script that reads the cue go on.
func (c *fifo) give(text string) {
	c.t.Helper()
	if _, err := c.file.WriteString(text + "\n"); err != nil {
		c.t.Fatal(err)
	}
}

// take waits for the next line that a script wrote.
func (c *fifo) take() string {
	c.t.Helper()
	if err := c.file.SetReadDeadline(time.Now().Add(waitLimit)); err != nil {
		c.t.Fatal(err)
	}
	line, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatalf("nothing was written to %s: %v", c.name, err)
	}
	return strings.TrimSpace(line)
}

// takePID waits for a process id.
func (c *fifo) takePID() int {
	c.t.Helper()
	line := c.take()
	pid, err := strconv.Atoi(line)
	if err != nil {
		c.t.Fatalf("%s: %q is not a process id", c.name, line)
	}
	return pid
}

// give lets the script go on that reads the named cue.
func (w *testEnv) give(name string) {
	w.t.Helper()
	for _, c := range w.fifos {
		if c.name == name {
			c.give("on")
			return
		}
	}
	w.t.Fatalf("there is no cue %s", name)
}
