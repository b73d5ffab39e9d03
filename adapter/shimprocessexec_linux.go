package adapter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"
)

// execSocketPair is a socket that keeps messages whole and carries files, and its
// other end.
func execSocketPair() (mine, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make socket: %w", err)
	}
	_ = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 2*maxExecMessage)
	return os.NewFile(uintptr(fds[0]), "execs"), os.NewFile(uintptr(fds[1]), "execs"), nil
}

// Exec has the shim run a program beside the agent, so that it dies with the
// agent's tree whatever becomes of this process.
func (p *shimProcess) Exec(ctx context.Context, job ExecJob) (Exited, error) {
	path, err := findProgram(job.Argv[0])
	if err != nil {
		return Exited{}, err
	}
	out, err := newOutputPipes(job.Stdout, job.Stderr)
	if err != nil {
		return Exited{}, err
	}
	stdin, feed, err := os.Pipe()
	if err != nil {
		out.abandon()
		return Exited{}, fmt.Errorf("make pipe: %w", err)
	}
	defer feed.Close()
	ended, err := p.requestExec(shimExecRequest{
		ID:      job.ID,
		Path:    []byte(path),
		Args:    bytesOf(job.Argv),
		Timeout: int64(job.Timeout),
		Ceiling: p.execLimits,
	}, stdin, out.writers[0], out.writers[1])
	stdin.Close()
	if err != nil {
		out.abandon()
		return Exited{}, err
	}
	defer p.removeExecWaiter(job.ID)
	out.copyInBackground()
	go func() { // ends with feed at the latest
		if job.Stdin != nil {
			_, _ = io.Copy(feed, job.Stdin)
		}
		feed.Close()
	}()
	end := p.waitForExec(ctx, job.ID, ended)
	out.finish(0, time.Second)
	if end.Failed != nil {
		return Exited{}, end.Failed
	}
	return Exited{Code: end.Code, Signal: end.Signal, LimitHit: end.Passed}, nil
}

// requestExec hands a program and its files to the shim.
func (p *shimProcess) requestExec(x shimExecRequest, files ...*os.File) (<-chan shimExecResult, error) {
	message, err := json.Marshal(x)
	if err != nil {
		return nil, err
	}
	if len(message) > maxExecMessage {
		return nil, errors.New("the arguments are too long")
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.execWaiters[x.ID] != nil {
		return nil, fmt.Errorf("a program %s runs already", x.ID)
	}
	conn, err := p.execSocket.SyscallConn()
	if err != nil {
		return nil, errAgentEnded
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		failed = unix.Sendmsg(int(fd), message, unix.UnixRights(fds...), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	if err != nil || errors.Is(failed, unix.EPIPE) {
		return nil, errAgentEnded
	}
	if failed != nil {
		return nil, fmt.Errorf("ask the shim: %w", failed)
	}
	ended := make(chan shimExecResult, 1)
	p.execWaiters[x.ID] = ended
	return ended, nil
}

// waitForExec waits for the end of a program; ctx ending kills it.
func (p *shimProcess) waitForExec(ctx context.Context, id string, ended <-chan shimExecResult) shimExecResult {
	stop := ctx.Done()
	for {
		select {
		case end := <-ended:
			return end
		case <-p.done: // with the whole tree
			select {
			case end := <-ended:
				return end
			default:
				return shimExecResult{Code: 128 + int(unix.SIGKILL), Signal: unix.SignalName(unix.SIGKILL)}
			}
		case <-stop:
			stop = nil
			p.sendCommand(shimCommand{EndExec: id})
		}
	}
}

func (p *shimProcess) execEnded(end shimExecResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if waiting := p.execWaiters[end.ID]; waiting != nil {
		waiting <- end // has room for the one that comes
		delete(p.execWaiters, end.ID)
	}
}

func (p *shimProcess) removeExecWaiter(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.execWaiters, id)
}
