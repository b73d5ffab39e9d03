package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
)

// A fill makes a store as large as a scenario wants it, through the same verbs
// that everybody uses.

// longWindow keeps a lease alive for as long as a scenario may take, in seconds.
const longWindow = picket.MaxWindow

// fillQueued submits n tasks from as many goroutines as there are workers.
func fillQueued(ctx context.Context, p plan, e *orchestrator.Engine, n int) error {
	p.Tasks = n
	return spread(p, func() error {
		_, err := e.Submit(ctx, asBench, fillSpec(p))
		for try := 1; errors.Is(err, picket.ErrUnknown) && try < fillTries; try++ {
			_, err = e.Submit(ctx, asBench, fillSpec(p)) // one task more at worst
		}
		return err
	})
}

// fillTries is how often a call of a fill is made when its reply is lost, which
// a busy machine does to a store that answers within a second.
const fillTries = 5

// fillSpec is a task that nobody reviews, whose lease holds for long and which
// is queued again at once whenever it ends.
func fillSpec(p plan) picket.TaskSpec {
	window, attempts, backoff := longWindow, 100, 0
	return picket.TaskSpec{
		Title: "fill", Input: payload(p), Review: picket.ReviewByNone, LeaseWindowSeconds: &window,
		Retry: &picket.Retry{MaxAttempts: &attempts, BackoffSeconds: &backoff},
	}
}

// fillLeased submits n tasks and leases that many, a hundred a call.
func fillLeased(ctx context.Context, p plan, e *orchestrator.Engine, sealer *seal.Sealer,
	n int) ([]picket.LeaseCredential, error) {
	if err := fillQueued(ctx, p, e, n); err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	return leaseAll(ctx, p, e, sealer, n)
}

// leaseAll leases n queued tasks, a hundred a call, two calls at a time: more
// would only wait for each other.
func leaseAll(ctx context.Context, p plan, e *orchestrator.Engine, sealer *seal.Sealer,
	n int) ([]picket.LeaseCredential, error) {
	const batch, callers = 100, 2
	held := make([]picket.LeaseCredential, n)
	var next atomic.Int64
	p.Workers, p.Tasks = callers, (n+batch-1)/batch
	err := spread(p, func() error {
		from := int(next.Add(batch)) - batch
		most := min(batch, n-from)
		leases, err := leaseSome(ctx, e, most)
		if err != nil {
			return err
		}
		for i, lease := range leases {
			if held[from+i], err = sealer.OpenLeaseToken(lease.LeaseToken.Reveal()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	return held, nil
}

// leaseSome leases n tasks in one call; a repeat after a lost reply gets the
// same leases.
func leaseSome(ctx context.Context, e *orchestrator.Engine, n int) ([]picket.Lease, error) {
	by := asBench
	by.Idempotency = picket.Idempotency{Key: rand.Text() + strings.Repeat("0", 38), Body: strings.Repeat("0", 64)}
	leases, err := e.Acquire(ctx, by, picket.AcquireRequest{Max: &n})
	for try := 1; errors.Is(err, picket.ErrUnknown) && try < fillTries; try++ {
		leases, err = e.Acquire(ctx, by, picket.AcquireRequest{Max: &n})
	}
	if err == nil && len(leases) != n {
		err = fmt.Errorf("%d leases granted, %d asked for", len(leases), n)
	}
	return leases, err
}

// each calls do for every held lease, from as many goroutines as there are
// workers.
func each(p plan, held []picket.LeaseCredential, do func(picket.LeaseCredential) error) error {
	var next atomic.Int64
	p.Tasks = len(held)
	return spread(p, func() error { return do(held[next.Add(1)-1]) })
}
