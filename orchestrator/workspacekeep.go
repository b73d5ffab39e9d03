package orchestrator

import (
	"time"

	"github.com/picket-dev/picket"
)

// How long the workspace of a run is kept: while it may still be wanted, and
// then for as long as somebody may want to look.
const (
	keepFailed  = 7 * 24 * time.Hour // after the end of a run that failed or expired
	keepDecided = 24 * time.Hour     // after its task was decided, by a review or otherwise
)

// keepUntil is when the workspace of a run may go; 0 while nothing is decided.
// It follows from what the deciding verbs write in their one step, so that it
// can never say something else than they do.
func keepUntil(t picket.Task, r picket.Run) picket.Instant {
	switch {
	case r.State == picket.RunRunning:
		return 0
	case r.State == picket.RunFailed || r.State == picket.RunExpired:
		return r.EndedAt + picket.Instant(keepFailed.Milliseconds())
	case !t.State.Terminal():
		return 0
	}
	decided := t.UpdatedAt
	if t.Review != nil && t.Review.At != 0 {
		decided = t.Review.At
	}
	return decided + picket.Instant(keepDecided.Milliseconds())
}
