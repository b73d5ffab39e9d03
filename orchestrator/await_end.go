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
	end, err := e.waitUntil(ctx, e.wakeups.subscribe(taskTopic(held.TaskID)), wait,
		func() (bool, time.Duration, error) {
			l, r, err := e.readWatch(ctx, held, "", "quiet")
			if err != nil {
				return false, 0, err
			}
			return r.text(r.at(l, 0)) != string(picket.RunRunning), 0, r.err
		})
	return err == nil && end == waitDone, err
}
