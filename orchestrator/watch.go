package orchestrator

import (
	"context"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Watch waits until the lease ends and says how; changed is false when the
// wait ran out first. A lease that has ended answers at once. What the adapter
// is to start is told until it is among known, the call ids it has heard of.
func (e *Engine) Watch(ctx context.Context, held picket.LeaseCredential, wait time.Duration,
	known ...string) (w picket.Watch, changed bool, err error) {
	end, err := e.records.WaitUntil(ctx, e.records.Subscribe(taskTopic(held.TaskID)), wait,
		func() (bool, time.Duration, error) {
			w, err = e.watchNow(ctx, held, known)
			return w.State != picket.WatchHeld || len(w.Commands) > 0, 0, err
		})
	if err != nil {
		return picket.Watch{}, false, err
	}
	return w, end == store.WaitDone, nil
}

// watchNow answers what became of a lease so far. A lease that the store has
// lost is reclaimed first.
func (e *Engine) watchNow(ctx context.Context, held picket.LeaseCredential, known []string) (picket.Watch, error) {
	l, r, err := e.readWatch(ctx, held, ","+strings.Join(known, ",")+",")
	if err != nil {
		return picket.Watch{}, err
	}
	w := picket.Watch{
		State:    watchState(r.Text(r.At(l, 0)), r.Text(r.At(l, 1)), r.Text(r.At(l, 2))),
		Commands: r.nudgeCommand(r.At(l, 3)),
	}
	if len(l) > 4 {
		w.Commands = append(w.Commands, r.execCommands(l[4])...)
	}
	if w.State == picket.WatchCancelled {
		w.Commands = []picket.Command{{Command: "stop", Reason: "cancelled"}}
	}
	return w, r.Err
}

// readWatch runs the script watch, which answers "reclaim" for a lease that the
// store has lost, until the lease is reclaimed.
func (e *Engine) readWatch(ctx context.Context, held picket.LeaseCredential, args ...any) ([]any, *reply, error) {
	for {
		got, err := e.runHeld(ctx, held, "watch", args...)
		if err != nil {
			return nil, nil, err
		}
		r := newReply("watch")
		l := r.List(got)
		if r.Text(r.At(l, 0)) != "reclaim" {
			return l, r, r.Err
		}
		if _, err := e.Reclaim(ctx, held); err != nil {
			return nil, nil, err
		}
	}
}

func watchState(runState, class, closed string) picket.WatchState {
	switch {
	case runState == string(picket.RunRunning):
		return picket.WatchHeld
	case runState == string(picket.RunCompleted):
		return picket.WatchCompleted
	case runState == string(picket.RunCancelled):
		return picket.WatchCancelled
	case strings.HasPrefix(closed, "request_help:"):
		return picket.WatchHandoff
	}
	return picket.WatchLost
}

// AwaitEnd waits until a lease has ended; ended is false when the wait ran out
// first. Other than Watch it takes no commands, which are meant for the adapter
// alone: it is for anyone who acts on behalf of the run and has to stop in time.
func (e *Engine) AwaitEnd(ctx context.Context, held picket.LeaseCredential,
	wait time.Duration) (ended bool, err error) {
	end, err := e.records.WaitUntil(ctx, e.records.Subscribe(taskTopic(held.TaskID)), wait,
		func() (bool, time.Duration, error) {
			l, r, err := e.readWatch(ctx, held, "", "quiet")
			if err != nil {
				return false, 0, err
			}
			return r.Text(r.At(l, 0)) != string(picket.RunRunning), 0, r.Err
		})
	return err == nil && end == store.WaitDone, err
}
