package picket

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket/budget"
)

// A wake is a prompt that Picket itself sends to an idle agent session, because the wake policy of the agent
// allows it. It gives no right to any task, and changes none. The members of these types are in snake case, as
// the document of HEARTBEAT.md has them.

// A WakeSource is who asks for a wake.
type WakeSource string

// The sources.
const (
	WakeSourceManual    WakeSource = "manual" // a person
	WakeSourceAgent     WakeSource = "agent"  // the agent itself
	WakeSourceScheduler WakeSource = "scheduler"
)

// WakeSources lists every source.
func WakeSources() []WakeSource {
	return []WakeSource{WakeSourceManual, WakeSourceAgent, WakeSourceScheduler}
}

// WakeRequest is the body of POST /api/agents/{name}/heartbeat/wake.
type WakeRequest struct {
	// SessionID is the session to wake. Empty: the session of the agent name, if it has exactly one.
	SessionID string `json:"session_id,omitempty"`
	// Source is WakeSourceManual or WakeSourceAgent, as the key of the request has it. Empty: that one.
	Source WakeSource `json:"source,omitempty"`
	// DryRun asks for the decision alone: nothing is sent, stored or reserved.
	DryRun bool `json:"dry_run,omitzero"`
	// At asks what would be decided at another instant. It needs DryRun, and an operator.
	At *Instant `json:"at,omitempty"`
	// IdempotencyKey makes a repeated request have its effect once, as the header Idempotency-Key does.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// OptionalIDs implements the check of empty ids.
func (WakeRequest) OptionalIDs() []jsontext.Pointer { return []jsontext.Pointer{"/session_id"} }

// Check refuses a request that contradicts itself.
func (r WakeRequest) Check() error {
	switch {
	case r.Source == WakeSourceScheduler:
		return Invalid("/source", "Leave it out.", "only the server itself wakes as scheduler")
	case r.Source != "" && r.Source != WakeSourceManual && r.Source != WakeSourceAgent:
		return Invalid("/source", "Send manual or agent, or leave it out.", "%.40q is not a source", string(r.Source))
	case r.At != nil && !r.DryRun:
		return Invalid("/at", "Send dry_run with it, or leave it out.", "a wake goes out now")
	case r.At != nil && *r.At <= 0:
		return Invalid("/at", "Send a time after 1970.", "at is too early")
	}
	return CheckOptionalID("/session_id", "asession", r.SessionID)
}

// WakeDecision is what became of a wake.
type WakeDecision struct {
	AgentName string     `json:"agent_name"`
	SessionID string     `json:"session_id"`
	WakeID    string     `json:"wake_id,omitempty"` // that of the prompt, if the wake was sent; empty: a dry run
	Source    WakeSource `json:"source"`
	DryRun    bool       `json:"dry_run"`
	Result    WakeResult `json:"result"`
	Reason    WakeReason `json:"reason"`
	// NextAllowedAt is the first instant at which the reason no longer stands and the windows of the
	// policy allow a wake. It is null if no time makes a difference, and for a wake that is sent.
	NextAllowedAt *Instant `json:"next_allowed_at"`
	// PolicySnapshotID is the digest of the policy by which it was decided; empty: there is none.
	PolicySnapshotID string  `json:"policy_snapshot_id"`
	At               Instant `json:"at"`
	// DetailCode tells apart the causes of session_unhealthy; null: the reason says everything.
	DetailCode *HealthDetail `json:"detail_code"`
	// Envelope is what has nothing left, with wake_budget_exceeded: wake:NAME:DAY, sessions:DAY or house:DAY. It is
	// renewed when the UTC day ends.
	Envelope string `json:"envelope,omitempty"`
	// Shortage says with wake_budget_exceeded which setting limits the wake, and what to do.
	Shortage    *WakeShortage      `json:"shortage,omitempty"`
	Diagnostics []PolicyDiagnostic `json:"diagnostics"` // of a policy that is not valid
}

// WakeShortage is why a wake may spend nothing now.
type WakeShortage struct {
	// Setting is the key of picket.yaml that limits it: agents.NAME.wake_budget, wake.budget or budget.house.
	Setting string `json:"setting"`
	// Left is what is neither spent nor reserved, in dollars.
	Left    budget.Money `json:"left_usd"`
	Message string       `json:"message"` // who has nothing left, and why
	Remedy  string       `json:"remedy"`  // what to do
}

// WakeRecord is a decision about a wake as it is kept. It names nobody, and has no text of a prompt.
type WakeRecord struct {
	WakeID           string     `json:"wake_id"`
	SessionID        string     `json:"session_id"`
	Source           WakeSource `json:"source"`
	Occasion         string     `json:"occasion"` // the reason to wake the session, such as manual, time or message
	Result           WakeResult `json:"result"`
	Reason           WakeReason `json:"reason"`
	PolicySnapshotID string     `json:"policy_snapshot_id"`
	NextAllowedAt    *Instant   `json:"next_allowed_at"`
	// At is the time of the decision. A record with a Count above 1 stands for as many decisions in a row
	// about the session that were the same, and FirstAt is the time of the first one.
	At      Instant `json:"at"`
	FirstAt Instant `json:"first_at"`
	Count   int     `json:"count"`
}

// WakePage is a page of the records of an agent name, newest first.
type WakePage struct {
	AgentName string       `json:"agent_name"`
	Wakes     []WakeRecord `json:"wakes"`
	Cursor    int64        `json:"cursor,omitzero"` // of the next page; 0: there is none
}

// WakeQuery asks for a page of records.
type WakeQuery struct {
	Cursor int64 // of the page; 0: the newest records
	Limit  int   // 1 to 100; 0: 20
}
