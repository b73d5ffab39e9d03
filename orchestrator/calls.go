package orchestrator

import (
	"cmp"
	"context"
	"fmt"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/internal/text"
)

// Calls that cost money: what they may cost is reserved in the step that checks that
// the lease holds, and what they have cost is booked when they have ended.

// Bounds of a call.
const (
	maxCallTimeoutMs = 3_600_000 // of a call that nobody waits for
	maxCallDetail    = 256
	maxModelName     = 64
)

// maxCost is the largest amount that the store counts with: sums of a few stay
// under 2^53.
const maxCost = budget.Money(4_000_000 * 1_000_000_000)

var (
	callIDSyntax    = lazyregexp.New(`^[A-Za-z0-9_.-]{1,64}$`)
	toolNameSyntax  = lazyregexp.New(`^[A-Za-z0-9_./-]{1,128}$`)
	printableSyntax = lazyregexp.New(`^[!-~]{0,128}$`)
)

// checkAmount refuses an amount that no call costs.
func checkAmount(field string, e budget.Envelope) error {
	err := e.Check()
	if err == nil && e.USD > maxCost {
		err = fmt.Errorf("dollars are at most %s", maxCost)
	}
	if err != nil {
		return picket.Invalid(field, "Send an amount that is not negative and not beyond the largest one.", "%s: %v",
			field, err)
	}
	return nil
}

func checkCall(req picket.CallRequest) error {
	longest, kind := int64(maxCallTimeoutMs), "calls without external effects"
	if req.Effects == picket.EffectsExternal {
		longest, kind = picket.MaxExternalCall*1000, "calls with external effects"
	}
	switch {
	case !callIDSyntax().MatchString(req.CallID):
		return picket.Invalid("callId", "Send 1 to 64 letters, digits, '-', '_' or '.'.", "callId %q is not an id",
			req.CallID)
	case req.Nonce == "" || !printableSyntax().MatchString(req.Nonce) || !printableSyntax().MatchString(req.Hash) ||
		!printableSyntax().MatchString(req.PriceVersion):
		return picket.Invalid("nonce", "Send up to 128 printable characters; the nonce is not empty.",
			"nonce, hash or version of a call is not printable")
	case !toolNameSyntax().MatchString(req.Tool):
		return picket.Invalid("tool", "Send the name of a tool.", "%q is not a name of a tool", req.Tool)
	case req.Effects != picket.EffectsExternal && req.Effects != picket.EffectsNone:
		return picket.Invalid("effects", "Send none or external.", "effects are %q", req.Effects)
	case req.TimeoutMs < 1 || req.TimeoutMs > longest:
		return picket.Invalid("timeoutMs", fmt.Sprintf("Send 1 to %d.", longest),
			"the timeout is %d ms; %s take up to %d", req.TimeoutMs, kind, longest)
	}
	return checkAmount("reserve", req.Reserve)
}

// Reserve admits a call that costs money: the bound of its price is taken out of what the task has
// available, in the step that finds the lease to hold. The timeout counts from here on. The caller
// measures it from before its request. A repetition with the same nonce returns the same
// reservation. The same CallID with another nonce is refused with call_in_progress while the call
// is under way. After it, the stored answer is returned, or state_conflict if the outcome of the
// call is unknown. It is refused with paused, lease_ending (external effects, shortly before the
// deadline), call_repeated (after ten calls with the same Hash and no other call of a tool in
// between) and budget_exceeded, which takes and stores nothing.
func (e *Engine) Reserve(ctx context.Context, held picket.LeaseCredential,
	req picket.CallRequest) (picket.Reservation, error) {
	if err := checkCall(req); err != nil {
		return picket.Reservation{}, err
	}
	if held.OfSession() {
		return e.reserveForSession(ctx, held, req)
	}
	q := e.quotas()
	r := e.runHeld(ctx, held, "reserve", req.CallID, req.Nonce, req.Tool, req.Hash, req.Reserve.Tokens,
		int64(req.Reserve.USD), req.PriceVersion, boolArg(req.Effects == picket.EffectsExternal), req.TimeoutMs,
		boolArg(req.Keyed), boolArg(req.Probe), q.Calls, q.Answers, q.AnswerBytes, q.OpenCalls,
		text.OneLine(text.ValidHead(req.Model, maxModelName)))
	var v struct {
		Token     int64           `reply:"token"`
		Available budget.Envelope `reply:"available"`
		TTL       int64           `reply:"ttl"` // ms of the lease
		Nudge     string          `reply:"nudge"`
		Result    *string         `reply:"result"` // when the call was made before, and what it cost
		Cost      budget.Envelope `reply:"cost"`
	}
	r.Decode(&v)
	out := picket.Reservation{
		CallID:     req.CallID,
		TaskID:     held.TaskID,
		RunID:      held.RunID,
		Nonce:      req.Nonce,
		Token:      v.Token,
		Reserved:   req.Reserve,
		Available:  v.Available,
		LeaseTTLMs: v.TTL,
		Nudge:      r.nudge(v.Nudge),
	}
	if v.Result != nil {
		out.Replay = &picket.Replay{Result: picket.RawJSON(*v.Result), Cost: v.Cost}
		out.Reserved = budget.Envelope{}
	}
	return out, r.Err
}

// Settle books what a reserved call cost, exactly once: the same again answers the same. Where the
// outcome was uncertain a later true one corrects it, up or down. It needs no valid lease. If the
// task has ended, the nearest open envelope above pays. not_found means that there is no such
// reservation, so nothing was taken. An outcome is kept for a day.
func (e *Engine) Settle(ctx context.Context, s picket.Settlement) (picket.Settled, error) {
	if picket.CheckID("", "prompt", s.TaskID) != nil {
		if err := picket.CheckID("taskId", "task", s.TaskID); err != nil {
			return picket.Settled{}, err
		}
	}
	result := s.Result
	switch s.Outcome {
	case picket.CallDone, picket.CallFailed:
		if err := checkAmount("cost", s.Cost); err != nil {
			return picket.Settled{}, err
		}
	case picket.CallUndispatched, picket.CallUncertain:
		s.Cost, result = budget.Envelope{}, nil
	default:
		return picket.Settled{},
			picket.Invalid("outcome", "Send done, failed, undispatched or uncertain.", "the outcome of a call is %q",
				s.Outcome)
	}
	if len(result) > picket.MaxResult {
		result = nil
	}
	detail := text.ValidHead(s.Detail, maxCallDetail)
	r := e.run(ctx, "settle", s.TaskID, s.CallID, s.Nonce, string(s.Outcome), s.Cost.Tokens, int64(s.Cost.USD),
		string(result), detail, e.quotas().Answers, e.quotas().AnswerBytes)
	var v picket.Usage
	r.Decode(&v)
	return picket.Settled{Cost: v.Charged, Available: v.Available, Overrun: v.Overrun}, r.Err
}

// SettleOverdueCalls settles up to limit calls that are past their deadline and that
// nobody has settled, at what was reserved, and returns how many it looked at.
func (e *Engine) SettleOverdueCalls(ctx context.Context, limit int) (int, error) {
	return e.runCount(ctx, "reap_hold", limit)
}

// ReportUsage books what an agent's own output says it has used. The figures are running totals of
// one session; what is more than at the last report, and more than the LLM pass-through has charged
// to the same run, is booked now. It is evidence: it is accepted until 15 minutes after the lease
// ended, and never refused for lack of money. The holder and the last run of a task are charged up
// to what the task was granted; the rest is unverified and locks the envelope. What a superseded
// run reports, or one of a cancelled task, changes no envelope.
func (e *Engine) ReportUsage(ctx context.Context, held picket.LeaseCredential,
	u picket.UsageReport) (picket.Usage, error) {
	amount := budget.Envelope{Tokens: u.Tokens, USD: u.USD}
	if err := cmp.Or(u.Check(), checkAmount("/usd", amount)); err != nil {
		return picket.Usage{}, err
	}
	r := e.runHeld(ctx, held, "usage", u.Source, u.Session, u.Scope, u.Tokens, int64(u.USD))
	var v picket.Usage
	r.Decode(&v)
	return v, r.Err
}
