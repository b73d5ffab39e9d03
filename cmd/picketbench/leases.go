package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
)

const leasesText = "many live leases, confirmed, in two stores of unequal size, each with a Redis of its own. *renew*: p99 and p50 of one caller that renews leases picked at random (the seed is fixed), one after the other. " +
	"*expire*: what a reaper ends a second in batches of 100 when all leases are overdue, failure, event and new place in the queue included; the store's clock is set forward between rounds, and what ended is leased and confirmed again, neither of which counts. " +
	"100,000 leases with a window of 300 s are 556 renewals a second. Both sides are Picket. One million leases were not tried."

// crowd is a store with many live leases.
type crowd struct {
	plan   plan
	server *redisServer
	store  *orchestrator.Store
	engine *orchestrator.Engine
	sealer *seal.Sealer
	held   []picket.LeaseCredential
	calls  int // a round
	random *rand.Rand
	seen   times
}

// gather leases and confirms n tasks in a store of their own.
func gather(ctx context.Context, b *bench, n int) (*crowd, error) {
	server, err := startRedis(ctx, "off")
	if err != nil {
		return nil, err
	}
	store, sealer, err := openStore(ctx, server, true)
	if err != nil {
		server.stop()
		return nil, err
	}
	c := &crowd{plan: b.plan, server: server, store: store, engine: store.Engine("default"), sealer: sealer,
		calls: b.pick(10_000, 1_000), random: rand.New(rand.NewPCG(1, 2))}
	if c.held, err = fillLeased(ctx, b.plan, c.engine, sealer, n); err == nil {
		err = c.confirm(ctx, c.held)
	}
	if err == nil {
		err = server.settle(ctx)
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("lease %d tasks: %w", n, err)
	}
	return c, nil
}

func (c *crowd) close() {
	c.store.Close()
	c.server.stop()
}

// confirm gives leases their full window.
func (c *crowd) confirm(ctx context.Context, held []picket.LeaseCredential) error {
	return each(c.plan, held, func(h picket.LeaseCredential) error {
		_, err := c.engine.Renew(ctx, h)
		return err
	})
}

// renewals is a round of renewals by one caller.
func (c *crowd) renewals(ctx context.Context) (sample, error) {
	c.seen = nil
	for range c.calls {
		h := c.held[c.random.IntN(len(c.held))]
		began := time.Now()
		if _, err := c.engine.Renew(ctx, h); err != nil {
			return sample{}, err
		}
		c.seen.add(time.Since(began))
	}
	return quantiles(c.seen, 0.99), nil
}

// reapBatch is what one call of the reaper ends.
const reapBatch = 100

// expiries is a round of a reaper: batches until as many leases ended as there
// are calls in a round. A small crowd expires several times.
func (c *crowd) expiries(ctx context.Context) (sample, error) {
	ended, took := 0, time.Duration(0)
	for ended < c.calls {
		n := min(len(c.held), c.calls-ended)
		if err := c.advance(ctx); err != nil {
			return sample{}, err
		}
		began := time.Now()
		for done := 0; done < n; {
			k, err := c.engine.ExpireDue(ctx, reapBatch)
			if err != nil {
				return sample{}, err
			}
			if k == 0 {
				return sample{}, fmt.Errorf("%d of %d overdue leases were found", done, n)
			}
			done += k
		}
		took += time.Since(began)
		ended += n
		again, err := leaseAll(ctx, c.plan, c.engine, c.sealer, n)
		if err == nil {
			err = c.confirm(ctx, again)
		}
		if err != nil {
			return sample{}, fmt.Errorf("lease again: %w", err)
		}
	}
	return sample{Value: round(float64(ended)/took.Seconds(), 0)}, nil
}

// advance sets the store's clock forward past every deadline, as if nobody had
// renewed for that long.
func (c *crowd) advance(ctx context.Context) error {
	const past = (longWindow + 60) * 1000
	if err := c.server.client.HIncrBy(ctx, "pk:{default}:meta", "now", past).Err(); err != nil {
		return fmt.Errorf("advance the store's clock: %w", err)
	}
	return nil
}

// leases measures a store with many live leases against one with few.
func leases(ctx context.Context, b *bench) error {
	few, many := 1_000, b.pick(100_000, 10_000)
	small, err := gather(ctx, b, few)
	if err != nil {
		return err
	}
	defer small.close()
	large, err := gather(ctx, b, many)
	if err != nil {
		return err
	}
	defer large.close()
	names := [2]string{fmt.Sprintf("%d live", many), fmt.Sprintf("%d live", few)}
	l := line{Scenario: "leases", Layer: "engine", Fsync: "off"}

	l.Case, l.Unit, l.Must = "renew, p99", "µs", atMost(1.5)
	if l.Sides, err = b.inTurn(ctx, "leases, renew", l.Unit, contender{names[0], large.renewals},
		contender{names[1], small.renewals}); err != nil {
		return err
	}
	b.add(l, growth, large.server.version)
	l.Case, l.Must = "renew, p50", atMost(1.2)
	l.Sides = []side{byQuantile(l.Sides[0], "p50"), byQuantile(l.Sides[1], "p50")}
	b.add(l, growth, large.server.version)

	l.Case, l.Unit, l.Must = "expire in batches of 100", "leases/s", over(10_000)
	if l.Sides, err = b.inTurn(ctx, "leases, expire", l.Unit, contender{names[0], large.expiries},
		contender{names[1], small.expiries}); err != nil {
		return err
	}
	b.add(l, rate, large.server.version)
	return nil
}

// byQuantile is a side of single calls by another of its quantiles.
func byQuantile(s side, name string) side {
	samples := make([]sample, len(s.Rounds))
	for i, r := range s.Rounds {
		samples[i] = sample{Value: r.More[name], More: r.More}
	}
	return sideOf(s.Name, samples)
}
