package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/orchestrator"
)

const killText = "An agent's process gets SIGKILL. The time ends when another worker holds the next lease of its task. " +
	"In between, adapter, HTTP, tool proxy and engine do their work, and a worker that waits is woken. " +
	"The process is held in the best way of the machine, through a shim, and by the process group alone. " +
	"The task lists crash in retry.on. The other side is one round trip of a bare EVALSHA on the same " +
	"Redis (p50, plain client). A queue that learns of a crash only when a lease runs out needs its whole " +
	"window, which is a constant: 30 s and a sweep each minute at asynq."

// killing is a site, the worker whose agent is killed and the one that waits.
type killing struct {
	engine *orchestrator.Engine
	site   *site
	agents map[string]*adapter.Adapter // by how they hold their process
	pids   chan int                    // of launched agents
	raw    *rawClient
	sha    string
	kills  int // a round
	seen   times
}

// kill measures the way from a dead agent to the next holder.
func kill(ctx context.Context, b *bench) error {
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
	k := &killing{engine: store.Engine("default"), pids: make(chan int, 1), kills: b.pick(200, 20)}
	if k.site, err = openSite(ctx, store, sealer, 4); err != nil {
		return err
	}
	defer k.site.close()
	if k.raw, err = newRawClient(server, false); err != nil {
		return err
	}
	defer k.raw.close()
	if k.sha, err = k.raw.load(ctx, "return 1"); err != nil {
		return fmt.Errorf("load script: %w", err)
	}
	best, _ := process.BestContainment()
	levels := slices.Compact([]string{best, picket.ContainmentGroup})
	k.agents = map[string]*adapter.Adapter{}
	var contenders []contender
	for _, level := range levels {
		if k.agents[level], err = k.hire(level, filepath.Join(server.dir, "adapter-"+level)); err != nil {
			return err
		}
		contenders = append(contenders,
			contender{"kill to lease, " + level,
				func(ctx context.Context) (sample, error) { return k.round(ctx, level) }})
	}
	sides, err := b.inTurn(ctx, "kill", "ms", append(contenders, contender{"bare EVALSHA", k.bare})...)
	if err != nil {
		return err
	}
	bare := sides[len(levels)]
	for i, level := range levels {
		for _, c := range []struct {
			quantile string
			must     *goal
			moonshot *goal
		}{{"p50", nil, nil}, {"p99", under(50), under(5)}} {
			b.add(line{Scenario: "kill", Case: level + ", " + c.quantile, Layer: "http", Unit: "ms", Fsync: "off",
				Sides: []side{byQuantile(sides[i], c.quantile), bare}, Must: c.must, Moonshot: c.moonshot}, growth,
				server.version)
		}
	}
	return nil
}

// hire makes the worker whose agents are killed.
func (k *killing) hire(level, dir string) (*adapter.Adapter, error) {
	return adapter.New(adapter.Config{
		BaseURL: k.site.client.URL(), Key: k.site.client.Key(), HTTP: k.site.http, AgentID: "agent_killed",
		Command: []string{"sleep", "1000"}, StateDir: dir, Containment: level, OnEvent: func(e adapter.Event) {
			if e.Kind == adapter.EventLaunched {
				k.pids <- e.PID
			}
		},
	})
}

// bare is a round of round trips that do nothing.
func (k *killing) bare(ctx context.Context) (sample, error) {
	k.seen = nil
	for range 2_000 {
		began := time.Now()
		if err := k.raw.evalsha(ctx, k.sha, []string{"bare"}); err != nil {
			return sample{}, err
		}
		k.seen.add(time.Since(began))
	}
	return quantiles(k.seen.millis(), 0.5), nil
}

func (k *killing) round(ctx context.Context, level string) (sample, error) {
	var took times
	for range k.kills {
		d, err := k.one(ctx, level)
		if err != nil {
			return sample{}, err
		}
		took.add(d)
	}
	return quantiles(took.millis(), 0.99), nil
}

// one kills one agent.
func (k *killing) one(ctx context.Context, level string) (time.Duration, error) {
	spec := picket.TaskSpec{
		Title:  "kill",
		Review: picket.ReviewByNone,
		Retry:  &picket.Retry{On: []picket.ExitClass{picket.ExitCrash}},
	}
	task, err := k.engine.Submit(ctx, asBench, spec)
	if err != nil {
		return 0, err
	}
	first, err := k.lease(ctx, "agent_killed", 0)
	if err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := k.agents[level].RunLease(ctx, first)
		ended <- err
	}()
	var pid int
	select {
	case pid = <-k.pids:
	case err := <-ended:
		return 0, fmt.Errorf("no agent was launched: %w", err)
	}
	type granted struct {
		lease picket.Lease
		at    time.Time
		err   error
	}
	next := make(chan granted, 1)
	go func() {
		l, err := k.lease(ctx, "agent_next", 50)
		next <- granted{l, time.Now(), err}
	}()
	if err := awaitWaiter(ctx, k.engine); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return 0, fmt.Errorf("kill agent: %w", err)
	}
	got := <-next
	if got.err != nil {
		return 0, got.err
	}
	if got.lease.TaskID != task.TaskID || got.lease.FencingToken <= first.FencingToken {
		return 0, fmt.Errorf("the next lease is of task %s, token %d", got.lease.TaskID, got.lease.FencingToken)
	}
	if err := <-ended; err != nil {
		return 0, err
	}
	_, err = adapter.NewProxy(got.lease, k.site.client.URL(), k.site.http).Complete(ctx, output, "")
	return got.at.Sub(began), err
}

// lease acquires one lease over HTTP.
func (k *killing) lease(ctx context.Context, agent string, wait int) (picket.Lease, error) {
	leases, err := k.site.client.Leases.Acquire(ctx, picket.AcquireRequest{AgentID: agent, WaitSeconds: &wait})
	if err != nil {
		return picket.Lease{}, fmt.Errorf("acquire: %w", err)
	}
	if len(leases) != 1 {
		return picket.Lease{}, fmt.Errorf("%d leases granted", len(leases))
	}
	return leases[0], nil
}

// awaitWaiter returns when a worker waits for a lease.
func awaitWaiter(ctx context.Context, e *orchestrator.Engine) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		s, err := e.Stats(ctx)
		if err != nil || s.Waiters > 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// millis are the same durations in milliseconds.
func (t times) millis() times {
	out := make(times, len(t))
	for i, v := range t {
		out[i] = v / 1000
	}
	return out
}
