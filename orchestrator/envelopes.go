package orchestrator

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/store"
)

// amountColumn reads one column of an envelope's record.
func amountColumn(h map[string]string, name string) budget.Envelope {
	return budget.Envelope{Tokens: store.ParseInt(h[name+"_t"]), USD: budget.Money(store.ParseInt(h[name+"_u"]))}
}

// taskMoney fills in what a task may spend and has spent. What its agents reported
// beyond that is not available to it.
func taskMoney(t *picket.Task, h map[string]string) {
	t.BudgetEnvelope, t.Spent, t.Held = amountColumn(h, "envelope"), amountColumn(h, "spent"), amountColumn(h, "held")
	t.Available = amountColumn(h, "available").Sub(amountColumn(h, "unverified"))
}

// Envelope shows an envelope with the calls under way and what was carved from it,
// [picket.MaxEnvelopes] at most. id is a task id, house:<UTC date>, or house for today. A day has
// an envelope only if a daily limit is set.
func (e *Engine) Envelope(ctx context.Context, id string) (picket.EnvelopeState, error) {
	return e.runChecked(ctx, picket.CheckEnvelopeID("id", id), "envelope", id, e.dailyLimitArg()).envelopeState()
}

// TopUp gives an envelope more, and with it every one that it was carved from up
// to the day's envelope, which pays it. The same by.Once answers the envelope as it is
// now and adds nothing. Ids are those of [Engine.Envelope].
func (e *Engine) TopUp(ctx context.Context, by picket.Caller, id string, t picket.TopUp) (picket.EnvelopeState, error) {
	added := budget.Envelope{Tokens: t.Tokens, USD: t.USD}
	if err := cmp.Or(picket.CheckEnvelopeID("id", id), checkAmount("/usd", added)); err != nil {
		return picket.EnvelopeState{}, err
	}
	if added.IsZero() {
		return picket.EnvelopeState{},
			picket.Invalid("/usd", `Send for example {"usd": 0.5}.`, "a top-up adds dollars or tokens")
	}
	if len(t.Reason) > 1024 {
		return picket.EnvelopeState{},
			picket.Invalid("/reason", "Say it in up to 1,024 bytes.", "the reason has %d bytes", len(t.Reason))
	}
	return e.run(ctx, "top_up", id, by.Actor, by.Idempotency.Key, by.Idempotency.Body, t.Tokens, int64(t.USD),
		t.Reason, e.dailyLimitArg()).envelopeState()
}

// envelopeState decodes an envelopeView.
func (r *reply) envelopeState() (picket.EnvelopeState, error) {
	var v envelopeView
	r.Decode(&v)
	return v.state(), r.Err
}

// envelopeView is what the script function envelope_view shows.
type envelopeView struct {
	ID     string            `reply:"id"`
	Record map[string]string `reply:"record"`
	Calls  []struct {
		ID       string          `reply:"id"`
		Run      string          `reply:"run"`
		Tool     string          `reply:"tool"`
		Need     budget.Envelope `reply:"need"`
		Left     int64           `reply:"left"` // ms to its deadline
		External bool            `reply:"external"`
	} `reply:"calls"`
	Children []envelopeView `reply:"children"`
}

func (v envelopeView) state() picket.EnvelopeState {
	h := v.Record
	s := picket.EnvelopeState{
		ID:       v.ID,
		Parent:   h["parent"],
		State:    "open",
		Envelope: amountColumn(h, "envelope"),
		Account: budget.Account{
			Granted:   amountColumn(h, "granted"),
			Available: amountColumn(h, "available"),
			Held:      amountColumn(h, "held"),
			Spent:     amountColumn(h, "spent"),
			Carved:    amountColumn(h, "carved"),
		},
		Calls:    []picket.OpenCall{},
		Children: []picket.EnvelopeState{},
	}
	if _, counted := h["total_u"]; counted {
		total := amountColumn(h, "total")
		s.SpentInAll = &total
	}
	if h["closed"] == "1" {
		s.State = "closed"
	}
	s.Unverified = amountColumn(h, "unverified")
	free := s.Available.Sub(s.Unverified)
	s.Locked = free.Tokens < 0 || free.USD < 0
	for _, c := range v.Calls {
		call := picket.OpenCall{
			CallID:     c.ID,
			RunID:      c.Run,
			Tool:       c.Tool,
			Reserved:   c.Need,
			DeadlineMs: c.Left,
			Effects:    picket.EffectsNone,
		}
		if c.External {
			call.Effects = picket.EffectsExternal
		}
		s.Calls = append(s.Calls, call)
	}
	for _, child := range v.Children {
		s.Children = append(s.Children, child.state())
	}
	return s
}

// AwaitTopUp waits until the envelope of a lease has been topped up since a call
// was last refused under it, or, when none was, since it was first waited for. A
// top-up that came before is answered at once.
func (e *Engine) AwaitTopUp(ctx context.Context, held picket.LeaseCredential,
	wait time.Duration) (picket.Funds, error) {
	var f picket.Funds
	topics := e.records.Subscribe(fundsTopic(held.TaskID), taskTopic(held.TaskID))
	_, err := e.records.WaitUntil(ctx, topics, wait, func() (bool, time.Duration, error) {
		r := e.runHeld(ctx, held, "await_top_up")
		f = picket.Funds{}
		r.Decode(&f)
		return f.ToppedUp, 0, r.Err
	})
	return f, err
}

// Ledger pages through the rows of an envelope, or of all, oldest first unless
// asked otherwise. Rows are deleted with their task.
func (e *Engine) Ledger(ctx context.Context, q picket.LedgerQuery) (picket.LedgerPage, error) {
	var err error
	if q.Limit, err = pageLimit(q.Limit, 100, maxListRows); err != nil {
		return picket.LedgerPage{}, err
	}
	if q.TaskID != "" {
		if err := picket.CheckEnvelopeID("task", q.TaskID); err != nil {
			return picket.LedgerPage{}, err
		}
	}
	r := e.run(ctx, "ledger", q.TaskID, max(q.After, 0), q.Limit, boolArg(q.NewestFirst))
	page := picket.LedgerPage{Rows: []picket.LedgerRow{}}
	for _, v := range r.List(r.Value) {
		page.Rows = append(page.Rows, r.ledgerRow(v))
	}
	if n := len(page.Rows); n == q.Limit {
		page.Next = strconv.FormatInt(page.Rows[n-1].Seq, 10)
	}
	return page, r.Err
}

func (r *reply) ledgerRow(entry any) picket.LedgerRow {
	var id string
	var h map[string]string
	r.Scan(entry, &id, &h)
	return picket.LedgerRow{
		Seq:          streamSeq(id),
		At:           picket.Instant(store.ParseInt(h["at"])),
		TaskID:       h["task"],
		RunID:        h["run"],
		CallID:       h["call"],
		Kind:         picket.LedgerKind(h["kind"]),
		Tool:         h["tool"],
		Outcome:      picket.CallOutcome(h["outcome"]),
		Reserved:     amountColumn(h, "held"),
		Charged:      amountColumn(h, "cost"),
		Unverified:   amountColumn(h, "unverified"),
		PriceVersion: h["version"],
		Late:         h["late"] == "1",
		Detail:       h["detail"],
		Actor:        h["actor"],
	}
}
