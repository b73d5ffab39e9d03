package adapter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// Run leases tasks and runs them until ctx is cancelled or the registry asks for
// it, which drains: no new leases are taken, what runs is left to finish, and
// the adapter leaves the registry. First it ends what adapters that died have
// left in StateDir, and registers. One that the registry takes for dead ends all
// its work, registers again and goes on. It returns nil after a drain, and an
// error when the orchestrator refuses the adapter permanently, such as for a
// revoked key, or when an operator has removed it ([picket.CodeAgentGone]).
func (a *Adapter) Run(ctx context.Context) error {
	a.cfg.deleteOldRuns(time.Now())
	runs, stop := a.withReleaseNow(context.WithoutCancel(ctx))
	defer stop()
	var group sync.WaitGroup
	defer group.Wait()
	asking, stopAsking := context.WithCancel(ctx)
	defer stopAsking()
	defer context.AfterFunc(runs, stopAsking)()
	clean := a.sweepOrphans(asking, &group)
	group.Go(func() { a.collectWorkspaces(asking) })
	// Workers that were started at once, such as after a deployment, do not all
	// ask at once. Anyone who serves one agent id competes with nobody.
	if !a.cfg.PinnedOnly && !sleep(asking, a.cfg.jitter(startJitter)) {
		return nil
	}
	w := &dispatcher{
		Adapter:       a,
		runsCtx:       runs,
		acquireCtx:    asking,
		stopAcquiring: stopAsking,
		orphansEnded:  clean,
		group:         &group,
		slots:         make(chan struct{}, a.cfg.Max),
	}
	return w.serve()
}

// acquireAndStart takes leases and starts their runs, under a session, until ctx ends.
func (w *dispatcher) acquireAndStart(ctx context.Context, under *registration) error {
	w.cfg.Log.Info("waiting for tasks", "agent", w.cfg.AgentID, "server", w.cfg.BaseURL)
	for {
		if err := under.waitUntilAcked(ctx); err != nil {
			return err
		}
		free, err := takeSlots(ctx, w.slots)
		if err != nil {
			return err
		}
		w.acquiring.Store(int32(free))
		leases, err := w.acquire(ctx, free, under.incarnationOrZero())
		w.acquiring.Store(0)
		for range free - len(leases) {
			<-w.slots
		}
		if err != nil {
			return err
		}
		for _, lease := range leases {
			w.start(lease, under)
		}
	}
}

// startJitter is how far the first requests of workers started together lie apart.
const startJitter = 250 * time.Millisecond

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
func (a *Adapter) acquire(ctx context.Context, n int, incarnation int64) ([]picket.Lease, error) {
	const least, most = 250 * time.Millisecond, 15 * time.Second
	// A key stands for one request to the letter: with another wait it would be
	// another one.
	var once string
	var req picket.AcquireRequest
	another := func() {
		once, req = newULID(time.Now()), a.cfg.requestWithJitter(n)
		req.Incarnation, req.SeparateCredentials = incarnation, !a.noSeparateCredentials.Load()
	}
	another()
	for wait := least; ; {
		asked := time.Now()
		leases, err := a.client.Acquire(ctx, req, once)
		switch {
		case ctx.Err() != nil && len(leases) == 0:
			return nil, ctx.Err()
		case err == nil && len(leases) > 0:
			return leases, nil
		case err == nil && time.Since(asked) > time.Second:
			another()
			wait = least
			continue
		case lacksSeparateCredentials(err):
			a.noSeparateCredentials.Store(true)
			a.cfg.Log.Warn("the server is an earlier version, so adapter and agent share one credential; update the server", "server", a.cfg.BaseURL)
			another()
			continue
		case err != nil && !errors.Is(err, picket.ErrUnknown): // the next try stands for itself
			another()
			if !isRetryable(err) && !leaseLost(err) && !errors.Is(err, picket.CodeInternal) {
				return nil, err
			}
		case err == nil:
			another()
		}
		if err != nil {
			a.cfg.Log.Warn("no lease yet", "agent", a.cfg.AgentID, "err", err)
		}
		if !sleep(ctx, max(wait/2, retryAfter(err))+a.cfg.jitter(wait)) {
			return nil, ctx.Err()
		}
		wait = min(2*wait, most)
	}
}

// lacksSeparateCredentials reports whether the server does not know separateCredentials.
func lacksSeparateCredentials(err error) bool {
	var e *picket.Error
	return errors.As(err, &e) && e.Code == picket.CodeValidation && e.Facts["field"] == "/separateCredentials"
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
func (a *Adapter) ReleaseNow() { a.closeReleasing() }

// withReleaseNow is ctx, ended by ReleaseNow too.
func (a *Adapter) withReleaseNow(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-a.releasing:
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
	ctx, stop := a.withReleaseNow(ctx)
	defer stop()
	return a.runLease(ctx, lease, nil)
}

// runLease runs a lease in a slot; nil is a run that stands for itself.
func (a *Adapter) runLease(ctx context.Context, lease picket.Lease, s *slot) (Result, error) {
	r := a.newRun(lease, s)
	ctx, r.stop = context.WithCancelCause(ctx)
	defer r.stop(nil)
	r.registration.addRun(r)
	defer r.registration.removeRun(r)
	defer r.markProcessesGone()
	r.log.Info("lease acquired")
	r.emit(Event{Kind: EventAcquired, Lease: &lease, ExpiresAt: lease.LeaseExpiresAt, Remaining: r.unconfirmedTTL()})
	err := r.execute(ctx)
	r.writeExit()
	r.unlockRunDir()
	if err != nil {
		r.log.Error("run ended with an error", "ending", r.result.Ending, "err", err)
	} else {
		r.log.Info("run ended", "ending", r.result.Ending, "class", r.result.Exit.Class)
	}
	result := r.result
	r.emit(Event{Kind: EventEnded, Result: &result, Err: err})
	return result, err
}
