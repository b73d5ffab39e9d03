package orchestrator

import (
	"context"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// Watch waits until the lease ends and says how; changed is false when the
// wait ran out first. A lease that has ended answers at once. What the adapter
// is to start is told until it is among known, the call ids it has heard of.
func (e *Engine) Watch(ctx context.Context, held picket.LeaseCredential, wait time.Duration,
	known ...string) (w picket.Watch, changed bool, err error) {
	in := e.wakeups.subscribe(true, func(message string) bool { return message == "task "+held.TaskID })
	defer e.wakeups.unsubscribe(in)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		got, err := e.runHeld(ctx, held, "watch", ","+strings.Join(known, ",")+",")
		if err != nil {
			return picket.Watch{}, false, err
		}
		r := &reply{script: "watch"}
		l := r.list(got)
		if r.text(r.at(l, 0)) == "reclaim" {
			if _, err := e.Reclaim(ctx, held); err != nil {
				return picket.Watch{}, false, err
			}
			continue
		}
		w.Commands = r.nudgeCommand(r.at(l, 3))
		if len(l) > 4 {
			w.Commands = append(w.Commands, r.execCommands(l[4])...)
		}
		if w.State = watchState(r.text(r.at(l, 0)), r.text(r.at(l, 1)),
			r.text(r.at(l, 2))); w.State != picket.WatchHeld {
			if w.State == picket.WatchCancelled {
				w.Commands = []picket.Command{{Command: "stop", Reason: "cancelled"}}
			}
			return w, true, r.err
		}
		if len(w.Commands) > 0 {
			return w, true, r.err
		}
		select {
		case <-in.wakeup:
		case <-timer.C:
			return w, false, r.err
		case <-ctx.Done():
			return w, false, unavailable("the request was given up", ctx.Err())
		case <-e.store.ctx.Done():
			return w, false, r.err
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
