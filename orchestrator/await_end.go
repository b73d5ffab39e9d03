package orchestrator

import (
	"context"
	"time"

	"github.com/picket-dev/picket"
)

// AwaitEnd waits until a lease has ended; ended is false when the wait ran out
// first. Other than Watch it takes no commands, which are meant for the adapter
// alone: it is for whoever acts on behalf of the run and has to stop in time.
func (e *Engine) AwaitEnd(ctx context.Context, held picket.LeaseCredential,
	wait time.Duration) (ended bool, err error) {
	in := e.wakeups.subscribe(true, func(message string) bool { return message == "task "+held.TaskID })
	defer e.wakeups.unsubscribe(in)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		got, err := e.runHeld(ctx, held, "watch", "", "quiet")
		if err != nil {
			return false, err
		}
		r := &reply{script: "watch"}
		switch state := r.text(r.at(r.list(got), 0)); {
		case r.err != nil:
			return false, r.err
		case state == "reclaim":
			if _, err := e.Reclaim(ctx, held); err != nil {
				return false, err
			}
			continue
		case state != string(picket.RunRunning):
			return true, nil
		}
		select {
		case <-in.wakeup:
		case <-timer.C:
			return false, nil
		case <-ctx.Done():
			return false, unavailable("the wait was given up", ctx.Err())
		case <-e.store.ctx.Done():
			return false, nil
		}
	}
}
