package sessions

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/picket-dev/picket/adapter/process"
)

// keptProcess is a process of a session that reads its prompts from a pipe and stays between them.
type keptProcess struct {
	*session

	process    process.Process // nil: none was started
	stdin      *os.File        // to the process; closed when it has ended
	unread     *os.File        // the other end, for what it has not read; nil: that is not known here
	complained *redactor       // takes what it complains of
}

const (
	// endTimeout is what a process between prompts gets to end on its own.
	endTimeout = 2 * time.Second
	// noDeadline is when a process between prompts ends, from now on.
	noDeadline = 10 * 365 * 24 * time.Hour
)

// runs reports whether the process runs. One that has ended is cleared away.
func (r *keptProcess) runs() bool {
	if r.process == nil {
		return false
	}
	select {
	case <-r.process.Done():
		r.close()
		return false
	default:
		return true
	}
}

// launch starts the process with a pipe as its input.
func (r *keptProcess) launch(ctx context.Context, command []string, job process.Job) error {
	theirs, mine, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	job.Stdin = theirs
	p, err := r.k.cfg.launcher(command).Launch(ctx, job)
	if err != nil {
		theirs.Close()
		mine.Close()
		return err
	}
	r.process, r.stdin, r.unread = p, mine, theirs
	if runtime.GOOS == "windows" { // closing it there does not end a write
		theirs.Close()
		r.unread = nil
		return nil
	}
	r.k.work.Go(func() {
		<-p.Done()
		mine.Close() // ends a write
	})
	return nil
}

// countUnread counts the bytes that a process has left unread at its end; -1: that is not known.
func (r *keptProcess) countUnread() int {
	if r.unread == nil {
		return -1
	}
	r.stdin.Close()
	left, err := io.ReadAll(r.unread)
	if err != nil {
		return -1
	}
	return len(left)
}

// killAt bounds the life of the process, even if this one is stopped.
func (r *keptProcess) killAt(at time.Duration) {
	if p, ok := r.process.(process.DeadlineKeeper); ok {
		p.KillAt(at)
	}
}

// stay lets the process go on when its prompt has ended. stop keeps the deadline of the prompt from ending it.
func (r *keptProcess) stay(stop func() bool) {
	if !stop() { // the deadline came first
		<-r.process.Done()
	}
	r.killAt(r.k.cfg.clock() + noDeadline)
}

// close ends the process.
func (r *keptProcess) close() {
	if r.process == nil {
		return
	}
	r.process.Terminate()
	end := time.AfterFunc(endTimeout, r.process.Kill)
	<-r.process.Done()
	end.Stop()
	r.complained.Flush()
	r.stdin.Close()
	if r.unread != nil {
		r.unread.Close()
	}
	r.process, r.stdin, r.unread = nil, nil, nil
}
