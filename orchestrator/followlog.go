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
	var c picket.LogChunk
	var lastOutputDue time.Time
	topics := e.wakeups.subscribe(logTopic(taskID), taskTopic(taskID))
	_, err := e.waitUntil(ctx, topics, wait, func() (done bool, again time.Duration, err error) {
		c, err = e.Log(ctx, taskID, runID, stream, offset, limit)
		if err != nil || len(c.Data) > 0 {
			return true, 0, err
		}
		settled := c.TaskState.Terminal() || c.TaskState == picket.TaskReview
		over := !whole || c.RunID != c.LatestRunID || settled
		if over && c.State == picket.LogClosed || settled && c.RunID == "" {
			return true, 0, nil
		}
		if !over || c.State != picket.LogEnded {
			return false, 0, nil
		}
		if lastOutputDue.IsZero() {
			lastOutputDue = time.Now().Add(lastOutputWait)
		}
		left := time.Until(lastOutputDue)
		return left <= 0, left, nil
	})
	return c, err
}
