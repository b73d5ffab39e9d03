package toolproxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/outbound"
	"github.com/picket-dev/picket/internal/web"
)

// MaxCallTimeout is the longest time that the dispatch of a metered call without
// external effects may take, such as a call of an LLM.
const MaxCallTimeout = 15 * time.Minute

// Bounds of a metered call.
const (
	defaultCallTimeout = 60 * time.Second
	settleTimeout      = 10 * time.Second // for all tries together
	reserveTries       = 3
)

// MeteredCall is a call that costs money.
type MeteredCall struct {
	Tool string
	// Model is the language model that is called, if one is. It is for the ledger.
	Model string
	// Args are the arguments in a form in which the same call has the same bytes. They are
	// compared when Key repeats, and when a run makes the same call again and again. Nil
	// without a Key: it is not a call of a tool, and is never compared.
	Args    []byte
	Key     string         // the caller's idempotency key, "" for none
	Effects picket.Effects // defaults to none
	// Timeout bounds the dispatch. Defaults to 60 s; at most
	// picket.MaxExternalCall seconds with external effects, 15 minutes without.
	Timeout time.Duration
	// Reserve is an upper bound of what the call costs. Nil: the price list knows,
	// and a tool it does not know is refused.
	Reserve *budget.Envelope
	// PriceVersion is that of the list Reserve was made from; the current one's
	// when Reserve is nil.
	PriceVersion string
	// Probe says that the caller tries again with less if the money does not suffice.
	// Defaults to false.
	Probe bool
	// Dispatch makes the call. Its context ends at the timeout, when the lease of
	// a call with external effects ends, and, for a call without a key, when the
	// caller goes away. An error wrapped by [NotSent] means that nothing reached the
	// tool, and costs nothing. After any other error that is unknown, and the call
	// costs what was reserved.
	Dispatch func(ctx context.Context, r picket.Reservation) (DispatchResult, error)
}

// DispatchResult is what a call came to.
type DispatchResult struct {
	Result picket.RawJSON // an object; kept for repetitions with the same key
	Used   budget.Usage   // priced by the list, unless Cost says it
	Cost   *budget.Envelope
	Failed bool   // the tool reported a failure, which is free if the price charges on success
	Detail string // for the ledger, such as an HTTP status; no secrets
}

// MeteredResult is what a metered call answers.
type MeteredResult struct {
	Result    picket.RawJSON
	Cost      budget.Envelope
	Available budget.Envelope // of the task's envelope, afterwards
	Replayed  bool            // the answer of the same call made before: nothing was called or charged now
	Nudge     *picket.Nudge
}

// Answer returns the result with its price tag: the members cost and available, and
// replayed and nudge where they apply. They replace members of the result with the same
// names. A result that is not an object becomes the member "result".
func (r MeteredResult) Answer() (jsontext.Value, error) {
	members := map[string]jsontext.Value{}
	if jsontext.Value(r.Result).Kind() != '{' {
		members["result"] = jsontext.Value(cmp.Or(string(r.Result), "null"))
	} else if err := json.Unmarshal(r.Result, &members); err != nil {
		return nil, fmt.Errorf("read the result of a call: %w", err)
	}
	tag := map[string]any{"cost": r.Cost, "available": r.Available}
	if r.Replayed {
		tag["replayed"] = true
	}
	if r.Nudge != nil {
		tag["nudge"] = r.Nudge
	}
	for name, v := range tag {
		raw, err := EncodeJSON(v)
		if err != nil {
			return nil, err
		}
		members[name] = raw
	}
	return EncodeJSON(members)
}

// notSentError marks an error before which nothing was sent.
type notSentError struct{ error }

func (n notSentError) Unwrap() error { return n.error }

// NotSent marks the error of a dispatch before which nothing reached the tool, so that
// the call costs nothing.
func NotSent(err error) error { return notSentError{err} }

// MarkNotSent is [NotSent] for an error that came before anything was sent; any
// other error is returned as it is.
func MarkNotSent(err error) error {
	if _, ok := errors.AsType[*outbound.UnsentError](err); ok {
		return NotSent(err)
	}
	return err
}

// Metered makes a call that costs money. It reserves the most that the call can cost in the step
// that checks the lease, makes the call, and settles its cost exactly once, even if the caller goes
// away in between.
func (p *Proxy) Metered(ctx context.Context, money Metering, held picket.LeaseCredential,
	m MeteredCall) (MeteredResult, error) {
	priced, err := p.priceOf(m)
	if err != nil {
		return MeteredResult{}, err
	}
	if isEstimate(ctx) {
		return MeteredResult{}, p.estimate(ctx, money, held, m.Tool, priced.reserve, priced.version)
	}
	// The state of record counts the timeout from when it is asked, or later.
	deadline := time.Now().Add(m.timeout())
	r, err := reserve(ctx, money, held, newCallRequest(m, priced))
	if err != nil {
		return MeteredResult{}, err
	}
	if r.Replay != nil {
		if record := RecordOf(ctx); record != nil {
			record.settled(r, picket.CallDone, budget.Envelope{})
			record.Replayed = true
		}
		return MeteredResult{
			Result:    r.Replay.Result,
			Cost:      r.Replay.Cost,
			Available: r.Available,
			Replayed:  true,
			Nudge:     r.Nudge,
		}, nil
	}
	return p.dispatchAndSettle(ctx, money, held, m, priced, r, deadline)
}

// MeteredAnswer makes the metered call m for c, whose backend, lease, name and key it
// takes, and its arguments unless m has them. It returns the answer with the price tag. See
// [Proxy.Metered] and [MeteredResult.Answer].
func (p *Proxy) MeteredAnswer(ctx context.Context, c Call, m MeteredCall) (jsontext.Value, error) {
	m.Tool, m.Key = c.Name, c.Key
	if m.Args == nil {
		m.Args = append([]byte{}, c.Args...)
	}
	result, err := p.Metered(ctx, c.Backend, c.Held, m)
	if err != nil {
		return nil, err
	}
	return result.Answer()
}

// newCallRequest is what is asked of the envelope.
func newCallRequest(m MeteredCall, priced callPrice) picket.CallRequest {
	req := picket.CallRequest{
		CallID: "r" + rand.Text(), Nonce: rand.Text(), Tool: m.Tool, Model: m.Model,
		Reserve: priced.reserve, PriceVersion: priced.version,
		Effects: cmp.Or(m.Effects, picket.EffectsNone), TimeoutMs: m.timeout().Milliseconds(), Probe: m.Probe,
	}
	if m.Key != "" || m.Args != nil {
		args := sha256.Sum256(append([]byte(m.Tool+"\x00"), m.Args...))
		req.Hash = hex.EncodeToString(args[:16])
	}
	if m.Key != "" {
		key := sha256.Sum256([]byte(m.Key))
		req.CallID, req.Keyed = "k"+hex.EncodeToString(key[:16]), true
	}
	return req
}

func (m MeteredCall) timeout() time.Duration {
	longest := MaxCallTimeout
	if m.Effects == picket.EffectsExternal {
		longest = picket.MaxExternalCall * time.Second
	}
	return min(cmp.Or(m.Timeout, defaultCallTimeout), longest)
}

// reserve asks again when an answer was lost. The nonce makes it the same reservation. If
// a reservation may have been made and the call does not use it, it is given back.
func reserve(ctx context.Context, envelope reservationStore, held picket.LeaseCredential,
	req picket.CallRequest) (r picket.Reservation, err error) {
	lost := false
	for range reserveTries {
		r, err = envelope.Reserve(ctx, held, req)
		if !errors.Is(err, picket.ErrUnknown) || ctx.Err() != nil {
			break
		}
		lost = true
	}
	if err != nil && (lost || errors.Is(err, picket.ErrUnknown) || ctx.Err() != nil) {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer cancel()
		_, _ = envelope.Settle(after,
			picket.Settlement{
				CallID:  req.CallID,
				TaskID:  held.EnvelopeID(),
				Nonce:   req.Nonce,
				Outcome: picket.CallUndispatched,
			})
	}
	return r, err
}

// callPrice is what is known of a call's price before it is made.
type callPrice struct {
	reserve budget.Envelope
	version string
	price   *budget.Price // nil: the dispatch says what it cost
}

// priceOf finds the bound of a call. A tool without a price is refused; a price of zero
// makes it free.
func (p *Proxy) priceOf(m MeteredCall) (callPrice, error) {
	list := p.prices()
	if m.Reserve != nil {
		return callPrice{reserve: *m.Reserve, version: m.PriceVersion}, nil
	}
	price, ok := list.Tool(m.Tool)
	if !ok {
		return callPrice{}, unpricedTool(m.Tool)
	}
	return callPrice{reserve: budget.Envelope{USD: price.MaxCost()}, version: list.Version, price: &price}, nil
}

// cost is what a dispatched call costs.
func (p callPrice) cost(d DispatchResult) budget.Envelope {
	switch {
	case d.Cost != nil:
		return *d.Cost
	case p.price != nil:
		return budget.Envelope{USD: p.price.Cost(d.Used, d.Failed)}
	}
	return p.reserve
}

// dispatchAndSettle makes a reserved call and settles it.
func (p *Proxy) dispatchAndSettle(ctx context.Context, money Metering, held picket.LeaseCredential, m MeteredCall,
	priced callPrice, r picket.Reservation, deadline time.Time) (MeteredResult, error) {
	d, callErr := p.runDispatch(ctx, money, held, m, r, deadline)
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
	settled, err := p.settle(ctx, money, s)
	RecordOf(ctx).settled(r, s.Outcome, charged(s))
	if callErr != nil {
		return MeteredResult{}, p.callRefusal(m.Tool, s, callErr)
	}
	if err != nil {
		// The call was made, so the agent gets its answer. The reservation settles
		// automatically at its deadline.
		p.log.WarnContext(ctx, "a call could not be settled", "tool", m.Tool, "task", held.TaskID, "run", held.RunID,
			"call", r.CallID, "err", err)
		settled = picket.Settled{Cost: s.Cost, Available: r.Available}
	}
	return MeteredResult{Result: d.Result, Cost: settled.Cost, Available: settled.Available, Nudge: r.Nudge}, nil
}

// runDispatch dispatches within everything that ends a call. A call with a key is
// finished even if its caller goes away, and a repetition with the key gets the answer.
func (p *Proxy) runDispatch(ctx context.Context, money Metering, held picket.LeaseCredential, m MeteredCall,
	r picket.Reservation, deadline time.Time) (d DispatchResult, err error) {
	if m.Key != "" {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if m.Effects == picket.EffectsExternal {
		var leave func()
		ctx, leave = p.leaseEnds.track(ctx, money, held, p.log)
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
func (p *Proxy) settle(ctx context.Context, envelope reservationStore,
	s picket.Settlement) (out picket.Settled, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if len(s.Result) > picket.MaxResult {
		s.Result = nil
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		out, err = envelope.Settle(ctx, s)
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

// callRefusal tells an agent why a call gave no answer, and what it was charged.
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

func unpricedTool(tool string) error {
	return picket.Refuse(picket.CodeUnpricedTool,
		"Do without it, or ask an operator for a price: tools.prices."+web.Shortened(tool)+
			" in picket.yaml; {call: 0} makes it free.",
		"nobody has said what a call of %s costs", web.Shortened(tool)).With("tool", web.Shortened(tool))
}

// WithPrice adds the price of a tool to its listing; ok is false for a tool
// without one, which cannot be called.
func (p *Proxy) WithPrice(t Tool) (_ Tool, ok bool) {
	price, ok := p.prices().Tool(t.Name)
	t.Price = &price
	return t, ok
}

// estimate answers a call with [picket.EstimateHeader]: nothing was called.
type estimate struct {
	Tool         string          `json:"tool"`
	Reserve      budget.Envelope `json:"reserve"`   // what the call would reserve, and cost at most
	Available    budget.Envelope `json:"available"` // of the task's envelope now
	Covered      bool            `json:"covered"`   // the envelope has that much
	PriceVersion string          `json:"priceVersion,omitempty"`
}

// estimateError carries an estimate out of a call in place of its answer.
type estimateError struct{ estimate }

func (estimateError) Error() string { return "an estimate was asked for: nothing was called" }

type estimateKey struct{}

// withEstimate turns every metered call under ctx into an estimate.
func withEstimate(ctx context.Context) context.Context {
	return context.WithValue(ctx, estimateKey{}, true)
}

func isEstimate(ctx context.Context) bool { return ctx.Value(estimateKey{}) != nil }

func (p *Proxy) estimate(ctx context.Context, money Metering, held picket.LeaseCredential, tool string,
	need budget.Envelope, version string) error {
	funds, err := money.Funds(ctx, held)
	if err != nil {
		return err
	}
	covered := need.IsZero() || !funds.Locked && funds.Available.Covers(need)
	return &estimateError{estimate{
		Tool:         tool,
		Reserve:      need,
		Available:    funds.Available,
		Covered:      covered,
		PriceVersion: version,
	}}
}
