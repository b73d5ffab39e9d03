package mcp

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

	"github.com/picket-dev/picket/internal/web"
)

// inheritedEnv is what every command gets of this process's environment.
var inheritedEnv = []string{"PATH", "LANG", "LC_ALL", "TZ", "TMPDIR"}

// Patience with a command that is told to end.
const (
	stopGrace = 2 * time.Second // after its input has ended, and after SIGTERM
	drainTime = time.Second     // for what it has written before it ended
)

// childProcess is a command that speaks over its standard streams, in a process group
// of its own.
type childProcess struct {
	cmd    *osexec.Cmd
	in     io.WriteCloser
	out    *os.File
	exited chan struct{}
}

// startChild runs an upstream's command.
func startChild(u Upstream, log *slog.Logger) (*childProcess, error) {
	cmd := osexec.Command(u.Command[0], u.Command[1:]...)
	cmd.Env = environment(append(inheritedEnv[:len(inheritedEnv):len(inheritedEnv)], u.Env...))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	killWithParent(cmd.SysProcAttr)
	cmd.Stderr = &stderrLogger{log: log}
	cmd.WaitDelay = drainTime // a process of its own may hold the stream
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = theirs
	c := &childProcess{cmd: cmd, in: in, out: out, exited: make(chan struct{})}
	started := make(chan error)
	go c.run(started)
	err = <-started
	_ = theirs.Close()
	if err != nil {
		_ = in.Close()
		_ = out.Close()
		return nil, err
	}
	return c, nil
}

// run starts the command and waits for its end, on one thread: the command
// dies with the thread that has started it.
func (c *childProcess) run(started chan<- error) {
	runtime.LockOSThread()
	err := c.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = c.cmd.Wait()
	_ = c.out.SetReadDeadline(time.Now().Add(drainTime))
	close(c.exited)
}

// stop ends the command and every process of its group.
func (c *childProcess) stop() {
	_ = c.in.Close()
	if !c.wait(stopGrace) {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM)
		c.wait(stopGrace)
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	<-c.exited
	_ = c.out.Close()
}

func (c *childProcess) wait(d time.Duration) bool {
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
	process        *childProcess
	onNotification func(method string, params []byte)
}

func (t childTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := (&mcp.IOTransport{Reader: t.process.out, Writer: t.process.in}).Connect(ctx)
	return &childConn{conn, t.onNotification}, err
}

// childConn hears what the upstream says in the order in which it speaks.
type childConn struct {
	mcp.Connection
	onNotification func(method string, params []byte)
}

func (c *childConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); ok && err == nil && !r.IsCall() {
		c.onNotification(r.Method, r.Params)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF // the command has ended; another process may still hold the stream
	}
	return m, err
}

// stderrLogger puts what a command writes to its standard error into the log, a
// line at a time.
type stderrLogger struct {
	log  *slog.Logger
	rest []byte
}

const maxStderrLine = 2 << 10 // bytes of a line that are kept

func (s *stderrLogger) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	for {
		n, line, err := bufio.ScanLines(s.rest, len(s.rest) > maxStderrLine)
		if n == 0 || err != nil {
			return len(p), nil
		}
		s.log.Debug("an upstream writes", "line", web.Shortened(string(line)))
		s.rest = s.rest[n:]
	}
}
