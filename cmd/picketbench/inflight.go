package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
)

const inflightText = "what ending one task costs Redis while many are being worked on: Picket's complete against asynq's done, p50 of the script's own time as Redis' slow log gives it. " +
	"Both sides stand on the same Redis with the same number of tasks in flight and 1 KiB of payload each; the ones that end were taken last on both, and asynq looks through its whole list wherever a task stands. " +
	"How Picket's own complete grows is a row of depth."

// inflight fills the store step by step and ends tasks at every size.
func inflight(ctx context.Context, b *bench) error {
	server, err := startRedis(ctx, "off")
	if err != nil {
		return err
	}
	defer server.stop()
	store, sealer, err := openStore(ctx, server, false)
	if err != nil {
		return err
	}
	defer store.Close()
	sizes := []int{100, 1_000, 10_000, b.pick(100_000, 20_000)}
	peer, err := startAsynqHolder(b.plan, server, sizes[len(sizes)-1])
	if err != nil {
		return err
	}
	defer peer.stop()
	ours := &ending{
		plan:   b.plan,
		server: server,
		engine: store.Engine("default"),
		sealer: sealer,
		batch:  b.pick(300, 100),
	}
	for _, n := range sizes {
		if err := ours.hold(ctx, n); err != nil {
			return err
		}
		if err := peer.hold(ctx, n); err != nil {
			return fmt.Errorf("asynq: %w", err)
		}
		sides, err := b.inTurn(ctx, fmt.Sprintf("inflight %d", n), "µs", contender{"picket", ours.round},
			contender{"asynq", func(ctx context.Context) (sample, error) { return peer.round(ctx, ours.batch) }})
		if err != nil {
			return err
		}
		l := line{
			Scenario: "inflight",
			Case:     fmt.Sprintf("%d in flight", n),
			Layer:    "script",
			Unit:     "µs",
			Fsync:    "off",
			Sides:    sides,
		}
		if n == sizes[len(sizes)-1] {
			l.Must = atLeast(50)
		}
		b.add(l, faster, server.version)
	}
	return nil
}

// ending is Picket's side: leases that are held, and some that end.
type ending struct {
	plan   plan
	server *redisServer
	engine *orchestrator.Engine
	sealer *seal.Sealer
	batch  int // tasks ended a round
	held   int
}

// hold brings the number of live leases to n.
func (e *ending) hold(ctx context.Context, n int) error {
	_, err := fillLeased(ctx, e.plan, e.engine, e.sealer, n-e.held)
	e.held = n
	return err
}

func (e *ending) round(ctx context.Context) (sample, error) {
	held, err := fillLeased(ctx, e.plan, e.engine, e.sealer, e.batch)
	if err != nil {
		return sample{}, err
	}
	ours := func(args []string) bool { return args[0] == "FCALL" && strings.HasPrefix(args[3], "pk:{") }
	alone := e.plan
	alone.Workers = 1 // calls of several workers would share batches
	runtime.GC()      // a collection during the calls would take processor time from Redis
	took, err := e.server.timed(ctx, e.batch, ours, func() error {
		return each(alone, held, func(h picket.LeaseCredential) error {
			_, err := e.engine.Complete(ctx, h, picket.Completion{Output: output})
			return err
		})
	})
	return quantiles(took, 0.5), err
}

// asynqHolder is an asynq server whose tasks of type hold do not end.
type asynqHolder struct {
	plan    plan
	redis   *redisServer
	client  *asynq.Client
	server  *asynq.Server
	release chan struct{}
	taken   atomic.Int64 // holds that have begun
	held    int
}

func startAsynqHolder(p plan, r *redisServer, most int) (*asynqHolder, error) {
	opt := asynq.RedisClientOpt{Network: "unix", Addr: r.socket, PoolSize: p.Workers}
	h := &asynqHolder{plan: p, redis: r, client: asynq.NewClient(opt), release: make(chan struct{})}
	h.server = asynq.NewServer(opt, asynq.Config{
		Concurrency:       most + p.Workers,
		TaskCheckInterval: 10 * time.Millisecond,
		ShutdownTimeout:   time.Millisecond,
		LogLevel:          asynq.FatalLevel,
	})
	handler := func(_ context.Context, t *asynq.Task) error {
		if t.Type() == "hold" {
			h.taken.Add(1)
			<-h.release
		}
		return nil
	}
	if err := h.server.Start(asynq.HandlerFunc(handler)); err != nil {
		h.client.Close()
		return nil, fmt.Errorf("start asynq: %w", err)
	}
	return h, nil
}

func (h *asynqHolder) enqueue(ctx context.Context, kind string, n int) error {
	p := h.plan
	p.Tasks = n
	task := asynq.NewTask(kind, payload(p), asynq.Timeout(24*time.Hour))
	return spread(p, func() error {
		_, err := h.client.EnqueueContext(ctx, task)
		return err
	})
}

// hold brings the number of tasks that are being worked on to n.
func (h *asynqHolder) hold(ctx context.Context, n int) error {
	if err := h.enqueue(ctx, "hold", n-h.held); err != nil {
		return err
	}
	h.held = n
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for h.taken.Load() < int64(n) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// round lets n tasks pass; only done touches the statistics of the day.
func (h *asynqHolder) round(ctx context.Context, n int) (sample, error) {
	done := func(args []string) bool {
		return strings.EqualFold(args[0], "EVALSHA") &&
			slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "asynq:{default}:processed:") })
	}
	runtime.GC()
	took, err := h.redis.timed(ctx, n, done, func() error { return h.enqueue(ctx, "pass", n) })
	return quantiles(took, 0.5), err
}

// stop ends the server without waiting for what it holds: Redis goes next.
func (h *asynqHolder) stop() {
	h.server.Shutdown()
	close(h.release)
	h.client.Close()
}
