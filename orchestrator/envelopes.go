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
// to the day's envelope, which pays it. If the task is parked on a hand-off that asks for
// money, the hand-off is answered in the same step, unless t.KeepParked is set or the call
// that was refused last would be refused again. The same by.Once answers what the first
// request made of the hand-off, with the envelope as it is now, and adds nothing. Ids are
// those of [Engine.Envelope].
func (e *Engine) TopUp(ctx context.Context, by picket.Caller, id string, t picket.TopUp) (picket.TopUpResult, error) {
	added := budget.Envelope{Tokens: t.Tokens, USD: t.USD}
	if err := cmp.Or(picket.CheckTopUpID("id", id), checkAmount("/usd", added)); err != nil {
		return picket.TopUpResult{}, err
	}
	if added.IsZero() {
		return picket.TopUpResult{},
			picket.Invalid("/usd", `Send for example {"usd": 0.5}.`, "a top-up adds dollars or tokens")
	}
	if len(t.Reason) > 1024 {
		return picket.TopUpResult{},
			picket.Invalid("/reason", "Say it in up to 1,024 bytes.", "the reason has %d bytes", len(t.Reason))
	}
	if t.HandoffID != "" {
		if err := picket.CheckID("/handoffId", "handoff", t.HandoffID); err != nil {
			return picket.TopUpResult{}, err
		}
	}
	r := e.run(ctx, "top_up", id, by.Actor, by.Idempotency.Key, by.Idempotency.Body, t.Tokens, int64(t.USD),
		t.Reason, e.dailyLimitArg(), boolArg(t.KeepParked), t.HandoffID, "topped up by "+added.Text())
	var v topUpView
	r.Decode(&v)
	return v.result(), r.Err
}

// topUpView is what the script top_up answers.
type topUpView struct {
	Envelope envelopeView    `reply:"envelope"`
	Handoff  string          `reply:"handoff"`
	Kind     string          `reply:"kind"`
	Outcome  string          `reply:"outcome"`
	Lacking  budget.Envelope `reply:"lacking"`
}

func (v topUpView) result() picket.TopUpResult {
	result := picket.TopUpResult{EnvelopeState: v.Envelope.state()}
	if v.Handoff != "" {
		result.Handoff = &picket.TopUpHandoff{
			HandoffID: v.Handoff,
			Kind:      picket.HandoffKind(v.Kind),
			Outcome:   picket.TopUpOutcome(v.Outcome),
			Lacking:   v.Lacking,
		}
	}
	return result
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
	deadline := time.Now().Add(wait)
	poll := pollFirst
	if wait <= 0 {
		poll = pollOnce
	}
	var f picket.Funds
	topics := e.records.Subscribe(fundsTopic(held.TaskID), taskTopic(held.TaskID))
	_, err := e.records.WaitUntil(ctx, topics, wait, func() (done bool, again time.Duration, err error) {
		f, err = e.pollFunds(ctx, held, poll, time.Until(deadline))
		done = f.ToppedUp || poll == pollOnce
		if !done {
			poll = pollAgain
		}
		return done, 0, err
	})
	return f, err
}

// Funds shows the holder of a lease its envelope. Unlike [Engine.AwaitTopUp] it does not
// count as a call of a tool.
func (e *Engine) Funds(ctx context.Context, held picket.LeaseCredential) (picket.Funds, error) {
	return e.pollFunds(ctx, held, "none", 0)
}

func (e *Engine) pollFunds(ctx context.Context, held picket.LeaseCredential, look string,
	wait time.Duration) (picket.Funds, error) {
	if held.OfSession() {
		return e.fundsOfSession(ctx, held)
	}
	r := e.runHeld(ctx, held, "await_top_up", look, max(0, wait.Milliseconds()))
	if r.endedByLoop() {
		return picket.Funds{}, loopRefusal("await_top_up")
	}
	var v struct {
		ToppedUp  bool            `reply:"toppedUp"`
		Available budget.Envelope `reply:"available"`
		Locked    bool            `reply:"locked"`
		Nudge     string          `reply:"nudge"`
		Unread    int             `reply:"unread"`
	}
	r.Decode(&v)
	return picket.Funds{ToppedUp: v.ToppedUp, Available: v.Available, Locked: v.Locked, Nudge: r.nudge(v.Nudge),
		Unread: v.Unread}, r.Err
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
		Model:        h["model"],
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
