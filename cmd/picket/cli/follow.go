package cli

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
)

// FollowDespiteLimit follows events for a reader that can look for itself meanwhile: if
// the key reads too many streams, it reports a lost link and tries again.
func (s *Connection) FollowDespiteLimit(ctx context.Context, f client.Follower) error {
	for {
		err := s.Events.Follow(ctx, f)
		var full *picket.Error
		if !errors.As(err, &full) || full.Code != picket.CodeRateLimited {
			return err
		}
		f.Link(false)
		if err := Sleep(ctx, cmp.Or(full.RetryAfter, pollEvery)); err != nil {
			return err
		}
	}
}

// ErrTaskLost says that a task that was there is in the store no more, although
// nothing deletes a task that is not closed.
var ErrTaskLost = errors.New("the store has lost the task")

// lossCheckEvery is how often a task is looked for while it is followed.
const lossCheckEvery = 5 * time.Second

// AwaitTaskLost returns ErrTaskLost once a task is not in the store any more, or the end
// of ctx. The event stream cannot tell: what took the task took its events, too.
func (s *Connection) AwaitTaskLost(ctx context.Context, task string) error {
	for {
		if err := Sleep(ctx, lossCheckEvery); err != nil {
			return err
		}
		if _, err := s.Tasks.Get(ctx, task); IsTaskMissing(err) {
			return ErrTaskLost
		}
	}
}

// IsTaskMissing recognizes Picket's own not_found. That of a load balancer, which
// carries no request id, says nothing about the store.
func IsTaskMissing(err error) bool {
	var e *picket.Error
	return errors.As(err, &e) && e.Code == picket.CodeNotFound && e.Facts["requestId"] != nil
}

// TaskLostError is ErrTaskLost for a person. again, when not empty, is the command
// that submits the task again.
func TaskLostError(id, again string) error {
	remedy := "Submit it again. What its agent did is still where it worked: look there first."
	if again != "" {
		remedy = "What its agent did is still where it worked: look there, then submit it again: " + again
	}
	return picket.Refuse(picket.CodeNotFound, remedy,
		"the store has lost %s: it was emptied, or an older state of it was restored", id)
}
