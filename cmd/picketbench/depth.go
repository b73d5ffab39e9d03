package main

import (
	"context"
	"fmt"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
)

const depthText = "Whether a larger store is slower. One caller submits, acquires and completes, one call after the " +
	"other, in a deep store and in a shallow one; the figures are p50. Each store has a Redis of its own, " +
	"the same settings and 1 KiB of payload a task. Every life adds one task and ends one, so the depth " +
	"stays. The measurement begins when Redis has moved its keys into tables of the new size. *complete " +
	"in Redis* is the script's own time, as the slow log gives it."

// deep is a store of a certain size and what a life in it costs.
type deep struct {
	name   string
	plan   plan
	server *redisServer
	store  *orchestrator.Store
	engine *orchestrator.Engine
	sealer *seal.Sealer
	filled time.Duration
	lives  int // a round
	seen   map[string]times
}

// dig starts a Redis, fills it, and leases some of what was filled in.
func dig(ctx context.Context, b *bench, name string, queued, leased int) (*deep, error) {
	server, err := startRedis(ctx, "off")
	if err != nil {
		return nil, err
	}
	store, sealer, err := openStore(ctx, server, true)
	if err != nil {
		server.stop()
		return nil, err
	}
	d := &deep{
		name:   name,
		plan:   b.plan,
		server: server,
		store:  store,
		engine: store.Engine("default"),
		sealer: sealer,
		lives:  b.pick(1_000, 200),
	}
	began := time.Now()
	crowd := b.plan
	crowd.Workers = 256 // a deeper pipeline fills faster
	if _, err = fillLeased(ctx, crowd, d.engine, sealer, leased); err == nil {
		err = fillQueued(ctx, crowd, d.engine, queued)
	}
	if err != nil {
		d.fillIn()
		return nil, fmt.Errorf("fill %s: %w", name, err)
	}
	d.filled = time.Since(began)
	if err := server.settle(ctx); err != nil {
		d.fillIn()
		return nil, err
	}
	fmt.Fprintf(b.log, "depth: %s filled in %.1f s\n", name, d.filled.Seconds())
	return d, nil
}

// fillIn removes the store.
func (d *deep) fillIn() {
	d.store.Close()
	d.server.stop()
}

var depthVerbs = []string{"submit", "acquire", "complete"}

// round lets some tasks live, alone, and notes what each verb took.
func (d *deep) round(ctx context.Context) (sample, error) {
	d.seen = map[string]times{}
	for range d.lives {
		if err := d.live(ctx); err != nil {
			return sample{}, err
		}
	}
	return quantiles(d.seen["acquire"], 0.5), nil
}

func (d *deep) live(ctx context.Context) error {
	began := time.Now()
	if _, err := d.engine.Submit(ctx, asBench, fillSpec(d.plan)); err != nil {
		return err
	}
	began = d.note("submit", began)
	leases, err := d.engine.Acquire(ctx, asBench, picket.AcquireRequest{})
	if err != nil {
		return err
	}
	if len(leases) != 1 {
		return fmt.Errorf("%d leases granted", len(leases))
	}
	d.note("acquire", began)
	held, err := d.sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
	if err != nil {
		return err
	}
	began = time.Now()
	if _, err := d.engine.Complete(ctx, held, picket.Completion{Output: output}); err != nil {
		return err
	}
	d.note("complete", began)
	return nil
}

func (d *deep) note(verb string, began time.Time) time.Time {
	now := time.Now()
	t := d.seen[verb]
	t.add(now.Sub(began))
	d.seen[verb] = t
	return now
}

// depth measures 1M queued tasks against 10k, and 100k leased ones against 100.
func depth(ctx context.Context, b *bench) error {
	ten, million := 10_000, b.pick(1_000_000, 50_000)
	few, many := 100, b.pick(100_000, 10_000)
	if err := depths(ctx, b, "queued", [4]int{million, 0, ten, 0}); err != nil {
		return err
	}
	return depths(ctx, b, "leased", [4]int{ten, many, ten, few})
}

// depths measures a deep store against a shallow one. sizes are queued and
// leased of the deep one, then of the shallow one.
func depths(ctx context.Context, b *bench, what string, sizes [4]int) error {
	name := func(queued, leased int) string {
		if what == "leased" {
			return fmt.Sprintf("%d leased", leased)
		}
		return fmt.Sprintf("%d queued", queued)
	}
	shallow, err := dig(ctx, b, name(sizes[2], sizes[3]), sizes[2], sizes[3])
	if err != nil {
		return err
	}
	defer shallow.fillIn()
	large, err := dig(ctx, b, name(sizes[0], sizes[1]), sizes[0], sizes[1])
	if err != nil {
		return err
	}
	defer large.fillIn()
	rounds := map[string][2][]sample{}
	counted := func(i int, d *deep) contender {
		n := 0
		return contender{d.name, func(ctx context.Context) (sample, error) {
			s, err := d.round(ctx)
			if n++; err == nil && n > 1 {
				for _, verb := range depthVerbs {
					both := rounds[verb]
					q := quantiles(d.seen[verb], 0.5)
					q.More["filled in s"] = round(d.filled.Seconds(), 1)
					both[i] = append(both[i], q)
					rounds[verb] = both
				}
			}
			return s, err
		}}
	}
	if _, err := b.inTurn(ctx, "depth, acquire", "µs", counted(0, large), counted(1, shallow)); err != nil {
		return err
	}
	for _, verb := range depthVerbs {
		b.add(line{Scenario: "depth", Case: verb + ", " + what, Layer: "engine", Unit: "µs", Fsync: "off",
			Sides: []side{sideOf(large.name, rounds[verb][0]), sideOf(shallow.name, rounds[verb][1])},
			Must:  atMost(1.2)}, growth, large.server.version)
	}
	if what != "leased" {
		return nil
	}
	return endings(ctx, b, large, shallow)
}

// endings measures what Redis itself spends on a complete among many leases
// and among few.
func endings(ctx context.Context, b *bench, large, shallow *deep) error {
	in := func(d *deep) contender {
		e := &ending{plan: d.plan, server: d.server, engine: d.engine, sealer: d.sealer, batch: b.pick(1_000, 200)}
		return contender{d.name, e.round}
	}
	sides, err := b.inTurn(ctx, "depth, complete in Redis", "µs", in(large), in(shallow))
	if err != nil {
		return err
	}
	b.add(line{Scenario: "depth", Case: "complete in Redis, leased", Layer: "script", Unit: "µs", Fsync: "off",
		Sides: sides, Moonshot: atMost(1.2)}, growth, large.server.version)
	return nil
}
