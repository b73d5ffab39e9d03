package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/picket-dev/picket"
)

// errNoMoreLeases ends a wait that nothing can come of: the leases that this request
// was given have ended, or its agent takes no more.
var errNoMoreLeases = errors.New("this request gets no more leases")

// Advance completes a lease and acquires the next in one step: the worker that
// goes from task to task saves a round trip each time. Both are done or, when
// an error comes back before the wait, neither. The same call again tells the
// same state; leases it gave are shown again under by.Once, else given anew.
func (e *Engine) Advance(ctx context.Context, held picket.LeaseCredential, by picket.Caller,
	req picket.AdvanceRequest) (picket.Advanced, error) {
	who, err := credentialArgs(held)
	if err != nil {
		return picket.Advanced{}, err
	}
	if err := req.Acquire.Normalize(); err != nil {
		return picket.Advanced{}, err
	}
	complete := picket.Completion{Output: req.Output, Summary: req.Summary, Children: req.Children}
	args, err := completionArgs(complete)
	if err != nil {
		return picket.Advanced{}, err
	}
	var done picket.Advanced
	next := req.Acquire
	done.Leases, err = e.waitForLease(ctx, by, next, func(waiter string, wait time.Duration) ([]picket.Lease, error) {
		if done.State != "" {
			return e.acquireMore(ctx, by, next, waiter, wait)
		}
		state, leases, how, err := e.advance(ctx, held, append(who, args...), by, next, waiter, wait)
		done.State = state
		switch {
		case err != nil:
			return nil, err
		case how == grantExhausted:
			return e.acquireMore(ctx, by, next, waiter, wait)
		case how == grantBarred, how == grantRepeated && len(leases) == 0:
			return nil, errNoMoreLeases
		}
		return leases, nil
	})
	if errors.Is(err, errNoMoreLeases) {
		return done, nil
	}
	if !errors.Is(err, picket.CodeStoreFull) {
		return done, err
	}
	// A full store lets leases end, and grants none.
	done.State, err = e.Complete(ctx, held, complete)
	return done, err
}

// OpenLeaseToken opens the lease token of a request.
func (e *Engine) OpenLeaseToken(req picket.AdvanceRequest) (picket.LeaseCredential, error) {
	held, err := e.store.cfg.Sealer.OpenLeaseToken(req.LeaseToken.Reveal())
	if err != nil || held.Namespace != e.namespace {
		return picket.LeaseCredential{}, picket.Invalid("/leaseToken",
			"Send the leaseToken of a lease of your key's namespace; it starts with "+picket.LeaseTokenPrefix+".",
			"the lease token is malformed or was not made here").WithCause(err)
	}
	if held.Side == picket.SideAgent {
		return picket.LeaseCredential{}, picket.Refuse(picket.CodeForbidden,
			"Send the leaseToken of the lease. An agent completes its task with the tool mark_complete.",
			"leaseToken is the credential of an agent, and only an adapter may advance")
	}
	held.Fence = req.FencingToken
	return held, nil
}

// How the leases of an advance came about, where that matters.
const (
	grantRepeated  = 2 // they are those of the same request made before
	grantExhausted = 3 // there are none before a grant has brought a new floor
	grantBarred    = 4 // there are none for this agent: it drains, is gone or is another key's
)

// acquireMore acquires more work after a task was completed. If the agent or its key
// may not get more, it returns no leases and no error: with an error the caller
// would lose the answer to the completion.
func (e *Engine) acquireMore(ctx context.Context, by picket.Caller, req picket.AcquireRequest, waiter string,
	wait time.Duration) ([]picket.Lease, error) {
	leases, err := e.grant(ctx, by, req, waiter, wait)
	switch picket.CodeOf(err) {
	case picket.CodeAgentDraining, picket.CodeAgentGone, picket.CodeForbidden, picket.CodeUnauthenticated:
		return nil, errNoMoreLeases
	}
	return leases, err
}

func (e *Engine) advance(ctx context.Context, held picket.LeaseCredential, complete []any, by picket.Caller,
	req picket.AcquireRequest, waiter string,
	wait time.Duration) (state picket.TaskState, leases []picket.Lease, how int64, err error) {
	var floor int64
	got, err := e.retryReclaimed(ctx, held, func() (got any, err error) {
		got, floor, err = e.runGrant(ctx, "advance", complete, by, req, waiter, wait)
		return got, err
	})
	if err != nil {
		return "", nil, 0, err
	}
	r := &reply{script: "advance"}
	l := r.list(got)
	grants := r.at(l, 1)
	leases, how = e.decodeLeases(r, grants, floor, req.SeparateCredentials), r.int(r.at(r.list(grants), 0))
	return picket.TaskState(r.text(r.at(l, 0))), leases, how, r.err
}
