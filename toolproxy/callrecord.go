package toolproxy

import (
	"context"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// CallRecord is a call of a tool or of a language model that has ended. It holds no text that went
// in or out.
type CallRecord struct {
	Held     picket.LeaseCredential
	Tool     string             // as the ledger names it
	CallID   string             // of its reservation, "" for a call that is free
	Token    int64              // the fencing token under which it was admitted, 0 if it is free
	Cost     budget.Envelope    // what it was charged
	Outcome  picket.CallOutcome // "" if it is free
	Replayed bool               // it was made before, and its answer was given again
	Err      error              // nil if it was answered
	From, To time.Time

	// Model, Vendor and Usage are of calls of language models.
	Model  string
	Vendor string
	Usage  budget.TokenUsage
}

type callRecordKey struct{}

// BeginCall begins a call that [Config.OnCall] gets. The context is for everything that the
// call does; [RecordOf] finds its record there. Call end once, when the call has ended. Without
// OnCall, both do nothing.
func (p *Proxy) BeginCall(ctx context.Context, held picket.LeaseCredential,
	tool string) (_ context.Context, end func(error)) {
	if p.onCall == nil {
		return ctx, ignoreEnd
	}
	r := &CallRecord{Held: held, Tool: tool, From: time.Now()}
	return context.WithValue(ctx, callRecordKey{}, r), func(err error) {
		r.To, r.Err = time.Now(), err
		p.onCall(*r)
	}
}

func ignoreEnd(error) {}

// RecordOf is the record of the call under way, nil without [Config.OnCall].
func RecordOf(ctx context.Context) *CallRecord {
	r, _ := ctx.Value(callRecordKey{}).(*CallRecord)
	return r
}

// settled notes what a metered call came to.
func (r *CallRecord) settled(reserved picket.Reservation, outcome picket.CallOutcome, cost budget.Envelope) {
	if r != nil {
		r.CallID, r.Token, r.Outcome, r.Cost = reserved.CallID, reserved.Token, outcome, cost
	}
}
