//go:build unix

package adapter_test

import (
	"context"
	"testing"
	"time"

	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig"
)

// asAsked registers with the thresholds of a check.
func asAsked(s *adaptertest.Server) func(*adapter.Config) {
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	return func(c *adapter.Config) {
		h := s.Thresholds
		c.Health = adapter.HealthConfig{
			Interval:       seconds(h.IntervalSeconds),
			UnhealthyAfter: seconds(h.UnhealthyAfterSeconds),
			DeadAfter:      seconds(h.DeadAfterSeconds),
		}
	}
}

func TestConforms(t *testing.T) {
	rig.SkipShort(t)
	adaptertest.Conform(t, func(ctx context.Context, s *adaptertest.Server, command []string) error {
		return newAdapter(t, s, command, asAsked(s)).Run(ctx)
	})
}
