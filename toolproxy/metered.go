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
)

// reservationStore moves the money of a run's envelope.
type reservationStore interface {
	// Reserve takes the bound of a call's price out of the envelope, or answers
	// what the same call has answered before. Refused unless the lease holds.
	Reserve(ctx context.Context, held picket.LeaseCredential, req picket.CallRequest) (picket.Reservation, error)
	// Settle books what a reserved call cost. It needs no valid lease.
	Settle(ctx context.Context, s picket.Settlement) (picket.Settled, error)
}

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
	// Args are the arguments in a form in which the same call has the same bytes;
	// they are compared when Key repeats.
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
	// Probe says that the caller tries again with less when it is refused for want
	// of money. Defaults to false.
	Probe bool
	// Dispatch makes the call. Its context ends at the timeout, when the lease of
	// a call with external effects ends, and, for a call without a key, when the
	// caller goes away. An error wrapped by [NotSent] says that nothing reached
	// the tool, and costs nothing; any other error leaves that open, and costs
	// what was reserved.
	Dispatch func(ctx context.Context, r picket.Reservation) (DispatchResult, error)
}

// DispatchResult is what a call came to.
type DispatchResult struct {
	Result picket.RawJSON // an object; kept for repetitions with the same key
	Used   budget.Usage   // priced by the list, unless Cost says it
	Cost   *budget.Envelope
	Failed bool   // the tool itself says that it failed: free if the price charges on success
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

// Answer is the result with its price tag: members cost and available beside
// its own, which they replace. A result that is not an object stands in "result".
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

// NotSent says of a dispatch's error that nothing reached the tool.
func NotSent(err error) error { return notSentError{err} }

// MarkNotSent is [NotSent] for an error that came before anything was sent; any
// other error is returned as it is.
func MarkNotSent(err error) error {
	var u *outbound.UnsentError
	if errors.As(err, &u) {
		return NotSent(err)
	}
	return err
}

// Metered makes a call that costs money: it reserves the bound of its price in
// the step that checks the lease, dispatches, and settles what it cost, exactly
// once, whatever becomes of the caller in between.
func (p *Proxy) Metered(ctx context.Context, door Backend, held picket.LeaseCredential,
	m MeteredCall) (MeteredResult, error) {
	priced, err := p.priceOf(m)
	if err != nil {
		return MeteredResult{}, err
	}
	if isEstimate(ctx) {
		return MeteredResult{}, p.estimate(ctx, door, held, m.Tool, priced.reserve, priced.version)
	}
	// The state of record counts the timeout from when it is asked, or later.
	deadline := time.Now().Add(m.timeout())
	r, err := reserve(ctx, door, held, newCallRequest(m, priced))
	if err != nil {
		return MeteredResult{}, err
	}
	if r.Replay != nil {
		return MeteredResult{
			Result:    r.Replay.Result,
			Cost:      r.Replay.Cost,
			Available: r.Available,
			Replayed:  true,
			Nudge:     r.Nudge,
		}, nil
	}
	return p.dispatchAndSettle(ctx, door, held, m, priced, r, deadline)
}

// newCallRequest is what is asked of the envelope.
func newCallRequest(m MeteredCall, priced callPrice) picket.CallRequest {
	req := picket.CallRequest{
		CallID: "r" + rand.Text(), Nonce: rand.Text(), Tool: m.Tool,
		Reserve: priced.reserve, PriceVersion: priced.version,
		Effects: cmp.Or(m.Effects, picket.EffectsNone), TimeoutMs: m.timeout().Milliseconds(), Probe: m.Probe,
	}
	if m.Key != "" {
		key, args := sha256.Sum256([]byte(m.Key)), sha256.Sum256(append([]byte(m.Tool+"\x00"), m.Args...))
		req.CallID, req.Hash, req.Keyed = "k"+hex.EncodeToString(key[:16]), hex.EncodeToString(args[:16]), true
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

// reserve asks again when an answer was lost: the nonce makes it the same
// reservation. One that may have been made, and that the call does not use, is
// given back: what was asked again may be refused by then.
func reserve(ctx context.Context, purse reservationStore, held picket.LeaseCredential,
	req picket.CallRequest) (r picket.Reservation, err error) {
	lost := false
	for range reserveTries {
		r, err = purse.Reserve(ctx, held, req)
		if !errors.Is(err, picket.ErrUnknown) || ctx.Err() != nil {
			break
		}
		lost = true
	}
	if err != nil && (lost || errors.Is(err, picket.ErrUnknown) || ctx.Err() != nil) {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer cancel()
		_, _ = purse.Settle(after,
			picket.Settlement{
				CallID:  req.CallID,
				TaskID:  held.TaskID,
				Nonce:   req.Nonce,
				Outcome: picket.CallUndispatched,
			})
	}
	return r, err
}
