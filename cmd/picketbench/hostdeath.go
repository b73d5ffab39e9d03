package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/reaper"
)

const hostdeathText = "the death of a machine until another worker holds the next lease on its task: its network is cut without a word, so nothing is given back, and its adapter is killed. Hosts die side by side, each at a random instant of its heartbeat's second. " +
	"*1/2/4*: the adapter is registered, heartbeats every second, is unhealthy after 2 s of silence and dead after 4 s; its lease would last 300 s. The other side has no record, so that only its lease tells: the shortest that is not for tests, 10 s. " +
	"*max* is the slowest of a round. Adapter, HTTP, reaper, engine, wake-up of a worker that waits already. As many workers that live, with the same thresholds and a lease each, stand by on the same two processors: the scenario fails when one of them is made dead or loses its lease."

// graveyard is a site whose hosts die, with workers beside them that do not.
type graveyard struct {
	engine  *orchestrator.Engine
	site    *site
	dir     string
	hosts   int // a round
	random  *rand.Rand
	named   int
	standBy []string // agents that must live
}

// hostdeath measures how long a dead host keeps its task.
func hostdeath(ctx context.Context, b *bench) error {
	server, err := startRedis(ctx, "off")
	if err != nil {
		return err
	}
	defer server.stop()
	store, sealer, err := openStore(ctx, server, true)
	if err != nil {
		return err
	}
	defer store.Close()
	dir, err := os.MkdirTemp(server.dir, "hosts")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	g := &graveyard{engine: store.Engine("default"), dir: dir, hosts: b.pick(8, 2), random: rand.New(rand.NewPCG(5, 6))}
	if g.site, err = openSite(ctx, store, sealer, 4*g.hosts); err != nil {
		return err
	}
	defer g.site.close()
	stop, err := g.reap(ctx)
	if err != nil {
		return err
	}
	defer stop()
	leave, err := g.gather(ctx)
	if err != nil {
		return err
	}
	defer leave()
	sides, err := b.inTurn(ctx, "hostdeath", "s",
		contender{"1/2/4", func(ctx context.Context) (sample, error) { return g.round(ctx, true) }},
		contender{"no record, lease of 10 s", func(ctx context.Context) (sample, error) { return g.round(ctx, false) }})
	if err != nil {
		return err
	}
	if err := g.expectAlive(ctx); err != nil {
		return err
	}
	b.add(line{
		Scenario: "hostdeath",
		Case:     "p50",
		Layer:    "http",
		Unit:     "s",
		Fsync:    "off",
		Sides:    sides,
		Must:     under(20),
		Moonshot: under(5),
	}, faster, server.version)
	b.add(line{
		Scenario: "hostdeath",
		Case:     "max",
		Layer:    "http",
		Unit:     "s",
		Fsync:    "off",
		Sides:    both(sides, "max"),
		Must:     under(20),
		Moonshot: under(5),
	}, faster, server.version)
	return nil
}

// reap keeps the namespace honest.
func (g *graveyard) reap(ctx context.Context) (stop func(), err error) {
	r, err := reaper.New(reaper.Config{
		Namespaces: map[string]reaper.Sweeper{"default": g.engine},
		Log:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() { cancel(); <-ended }, nil
}

// gather starts the workers that stand by, each with a lease.
func (g *graveyard) gather(ctx context.Context) (leave func(), err error) {
	var all []*adapter.Adapter
	var running sync.WaitGroup
	leave = func() {
		for _, a := range all {
			a.ReleaseNow()
		}
		running.Wait()
	}
	for i := range g.hosts {
		p := hostPlan{
			URL:        g.site.client.URL(),
			Key:        g.site.client.Key().Reveal(),
			Name:       fmt.Sprintf("standby-%d", i),
			Registered: true,
		}
		p.Dir = filepath.Join(g.dir, p.Name)
		a, err := adapter.New(p.config())
		if err == nil {
			all, g.standBy = append(all, a), append(g.standBy, p.Name)
			running.Go(func() { _ = a.Run(ctx) })
			_, err = g.occupy(ctx, p.Name, 300)
		}
		if err != nil {
			leave()
			return nil, err
		}
	}
	return leave, nil
}

// occupy submits a task of a role and waits until its agent runs.
func (g *graveyard) occupy(ctx context.Context, role string, window int) (picket.Task, error) {
	backoff := 0
	task, err := g.engine.Submit(ctx, asBench, picket.TaskSpec{Title: role, Role: role, Review: picket.ReviewByNone,
		LeaseWindowSeconds: &window, Retry: &picket.Retry{BackoffSeconds: &backoff}})
	if err != nil {
		return task, err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		is, err := g.engine.Task(ctx, task.TaskID)
		if err != nil {
			return task, err
		}
		if is.CurrentRun != nil && is.CurrentRun.Containment != "" {
			return is, nil
		}
		select {
		case <-ctx.Done():
			return task, ctx.Err()
		case <-tick.C:
		}
	}
}

// round lets some hosts die and notes how long each kept its task.
func (g *graveyard) round(ctx context.Context, registered bool) (sample, error) {
	var mu sync.Mutex
	var took times
	var failed []error
	var dying sync.WaitGroup
	for range g.hosts {
		g.named++
		name, phase := fmt.Sprintf("host-%d", g.named), time.Duration(g.random.Int64N(int64(time.Second)))
		dying.Go(func() {
			d, err := g.one(ctx, name, registered, phase)
			mu.Lock()
			defer mu.Unlock()
			if took.add(d); err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	dying.Wait()
	seconds := make(times, len(took))
	for i, v := range took {
		seconds[i] = v / 1e6
	}
	s := quantiles(seconds, 0.5)
	s.More["max"] = round(seconds.at(1), 3)
	return s, errors.Join(failed...)
}

// one is the death of one host.
func (g *graveyard) one(ctx context.Context, name string, registered bool,
	phase time.Duration) (took time.Duration, err error) {
	window := 300
	if !registered {
		window = 10
	}
	h, err := boot(g.site, name, g.dir, registered)
	if err != nil {
		return 0, err
	}
	defer func() {
		h.die()
		err = errors.Join(err, h.bury(ctx))
	}()
	task, err := g.occupy(ctx, name, window)
	if err != nil {
		return 0, err
	}
	type granted struct {
		leases []picket.Lease
		at     time.Time
		err    error
	}
	next := make(chan granted, 1)
	go func() {
		wait := 50
		l, err := g.site.client.Leases.Acquire(ctx,
			picket.AcquireRequest{AgentID: name + "-next", Role: name, WaitSeconds: &wait})
		next <- granted{l, time.Now(), err}
	}()
	time.Sleep(phase)
	began := time.Now()
	h.die()
	got := <-next
	if got.err != nil || len(got.leases) != 1 {
		return 0, fmt.Errorf("the next worker got %d leases: %w", len(got.leases), got.err)
	}
	l := got.leases[0]
	if l.TaskID != task.TaskID || l.FencingToken <= task.FencingToken {
		return 0, fmt.Errorf("the next lease is of task %s, token %d", l.TaskID, l.FencingToken)
	}
	_, err = adapter.NewProxy(l, g.site.client.URL(), g.site.http).Complete(ctx, output, "")
	return got.at.Sub(began), err
}

// expectAlive looks for workers that were lost though they lived.
func (g *graveyard) expectAlive(ctx context.Context) error {
	for _, id := range g.standBy {
		for after := int64(0); ; {
			page, err := g.engine.Events(ctx, picket.EventQuery{Agent: id, After: after, Limit: 1000})
			if err != nil {
				return err
			}
			for _, ev := range page.Events {
				after = ev.Seq
				if ev.NewStatus == picket.AgentDead || ev.Type == picket.EventLeaseExpired {
					return fmt.Errorf("%s lived and was fenced off: event %d %s %s", id, ev.Seq, ev.Type, ev.Reason)
				}
			}
			if len(page.Events) == 0 {
				break
			}
		}
	}
	return nil
}
