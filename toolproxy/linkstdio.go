package toolproxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	osexec "os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// usualEnv is what every command gets of this process's environment.
var usualEnv = []string{"PATH", "LANG", "LC_ALL", "TZ", "TMPDIR"}

// Patience with a command that is told to end.
const (
	quitPause = 2 * time.Second // after its input has ended, and after SIGTERM
	lastWords = time.Second     // for what it has written before it ended
)

// child is a command that speaks over its standard streams, in a process group
// of its own.
type child struct {
	cmd    *osexec.Cmd
	in     io.WriteCloser
	out    *os.File
	exited chan struct{}
}

// start runs the upstream's command.
func (l *link) start() (mcp.Transport, error) {
	c, err := startChild(l.up.Upstream, l.up.log)
	if err != nil {
		return nil, err
	}
	l.end = c.stop
	return childTransport{c, l}, nil
}

func startChild(u Upstream, log *slog.Logger) (*child, error) {
	cmd := osexec.Command(u.Command[0], u.Command[1:]...)
	cmd.Env = environment(append(usualEnv[:len(usualEnv):len(usualEnv)], u.Env...))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithUs(cmd.SysProcAttr)
	cmd.Stderr = &sayings{log: log}
	cmd.WaitDelay = lastWords // a process of its own may hold the stream
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = theirs
	c := &child{cmd: cmd, in: in, out: out, exited: make(chan struct{})}
	started := make(chan error)
	go c.live(started)
	err = <-started
	_ = theirs.Close()
	if err != nil {
		_ = in.Close()
		_ = out.Close()
		return nil, err
	}
	return c, nil
}

// live starts the command and waits for its end, on one thread: the command
// dies with the thread that has started it.
func (c *child) live(started chan<- error) {
	runtime.LockOSThread()
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = c.cmd.Wait()
	_ = c.out.SetReadDeadline(time.Now().Add(lastWords))
	close(c.exited)
}

// stop ends the command and every process of its group.
func (c *child) stop() {
	_ = c.in.Close()
	if !c.wait(quitPause) {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM)
		c.wait(quitPause)
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	<-c.exited
	_ = c.out.Close()
}

func (c *child) wait(d time.Duration) bool {
	select {
	case <-c.exited:
		return true
	case <-time.After(d):
		return false
	}
}

func environment(names []string) []string {
	var env []string
	for _, name := range names {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// childTransport speaks with a started command.
type childTransport struct {
	c *child
	l *link
}

func (t childTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := (&mcp.IOTransport{Reader: t.c.out, Writer: t.c.in}).Connect(ctx)
	return &childConn{conn, t.l}, err
}

// childConn hears what the upstream says in the order in which it speaks.
type childConn struct {
	mcp.Connection
	l *link
}

func (c *childConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); ok && err == nil && !r.IsCall() {
		c.l.notice(nil, r.Method, r.Params)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF // it has ended; who still holds the stream is none of ours
	}
	return m, err
}

// sayings puts what a command writes to its standard error into the log, a
// line at a time.
type sayings struct {
	log  *slog.Logger
	rest []byte
}

const maxSaying = 2 << 10 // bytes of a line that are kept

func (s *sayings) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	for {
		n, line, err := bufio.ScanLines(s.rest, len(s.rest) > maxSaying)
		if n == 0 || err != nil {
			return len(p), nil
		}
		s.log.Debug("an upstream writes", "line", clip(string(line)))
		s.rest = s.rest[n:]
	}
}
