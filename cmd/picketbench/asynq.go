package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

// asynqLife is asynq's enqueue and process: three transitions a task (enqueue,
// dequeue, done). It gets one server process with as many workers as ours and
// looks for work every millisecond instead of every second, its best setting
// here.
func asynqLife(ctx context.Context, p plan, r *redisServer) (sample, error) {
	opt := asynq.RedisClientOpt{Network: "unix", Addr: r.socket, PoolSize: p.Workers}
	client := asynq.NewClient(opt)
	defer client.Close()
	server := asynq.NewServer(opt,
		asynq.Config{Concurrency: p.Workers, TaskCheckInterval: time.Millisecond, LogLevel: asynq.FatalLevel})
	all := make(chan struct{})
	var processed atomic.Int64
	if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if processed.Add(1) == int64(p.Tasks) {
			close(all)
		}
		return nil
	})); err != nil {
		return sample{}, fmt.Errorf("start server: %w", err)
	}
	defer server.Shutdown()
	before, err := r.look(ctx)
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	task := asynq.NewTask("life", payload(p))
	if err := spread(p, func() error {
		_, err := client.EnqueueContext(ctx, task)
		return err
	}); err != nil {
		return sample{}, fmt.Errorf("enqueue: %w", err)
	}
	select {
	case <-all:
	case <-ctx.Done():
		return sample{}, ctx.Err()
	}
	took := time.Since(began)
	after, err := r.look(ctx)
	if err != nil {
		return sample{}, err
	}
	return lifeSample(p.Tasks, took, before, after), nil
}

// payload is a JSON string of the planned size.
func payload(p plan) []byte {
	b := make([]byte, max(p.Payload, 2))
	for i := range b {
		b[i] = 'x'
	}
	b[0], b[len(b)-1] = '"', '"'
	return b
}

// spread calls do once for every task, from as many goroutines as there are
// workers, and returns the first error.
func spread(p plan, do func() error) error {
	var left atomic.Int64
	left.Store(int64(p.Tasks))
	errs := make(chan error, p.Workers)
	var group sync.WaitGroup
	for range p.Workers {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	return <-errs
}
