package foreign

import (
	"context"
	"errors"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
)

// toolError is the error of a tool of Picket, unlike that of the foreign agent.
type toolError struct{ error }

func (e toolError) Unwrap() error { return e.error }

// task reads the task. It fails if the lease has ended, so it comes before what the foreign agent is sent.
func (w *work) task(ctx context.Context) (t picket.Task, err error) {
	err = w.tool(ctx, func(ctx context.Context) (err error) {
		t, err = w.proxy.Task(ctx)
		return err
	})
	return t, err
}

// set changes the checkpoint.
func (w *work) set(change func(*checkpoint)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.saved)
}

// save changes the checkpoint and writes it into a report, from which the next run goes on.
func (w *work) save(ctx context.Context, summary string, change func(*checkpoint)) error {
	if change != nil {
		w.set(change)
	}
	w.mu.Lock()
	line := w.saved.line()
	w.mu.Unlock()
	return w.tool(ctx, func(ctx context.Context) error {
		_, err := w.proxy.Report(ctx, picket.Progress{Summary: w.said(summary), Beliefs: []string{line}})
		return err
	})
}

// tool calls a tool of Picket until it has answered or the run is ended. The error is a [toolError].
func (w *work) tool(ctx context.Context, call func(context.Context) error) error {
	for pause := w.limits.first; ; pause = min(2*pause, w.limits.longest) {
		err := call(ctx)
		code := picket.CodeOf(err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil || !code.Retryable() && !errors.Is(err, picket.ErrUnknown):
			return toolError{err}
		}
		if cli.Sleep(ctx, pause) != nil {
			return toolError{err}
		}
	}
}
