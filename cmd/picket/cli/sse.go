package cli

import (
	"cmp"
	"context"
	"errors"

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
