package adapter

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// Run leases tasks and runs them until ctx is cancelled, which drains: no new
// leases are taken and what runs is left to finish. It returns nil after a
// drain, and an error when the orchestrator refuses the adapter for good, such
// as for a revoked key.
func (a *Adapter) Run(ctx context.Context) error {
	a.cfg.sweep(time.Now())
	runs, stop := a.killable(context.WithoutCancel(ctx))
	defer stop()
	asking, stopAsking := context.WithCancel(ctx)
	defer stopAsking()
	defer context.AfterFunc(runs, stopAsking)()
	var group sync.WaitGroup
	defer group.Wait()
	slots := make(chan struct{}, a.cfg.Max) // one token per running lease
	for {
		free, err := takeSlots(asking, slots)
		if err != nil {
			return nil
		}
		leases, err := a.acquire(asking, free)
		if err != nil {
			if asking.Err() != nil {
				return nil
			}
			return err
		}
		for range free - len(leases) {
			<-slots
		}
		for _, lease := range leases {
			group.Go(func() {
				defer func() { <-slots }()
				a.runLease(runs, lease)
			})
		}
	}
}

// takeSlots waits for a free slot and takes all that are free.
func takeSlots(ctx context.Context, slots chan struct{}) (int, error) {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for n := 1; ; n++ {
		select {
		case slots <- struct{}{}:
		default:
			return n, ctx.Err()
		}
	}
}

// acquire asks until at least one lease is granted. A request whose reply was
// lost is repeated with the same key, so that its leases are not lost with it.
func (a *Adapter) acquire(ctx context.Context, n int) ([]picket.Lease, error) {
	const least, most = 250 * time.Millisecond, 15 * time.Second
	once, wait := newULID(time.Now()), least
	for {
		asked := time.Now()
		leases, err := a.client.Acquire(ctx, a.cfg.request(n), once)
		switch {
		case ctx.Err() != nil && len(leases) == 0:
			return nil, ctx.Err()
		case err == nil && len(leases) > 0:
			return leases, nil
		case err == nil && time.Since(asked) > time.Second:
			once, wait = newULID(time.Now()), least
			continue
		case err != nil && !errors.Is(err, picket.ErrUnknown): // the next try stands for itself
			once = newULID(time.Now())
			if !again(err) && !lost(err) && !errors.Is(err, picket.CodeInternal) {
				return nil, err
			}
		case err == nil:
			once = newULID(time.Now())
		}
		if err != nil {
			a.cfg.Log.Warn("no lease yet", "agent", a.cfg.AgentID, "err", err)
		}
		if !sleep(ctx, max(wait/2+rand.N(wait), retryAfter(err))) {
			return nil, ctx.Err()
		}
		wait = min(2*wait, most)
	}
}

func retryAfter(err error) time.Duration {
	var e *picket.Error
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}

// ReleaseNow ends every run at once: process trees are killed and leases given
// back with class released. Run takes no more leases and returns.
func (a *Adapter) ReleaseNow() { a.killed() }

// killable is ctx, ended by ReleaseNow too.
func (a *Adapter) killable(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-a.kill:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// RunLease runs one lease to its end. Cancelling ctx, or ReleaseNow, kills the
// process tree and gives the lease back with class released. The error says
// why the agent could not be started or its end not be reported; the result is
// valid beside it.
func (a *Adapter) RunLease(ctx context.Context, lease picket.Lease) (Result, error) {
	ctx, stop := a.killable(ctx)
	defer stop()
	return a.runLease(ctx, lease)
}

func (a *Adapter) runLease(ctx context.Context, lease picket.Lease) (Result, error) {
	r := a.newRun(lease)
	r.log.Info("lease acquired")
	r.tell(Event{Kind: EventAcquired, Lease: &lease, ExpiresAt: lease.LeaseExpiresAt, Remaining: r.firstWindow()})
	err := r.do(ctx)
	r.writeExit()
	if err != nil {
		r.log.Error("run ended with an error", "ending", r.result.Ending, "err", err)
	} else {
		r.log.Info("run ended", "ending", r.result.Ending, "class", r.result.Exit.Class)
	}
	result := r.result
	r.tell(Event{Kind: EventEnded, Result: &result, Err: err})
	return result, err
}
