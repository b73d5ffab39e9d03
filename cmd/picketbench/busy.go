package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/picket-dev/picket"
)

const busyText = "How long a renewal takes while others keep the store busy. One caller renews 1,000 leases, picked at " +
	"random (the seed is fixed), one after the other. Meanwhile as many workers as the plan has let tasks " +
	"live, as in life, through a client of their own. The other side is the same caller alone. Both sides " +
	"share the processors with all that is measured."

// busy measures renewals under the load of other callers.
func busy(ctx context.Context, b *bench) error {
	c, err := gather(ctx, b, 1_000)
	if err != nil {
		return err
	}
	defer c.close()
	c.calls = b.pick(5_000, 500)
	others, sealer, err := openStore(ctx, c.server, true)
	if err != nil {
		return err
	}
	defer others.Close()
	d := engineEntry(others.Engine("default"), sealer)
	loaded := func(ctx context.Context) (sample, error) {
		stop := make(chan struct{})
		ended := make(chan error, b.Workers)
		for range b.Workers {
			go func() { ended <- liveUntil(ctx, stop, b.plan, d) }()
		}
		got, err := c.renewals(ctx)
		close(stop)
		for range b.Workers {
			err = errors.Join(err, <-ended)
		}
		return got, err
	}
	l := line{Scenario: "busy", Case: "renew, p99", Layer: "engine", Unit: "µs", Fsync: "off", Must: atMost(2)}
	if l.Sides, err = b.inTurn(ctx, "busy, renew", l.Unit, contender{"beside others", loaded},
		contender{"alone", c.renewals}); err != nil {
		return err
	}
	b.add(l, growth, c.server.version)
	l.Case, l.Must = "renew, p50", nil
	l.Sides = []side{byQuantile(l.Sides[0], "p50"), byQuantile(l.Sides[1], "p50")}
	b.add(l, growth, c.server.version)
	return nil
}

// liveUntil lets one task after the other live, until it is told to stop.
func liveUntil(ctx context.Context, stop <-chan struct{}, p plan, d entry) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		task := picket.TaskSpec{Title: "life", Input: payload(p), Review: picket.ReviewByNone}
		if err := d.submit(ctx, task); err != nil {
			return fmt.Errorf("submit: %w", err)
		}
		if err := (life{}).one(ctx, d); err != nil {
			return err
		}
	}
}
