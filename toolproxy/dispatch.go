package toolproxy

import (
	"context"
	"errors"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// errLeaseEnded is why a call with external effects was cut off.
var errLeaseEnded = errors.New("the lease of the call ended")

// dispatchAndSettle makes a reserved call and settles it.
func (p *Proxy) dispatchAndSettle(ctx context.Context, door Backend, held picket.LeaseCredential, m MeteredCall,
	priced callPrice,
	r picket.Reservation, deadline time.Time) (MeteredResult, error) {
	d, callErr := p.runDispatch(ctx, door, held, m, r, deadline)
	s := picket.Settlement{
		CallID:  r.CallID,
		TaskID:  r.TaskID,
		Nonce:   r.Nonce,
		Outcome: outcomeOf(d, callErr),
		Result:  d.Result,
		Detail:  d.Detail,
	}
	switch s.Outcome {
	case picket.CallUndispatched:
	case picket.CallUncertain:
		s.Cost = r.Reserved
	default:
		s.Cost = priced.cost(d)
	}
	settled, err := p.settle(ctx, door, s)
	if callErr != nil {
		return MeteredResult{}, p.callRefusal(m.Tool, s, callErr)
	}
	if err != nil {
		// The call was made and its answer is here: it is not kept from the agent.
		// The reservation settles automatically at its deadline.
		p.log.WarnContext(ctx, "a call could not be settled", "tool", m.Tool, "task", held.TaskID, "run", held.RunID,
			"call", r.CallID, "err", err)
		settled = picket.Settled{Cost: s.Cost, Available: r.Available}
	}
	return MeteredResult{Result: d.Result, Cost: settled.Cost, Available: settled.Available, Nudge: r.Nudge}, nil
}

// runDispatch dispatches within everything that ends a call. A call with a key is
// finished though its caller goes away: who comes with the key again gets the
// answer.
func (p *Proxy) runDispatch(ctx context.Context, door Backend, held picket.LeaseCredential, m MeteredCall,
	r picket.Reservation,
	deadline time.Time) (d DispatchResult, err error) {
	if m.Key != "" {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if m.Effects == picket.EffectsExternal {
		var leave func()
		ctx, leave = p.leaseEnds.track(ctx, door, held, p.log)
		defer leave()
	}
	if err := ctx.Err(); err != nil {
		return DispatchResult{}, NotSent(context.Cause(ctx))
	}
	d, err = m.Dispatch(ctx, r)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = interruptedError{err, cause}
	}
	return d, err
}

// interruptedError is the error of a dispatch whose context had ended, and why.
type interruptedError struct {
	err   error
	cause error
}

func (c interruptedError) Error() string   { return c.err.Error() }
func (c interruptedError) Unwrap() []error { return []error{c.err, c.cause} }

func outcomeOf(d DispatchResult, err error) picket.CallOutcome {
	var never notSentError
	switch {
	case errors.As(err, &never):
		return picket.CallUndispatched
	case err != nil:
		return picket.CallUncertain
	case d.Failed:
		return picket.CallFailed
	}
	return picket.CallDone
}

// settle tries until it is known that the call is booked, within bounds.
func (p *Proxy) settle(ctx context.Context, purse reservationStore,
	s picket.Settlement) (out picket.Settled, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if len(s.Result) > picket.MaxResult {
		s.Result = nil
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		out, err = purse.Settle(ctx, s)
		code := picket.CodeOf(err)
		if err == nil || !errors.Is(err, picket.ErrUnknown) && code != picket.CodeUnavailable {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-time.After(wait):
		}
	}
}

// callRefusal is what an agent is told of a call that gave no answer, what it
// was charged included.
func (p *Proxy) callRefusal(tool string, s picket.Settlement, err error) error {
	var refusal *picket.Error
	switch {
	case errors.Is(err, errLeaseEnded):
		refusal = picket.Refuse(picket.CodeLeaseReleased, "Stop writing and exit: the lease has ended.",
			"the call of %s was cut off, for its lease ended", tool)
	case errors.As(err, &refusal):
	case errors.Is(err, context.DeadlineExceeded):
		refusal = picket.Refuse(picket.CodeUpstreamTimeout, "Look whether it took effect before you call it again.",
			"%s did not answer in time", tool)
	default:
		refusal = picket.Refuse(picket.CodeUpstream, "Look whether it took effect before you call it again.",
			"%s did not answer", tool).WithCause(err)
	}
	told := *refusal
	told.Facts = map[string]any{}
	for k, v := range refusal.Facts {
		told.Facts[k] = v
	}
	return told.With("tool", tool).With("outcome", string(s.Outcome)).With("charged", charged(s))
}

func charged(s picket.Settlement) budget.Envelope {
	if s.Outcome == picket.CallUndispatched {
		return budget.Envelope{}
	}
	return s.Cost
}
