package orchestrator

import (
	"cmp"
	"context"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Times of wakes.
const (
	// wakeAcceptMs is how long an adapter has to accept a wake.
	wakeAcceptMs = 10_000
	// wakeDeadlineMs is how long the agent may work on one.
	wakeDeadlineMs = 1000 * picket.DefaultPromptSeconds
)

// maxWakeTries bounds how often a wake is decided again because its facts have changed meanwhile.
const maxWakeTries = 5

// Wake decides whether a session may be woken now, and wakes it. It waits until an adapter has accepted the
// wake or its time is over. A wake that no adapter has accepted is refused with
// picket.CodeSyntheticPromptFailed; every other decision is an answer. The same by.Idempotency is the same
// wake. A caller that is not an operator wakes only sessions of agents that its key registered.
func (e *Engine) Wake(ctx context.Context, by picket.Caller, name string,
	req picket.WakeRequest) (picket.WakeDecision, error) {
	if err := cmp.Or(picket.CheckName("name", name), req.Check(), checkWaker(by, req)); err != nil {
		return picket.WakeDecision{}, err
	}
	w := wake{e: e, by: by, name: name, source: picket.WakeSourceAgent, occasion: heartbeat.OccasionAgent}
	if by.Operator {
		w.source, w.occasion = picket.WakeSourceManual, heartbeat.OccasionManual
	}
	f, err := e.wakeFacts(ctx, name, req.SessionID, !req.DryRun)
	if err != nil {
		return picket.WakeDecision{}, err
	}
	if err := w.checkSession(f, req.SessionID); err != nil {
		return picket.WakeDecision{}, err
	}
	if req.DryRun {
		at := picket.Instant(f.Raw)
		if req.At != nil {
			at = *req.At
		}
		d := w.decide(f, at)
		d.DryRun = true
		return d, nil
	}
	d, err := w.make(ctx, f, req.SessionID)
	if err != nil || d.Result != picket.WakeResultSent {
		return d, err
	}
	return w.delivered(ctx, d)
}

// checkWaker refuses what the credential of a wake contradicts.
func checkWaker(by picket.Caller, req picket.WakeRequest) error {
	switch {
	case req.Source == picket.WakeSourceManual && !by.Operator:
		return picket.Invalid("/source", "Send agent, or leave it out.", "the key is not that of an operator")
	case req.Source == picket.WakeSourceAgent && by.Operator:
		return picket.Invalid("/source", "Send manual, or leave it out.", "the key is that of an operator")
	case req.At != nil && !by.Operator:
		return picket.Invalid("/at", "Leave it out.", "only an operator asks about another instant")
	}
	return nil
}

// wake is one wake of a session of an agent name.
type wake struct {
	e         *Engine
	by        picket.Caller
	name      string
	source    picket.WakeSource
	occasion  heartbeat.Occasion
	unmetered bool
}

// checkSession refuses a wake that names no session although the agent name does not have exactly one, and
// one of a key that did not register the agent. A session that does not exist is a decision.
func (w wake) checkSession(f wakeFacts, sessionID string) error {
	switch {
	case sessionID == "" && f.Sessions == 0:
		return picket.Refuse(picket.CodeSessionRequired, "Start a worker that keeps one: picket adapter --as "+w.name,
			"%s has no session", w.name).With("sessions", 0)
	case sessionID == "" && f.Sessions > 1:
		return picket.Refuse(picket.CodeSessionRequired, "Name one: picket session list",
			"%s has %d sessions, so the wake has to name one", w.name, f.Sessions).With("sessions", f.Sessions)
	case !w.by.Operator && (f.Row == nil || f.Owner != w.by.Actor || f.Row.Name != w.name):
		return picket.Refuse(picket.CodeForbidden, "Use the key that registered the agent.",
			"the session is not of an agent that this key registered")
	}
	return nil
}

// decide decides by facts, at an instant by the server's own clock.
func (w wake) decide(f wakeFacts, at picket.Instant) picket.WakeDecision {
	made := f.decide(w.source, at, w.unmetered)
	d := picket.WakeDecision{AgentName: w.name, Source: w.source, Result: made.Result, Reason: made.Reason,
		NextAllowedAt: made.NextAllowedAt, At: at, Diagnostics: []picket.PolicyDiagnostic{}}
	if f.shown.Present {
		d.PolicySnapshotID = f.shown.Digest
	}
	if made.Reason == picket.WakeReasonBudgetExceeded {
		d.Envelope, d.Shortage = f.Short, f.shortage()
	}
	if made.Reason == picket.WakeReasonInvalid {
		d.Diagnostics = f.shown.Diagnostics
	}
	if s := f.session(); s != nil {
		d.SessionID = f.Row.ID
		if made.Reason == picket.WakeReasonSessionUnhealthy {
			d.DetailCode = s.Health.DetailCode
		}
	}
	return d
}

// make decides about a wake, and stores the decision. One with the result sent is a prompt of the session
// after that, which no adapter has accepted yet. sessionID is the one that was asked for. The facts are read
// again if they have changed meanwhile.
func (w wake) make(ctx context.Context, f wakeFacts, sessionID string) (picket.WakeDecision, error) {
	if f.Row != nil {
		sessionID = f.Row.ID
	}
	for range maxWakeTries {
		d := w.decide(f, picket.Instant(f.Raw))
		d.WakeID = "prompt_" + ulid.Make().String()
		d.SessionID = cmp.Or(d.SessionID, sessionID)
		stored, stale, err := w.store(ctx, f, d)
		if err != nil || !stale {
			return stored, err
		}
		if f, err = w.e.wakeFacts(ctx, w.name, sessionID, true); err != nil {
			return d, err
		}
	}
	return picket.WakeDecision{}, picket.Refuse(picket.CodeStateConflict, "Repeat it.",
		"the session and its policy changed while the wake was decided")
}

// store stores a decision. stale is true if it does not hold any more; then nothing was stored.
func (w wake) store(ctx context.Context, f wakeFacts, d picket.WakeDecision) (_ picket.WakeDecision, stale bool,
	err error) {
	answer, err := json.Marshal(d)
	if err != nil {
		return d, false, err
	}
	next := any("")
	if d.NextAllowedAt != nil {
		next = int64(*d.NextAllowedAt)
	}
	args := []any{w.name, d.SessionID, w.by.Idempotency.Key, w.by.Idempotency.Body, d.WakeID, string(d.Source),
		string(w.occasion), string(d.Result), string(d.Reason), d.PolicySnapshotID, next,
		f.settings.WakeEventRetention.Milliseconds(), string(answer)}
	if d.Result == picket.WakeResultSent {
		byAgents := w.occasion == heartbeat.OccasionMessage && f.People == 0
		text, err := w.text(ctx, f, d)
		if err != nil {
			return d, false, err
		}
		args = append(args, f.Stamp, text, wakeAcceptMs, wakeDeadlineMs, picket.MaxPromptsListed, f.Message,
			boolArg(byAgents), f.contextNow(), f.settings.MaxWakesPerCycle, w.e.store.limits, w.e.dailyLimitArg())
	}
	r := w.e.run(ctx, "record_wake", args...)
	var v struct {
		Stale    bool   `reply:"stale"`
		Repeated string `reply:"repeated"`
	}
	r.Decode(&v)
	if r.Err == nil && v.Repeated != "" {
		d = picket.WakeDecision{}
		r.Err = json.Unmarshal([]byte(v.Repeated), &d)
	}
	return d, v.Stale, r.Err
}

// text is what the session is told.
func (w wake) text(ctx context.Context, f wakeFacts, d picket.WakeDecision) (string, error) {
	p := heartbeat.Prompt{Now: d.At, Occasion: w.occasion, SnapshotID: d.PolicySnapshotID, Policy: f.policy,
		Settings: f.settings}
	if len(f.policy.Include) > 0 {
		c, err := w.e.sessionContext(ctx, d.SessionID)
		if err != nil {
			return "", err
		}
		each := w.e.store.cfg.SessionLimits.of(w.name).Each
		c.Budget = &picket.ContextBudget{USD: min(max(0, budget.Money(f.Money)), each)}
		if p.Context, err = contextParts(c); err != nil {
			return "", err
		}
	}
	return p.Text(), nil
}

// contextParts are the texts of the parts of a context that a wake can quote, as JSON.
func contextParts(c picket.AgentContext) (map[heartbeat.ContextPart]string, error) {
	parts := map[heartbeat.ContextPart]any{
		heartbeat.PartSelf:         c.Self,
		heartbeat.PartInboxSummary: c.Unread,
		heartbeat.PartTask: struct {
			Tasks     []picket.ContextTask    `json:"tasks"`
			TasksHeld int                     `json:"tasksHeld"`
			Claimable []picket.ClaimableTasks `json:"claimable"`
		}{c.Tasks, c.TasksHeld, c.Claimable},
	}
	if c.Session != nil {
		parts[heartbeat.PartSessionHealth] = c.Session.Health
	}
	if c.Budget != nil {
		parts[heartbeat.PartBudget] = c.Budget
	}
	texts := map[heartbeat.ContextPart]string{}
	for part, value := range parts {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		texts[part] = string(text)
	}
	return texts, nil
}

// delivered waits until an adapter has accepted the prompt of a wake, or its time is over.
func (w wake) delivered(ctx context.Context, d picket.WakeDecision) (picket.WakeDecision, error) {
	var row promptRow
	_, err := w.e.records.WaitUntil(ctx, w.e.records.Subscribe(promptTopic(d.WakeID)), 2*wakeAcceptMs*time.Millisecond,
		func() (done bool, again time.Duration, err error) {
			r := w.e.run(ctx, "prompt", d.SessionID, d.WakeID, 0)
			r.Decode(&row)
			return row.State != string(picket.PromptQueued), time.Duration(row.WakeLeft+1) * time.Millisecond, r.Err
		})
	if err != nil {
		return d, err
	}
	made := heartbeat.Delivered(row.delivery())
	d.Result, d.Reason = made.Result, made.Reason
	if d.Result == picket.WakeResultFailed {
		return d, picket.Refuse(picket.CodeSyntheticPromptFailed, "Look at the session: picket session status "+d.SessionID,
			"no adapter has accepted the wake").With("wake", d)
	}
	return d, nil
}

// delivery is what the adapter answered to a wake.
func (row promptRow) delivery() heartbeat.DeliveryAnswer {
	switch {
	case row.Accepted != nil:
		return heartbeat.DeliveryAccepted
	case row.State == string(picket.PromptRefused) && row.Reason == string(heartbeat.DeliveryPromptActive):
		return heartbeat.DeliveryPromptActive
	case row.State == string(picket.PromptRefused):
		return heartbeat.DeliveryRefused
	}
	return heartbeat.DeliveryTimedOut
}

// Wakes pages through the decisions about wakes of an agent name, newest first. They are kept for
// wake_event_retention, and at most 1,000 of them.
func (e *Engine) Wakes(ctx context.Context, name string, q picket.WakeQuery) (picket.WakePage, error) {
	limit, err := pageLimit(q.Limit, 20, 100)
	if err := cmp.Or(err, picket.CheckName("name", name)); err != nil {
		return picket.WakePage{}, err
	}
	r := e.run(ctx, "wakes", name, max(q.Cursor, 0), limit)
	var v struct {
		Raw  int64    `reply:"raw"` // ms
		Rows []string `reply:"rows"`
		More bool     `reply:"more"`
	}
	r.Decode(&v)
	page := picket.WakePage{AgentName: name, Wakes: []picket.WakeRecord{}}
	oldest := v.Raw - e.store.cfg.Wake.WakeEventRetention.Milliseconds()
	for _, text := range v.Rows {
		var row wakeRow
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			return page, err
		}
		if row.At <= oldest {
			return page, r.Err
		}
		page.Wakes = append(page.Wakes, row.record())
		if v.More {
			page.Cursor = row.Number
		}
	}
	return page, r.Err
}

// wakeRow is a row of wakes.add_row of the scripts.
type wakeRow struct {
	ID       string            `json:"id"`
	Number   int64             `json:"number,string"`
	Session  string            `json:"session"`
	Source   picket.WakeSource `json:"source"`
	Occasion string            `json:"occasion"`
	Result   picket.WakeResult `json:"result"`
	Reason   picket.WakeReason `json:"reason"`
	Snapshot string            `json:"snapshot"`
	Next     string            `json:"next"` // ms
	At       int64             `json:"at,string"`
	Since    int64             `json:"since,string"`
	Count    int               `json:"count"`
}

func (row wakeRow) record() picket.WakeRecord {
	r := picket.WakeRecord{WakeID: row.ID, SessionID: row.Session, Source: row.Source, Occasion: row.Occasion,
		Result: row.Result, Reason: row.Reason, PolicySnapshotID: row.Snapshot, At: picket.Instant(row.At),
		FirstAt: picket.Instant(row.Since), Count: row.Count}
	if row.Next != "" {
		at := picket.Instant(store.ParseInt(row.Next))
		r.NextAllowedAt = &at
	}
	return r
}
