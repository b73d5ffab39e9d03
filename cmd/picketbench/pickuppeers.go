package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// handled notes that a peer's handler has come to its end; the worker is idle
// a moment later.
type handled chan struct{}

const settleDown = 5 * time.Millisecond

// idle returns when the last handler has ended; none has at the beginning.
func (h handled) idle(ctx context.Context) error {
	select {
	case <-h:
		return pause(ctx, settleDown)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startAsynq starts an asynq server with one worker.
func startAsynq(_ context.Context, b *bench, r *redisServer, fastest bool) (*starter, func(), error) {
	mouth, err := openMouth(r.dir)
	if err != nil {
		return nil, nil, err
	}
	opt := asynq.RedisClientOpt{Network: "unix", Addr: r.socket}
	cfg := asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel}
	s := &starter{
		name:   "asynq",
		pause:  time.Second,
		starts: b.pick(15, 3),
		cry:    mouth,
		random: rand.New(rand.NewPCG(1, 2)),
	}
	if fastest {
		cfg.TaskCheckInterval = time.Millisecond
		s.pause, s.starts = 50*time.Millisecond, b.pick(100, 10)
	}
	client, server := asynq.NewClient(opt), asynq.NewServer(opt, cfg)
	done := make(handled, 1)
	done <- struct{}{}
	if err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		defer func() { done <- struct{}{} }()
		return mouth.start(ctx)
	})); err != nil {
		return nil, nil, err
	}
	s.idle = done.idle
	s.submit = func(ctx context.Context) error {
		_, err := client.EnqueueContext(ctx, asynq.NewTask("pickup", payload(b.plan)))
		return err
	}
	return s, func() {
		server.Shutdown()
		client.Close()
		mouth.file.Close()
	}, nil
}

// startArgs are the arguments of a river job.
type startArgs struct {
	Input string `json:"input"`
}

func (startArgs) Kind() string { return "pickup" }

// startWorker works river jobs.
type startWorker struct {
	river.WorkerDefaults[startArgs]
	mouth *pipeMouth
	done  handled
}

func (w *startWorker) Work(ctx context.Context, _ *river.Job[startArgs]) error {
	defer func() { w.done <- struct{}{} }()
	return w.mouth.start(ctx)
}

// startRiver starts a PostgreSQL and a river client with one worker.
func startRiver(ctx context.Context, b *bench, r *redisServer, fastest bool) (*starter, func(), error) {
	pg, err := startPostgres(ctx)
	if err != nil {
		return nil, nil, err
	}
	mouth, err := openMouth(r.dir)
	if err != nil {
		pg.stop()
		return nil, nil, err
	}
	done := make(handled, 1)
	done <- struct{}{}
	client, err := riverClient(ctx, pg, &startWorker{mouth: mouth, done: done}, fastest)
	if err == nil {
		err = client.Start(ctx)
	}
	if err != nil {
		pg.stop()
		return nil, nil, err
	}
	b.peers = map[string]string{"postgresql": pg.version}
	s := &starter{
		name:   "river",
		pause:  time.Second,
		starts: b.pick(30, 3),
		cry:    mouth,
		idle:   done.idle,
		random: rand.New(rand.NewPCG(1, 2)),
	}
	if fastest {
		s.pause, s.starts = 50*time.Millisecond, b.pick(100, 10)
	}
	input := string(payload(b.plan))
	s.submit = func(ctx context.Context) error {
		_, err := client.Insert(ctx, startArgs{Input: input}, nil)
		return err
	}
	return s, func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = client.StopAndCancel(stopping)
		pg.stop()
		mouth.file.Close()
	}, nil
}

// riverClient makes river's tables and a client on them.
func riverClient(ctx context.Context, pg *postgres, w river.Worker[startArgs],
	fastest bool) (*river.Client[pgx.Tx], error) {
	driver := riverpgxv5.New(pg.pool)
	tables, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if _, err := tables.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("make river's tables: %w", err)
	}
	cfg := &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
		Workers: river.NewWorkers(), Logger: slog.New(slog.DiscardHandler),
	}
	if fastest {
		cfg.FetchCooldown, cfg.FetchPollInterval = river.FetchCooldownMin, river.FetchPollIntervalMin
	}
	if err := river.AddWorkerSafely(cfg.Workers, w); err != nil {
		return nil, err
	}
	return river.NewClient(driver, cfg)
}
