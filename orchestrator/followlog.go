package orchestrator

import (
	"context"
	"time"

	"github.com/picket-dev/picket"
)

// lastOutputWait is how long the last output of an ended run may be on its way when
// nobody says that it was the last.
const lastOutputWait = 2 * time.Second

// FollowLog is Log, but where there is nothing yet it waits: for output, or
// until no more can come, at most wait. With whole it waits for the task rather
// than the run: no more can come when a newer run has begun or the task needs
// no run any more.
func (e *Engine) FollowLog(ctx context.Context, taskID, runID, stream string, offset int64, limit int, whole bool,
	wait time.Duration) (picket.LogChunk, error) {
	in := e.wakeups.subscribe(true,
		func(message string) bool { return message == "log "+taskID || message == "task "+taskID })
	defer e.wakeups.unsubscribe(in)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var quiet <-chan time.Time
	for {
		// Registered, then looked, then waits: nothing in between is missed.
		c, err := e.Log(ctx, taskID, runID, stream, offset, limit)
		if err != nil || len(c.Data) > 0 {
			return c, err
		}
		settled := c.TaskState.Terminal() || c.TaskState == picket.TaskReview
		over := !whole || c.RunID != c.LatestRunID || settled
		switch {
		case over && c.State == picket.LogClosed, settled && c.RunID == "":
			return c, nil
		case over && c.State == picket.LogEnded && quiet == nil:
			quiet = time.After(lastOutputWait)
		}
		select {
		case <-in.wakeup:
		case <-timer.C:
			return c, nil
		case <-quiet:
			return c, nil
		case <-ctx.Done():
			return c, unavailable("the request was given up", ctx.Err())
		case <-e.store.ctx.Done():
			return c, nil
		}
	}
}
