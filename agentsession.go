package picket

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// An agent session is a conversation of a coding agent that an adapter keeps and that can be prompted. It
// is not a lease and gives no right to any task.

// Bounds of agent sessions.
const (
	MaxAgentSessions = 64       // of one agent
	MaxPromptText    = 16 << 10 // bytes
	MaxAnswerText    = 64 << 10 // bytes; what an agent answers beyond is dropped
	MaxOpenPrompts   = 16       // of one session
	MaxPromptsListed = 200      // of one session; older ones are deleted once they have ended
	MaxPromptReason  = 500      // bytes
)

// SessionKind says how an adapter keeps a session.
type SessionKind string

// The kinds of agent sessions.
const (
	// SessionResumable starts the coding agent for each prompt, with the conversation that it has
	// stored. No process runs between prompts.
	SessionResumable SessionKind = "resumable"
	// SessionResident is one process that reads a line for each prompt and answers with a line.
	SessionResident SessionKind = "resident"
)

// SessionKinds lists every kind.
func SessionKinds() []SessionKind { return []SessionKind{SessionResumable, SessionResident} }

// SessionReport is what an adapter says about one of its sessions.
type SessionReport struct {
	SessionID string      `json:"sessionId"` // asession_ and a ULID, made by the adapter
	Kind      SessionKind `json:"kind"`
	Preset    string      `json:"preset"` // the coding agent: claude, codex, gemini, opencode or exec
	// State is SessionIdle, SessionPrompting, SessionStopped or SessionDetached.
	State    SessionState `json:"state"`
	PromptID string       `json:"promptId,omitempty"` // the prompt under way
	// TaskID is the task that the session has taken after the prompt PromptID, while its run is under way. The
	// server ignores a task that the agent does not hold.
	TaskID string `json:"taskId,omitempty"`
	// Silent is true if the prompt under way has shown no activity for too long.
	Silent bool `json:"silent,omitzero"`
	// DetachedBecause is CannotStart or ConversationLost, of a detached session.
	DetachedBecause string `json:"detachedBecause,omitempty"`
	// Metered is true if the model calls of the agent go through the tool proxy, so that its budget stops them.
	Metered bool `json:"metered,omitzero"`
	// IdleMs is how long ago the last activity of a prompt was, by the clock of the adapter; null: never.
	IdleMs *int64 `json:"idleMs"`
}

// Why a session is detached.
const (
	CannotStart      = "cannot_start"      // its process cannot be started
	ConversationLost = "conversation_lost" // there is no conversation to resume
)

// OptionalIDs implements the check of empty ids.
func (SessionReport) OptionalIDs() []jsontext.Pointer {
	return []jsontext.Pointer{"/promptId", "/taskId"}
}

// Check refuses a report that cannot be true.
func (r SessionReport) Check() error {
	switch {
	case !slices.Contains(SessionKinds(), r.Kind):
		return Invalid("/kind", "Send resumable or resident.", "%.40q is not a kind of session", string(r.Kind))
	case !r.State.Known():
		return Invalid("/state", "Send idle, prompting, stopped or detached.", "%.40q is not a state", string(r.State))
	case (r.State == SessionPrompting) != (r.PromptID != ""):
		return Invalid("/promptId", "Send the id of the prompt with the state prompting, and only with it.",
			"state and promptId contradict each other")
	case r.TaskID != "" && r.State != SessionPrompting:
		return Invalid("/taskId", "Leave it out, or send the state prompting.", "the session does not work")
	case r.State == SessionDetached && r.DetachedBecause != CannotStart && r.DetachedBecause != ConversationLost:
		return Invalid("/detachedBecause", "Send cannot_start or conversation_lost with the state detached.",
			"%.40q does not say why it is detached", r.DetachedBecause)
	case r.State != SessionDetached && r.DetachedBecause != "":
		return Invalid("/detachedBecause", "Leave it out, or send the state detached.", "the session is not detached")
	case r.IdleMs != nil && (*r.IdleMs < 0 || *r.IdleMs > MaxNumber):
		return Invalid("/idleMs", "Send milliseconds from 0.", "idleMs is out of bounds")
	}
	return cmp.Or(CheckID("/sessionId", "asession", r.SessionID), CheckName("/preset", r.Preset),
		CheckOptionalID("/promptId", "prompt", r.PromptID), CheckOptionalID("/taskId", "task", r.TaskID))
}

// SessionsReport is the whole list of the sessions that an adapter keeps, in the body of
// PUT /api/v1/agents/{id}/sessions. A session that is not in it has ended.
type SessionsReport struct {
	Incarnation int64           `json:"incarnation"` // of the agent, as its registration has answered it
	Sessions    []SessionReport `json:"sessions"`    // at most MaxAgentSessions
}

// Check refuses a list that cannot be true.
func (r SessionsReport) Check() error {
	if r.Incarnation <= 0 || r.Incarnation > MaxNumber {
		return Invalid("/incarnation", "Send the incarnation that the registration has answered.", "incarnation is required")
	}
	if len(r.Sessions) > MaxAgentSessions {
		return Invalid("/sessions", "Keep fewer sessions.", "there are %d sessions, at most %d are allowed",
			len(r.Sessions), MaxAgentSessions)
	}
	seen := map[string]bool{}
	for i, s := range r.Sessions {
		if err := s.Check(); err != nil {
			return PrefixField(fmt.Sprintf("/sessions/%d", i), err)
		}
		if seen[s.SessionID] {
			return Invalid(fmt.Sprintf("/sessions/%d/sessionId", i), "Report each session once.",
				"the session is there twice")
		}
		seen[s.SessionID] = true
	}
	return nil
}

// AgentSession is a session as the server knows it.
type AgentSession struct {
	SessionID   string        `json:"sessionId"`
	AgentID     string        `json:"agentId"`
	AgentName   string        `json:"agentName"`   // key of agents: in picket.yaml; empty: the agent has none
	Incarnation int64         `json:"incarnation"` // of the agent, when it reported last
	Kind        SessionKind   `json:"kind"`
	Preset      string        `json:"preset"`
	PromptID    string        `json:"promptId,omitempty"` // the prompt under way
	TaskID      string        `json:"taskId,omitempty"`   // the task that it works on; empty: none
	OpenPrompts int           `json:"openPrompts"`        // that have not ended, the one under way among them
	Metered     bool          `json:"metered"`            // its model calls go through the tool proxy
	StartedAt   Instant       `json:"startedAt"`          // when it was reported first
	Health      SessionHealth `json:"health"`
	// WakePlan is what the scheduler of wakes plans. It is null in lists, and for a session that has ended or has no
	// agent name.
	WakePlan *WakePlan `json:"wakePlan,omitempty"`
}

// WakePlan is when the scheduler wakes a session next, by what is known now. A message or other work that comes
// meanwhile makes it earlier.
type WakePlan struct {
	// NextAt is the earliest instant of the next wake. Null: it does not help to wait, for the Reason.
	NextAt   *Instant `json:"nextAt"`
	Occasion string   `json:"occasion"` // of that wake, such as time, message or work; empty without NextAt
	// OnlyIfChanged is true if that wake is left out unless something has changed for the agent by then.
	OnlyIfChanged bool `json:"onlyIfChanged"`
	// BackingOff is true if the time between wakes is longer, because the last ones in a row led to nothing.
	BackingOff bool `json:"backingOff"`
	// Reason is why the scheduler cannot wake the session at this moment. Null: nothing speaks against it.
	Reason *WakeReason `json:"reason"`
	LastAt *Instant    `json:"lastAt"` // when a wake of the session was accepted last; null: never, or not known any more
}

// AgentSessionQuery asks for a page of sessions, newest first.
type AgentSessionQuery struct {
	AgentID string // empty: of all agents
	Cursor  int64  // of the page; 0: the first
	Limit   int    // 1 to 100; 0: 50
}

// AgentSessionPage is a page of sessions.
type AgentSessionPage struct {
	Sessions []AgentSession `json:"sessions"`
	Cursor   int64          `json:"cursor,omitzero"` // of the next page; 0: there is none
}

// A SessionState is what a session does.
type SessionState string

// The states of a session.
const (
	SessionIdle      SessionState = "idle"
	SessionPrompting SessionState = "prompting" // a prompt or a run is under way
	SessionStopped   SessionState = "stopped"   // it has ended
	SessionDetached  SessionState = "detached"  // no prompt can be delivered to it
)

// SessionStates lists every state.
func SessionStates() []SessionState {
	return []SessionState{SessionIdle, SessionPrompting, SessionStopped, SessionDetached}
}

// Known reports whether it is one of [SessionStates].
func (s SessionState) Known() bool {
	switch s {
	case SessionIdle, SessionPrompting, SessionStopped, SessionDetached:
		return true
	}
	return false
}

// A HealthGrade says how well a session is known to be.
type HealthGrade string

// The grades of health.
const (
	HealthHealthy  HealthGrade = "healthy"
	HealthDegraded HealthGrade = "degraded" // it hangs, or no prompt can be delivered
	HealthStale    HealthGrade = "stale"    // nothing was reported for too long
	HealthDead     HealthGrade = "dead"
	HealthUnknown  HealthGrade = "unknown" // nothing was reported yet
)

// HealthGrades lists every grade.
func HealthGrades() []HealthGrade {
	return []HealthGrade{HealthHealthy, HealthDegraded, HealthStale, HealthDead, HealthUnknown}
}

// A HealthDetail tells apart the causes of the reason session_unhealthy.
type HealthDetail string

// The detail codes.
const (
	HealthDetailUnknown HealthDetail = "health_unknown"
	HealthDetailDead    HealthDetail = "health_dead"
	HealthDetailStale   HealthDetail = "health_stale"
	HealthDetailHung    HealthDetail = "health_hung"
)

// HealthDetails lists every detail code.
func HealthDetails() []HealthDetail {
	return []HealthDetail{HealthDetailUnknown, HealthDetailDead, HealthDetailStale, HealthDetailHung}
}

// A SessionHealth is what is known about a session at one instant. It decides whether a wake may be
// sent to the session.
type SessionHealth struct {
	State           SessionState `json:"state"`
	Health          HealthGrade  `json:"health"`
	ActivePrompt    bool         `json:"active_prompt"`
	Attachable      bool         `json:"attachable"` // a prompt can be delivered, now or after the present one
	EligibleForWake bool         `json:"eligible_for_wake"`
	// IneligibilityReason is null if the session is eligible.
	IneligibilityReason *WakeReason   `json:"ineligibility_reason"`
	DetailCode          *HealthDetail `json:"detail_code"` // null: the reason says everything
	// LastActivityAt is the last activity of a prompt, LastPresenceAt the last sign of the session,
	// and UpdatedAt the last report about it. Each is null if there was none.
	LastActivityAt Instant `json:"last_activity_at"`
	LastPresenceAt Instant `json:"last_presence_at"`
	UpdatedAt      Instant `json:"updated_at"`
}
