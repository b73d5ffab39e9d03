package heartbeat

import (
	"time"

	"github.com/picket-dev/picket"
)

// A SessionState is what a session does.
type SessionState string

// The states of a session.
const (
	StateIdle      SessionState = "idle"
	StatePrompting SessionState = "prompting" // a prompt or a run is under way
	StateStopped   SessionState = "stopped"   // it has ended
	StateDetached  SessionState = "detached"  // no prompt can be delivered to it
)

// SessionStates lists every state.
func SessionStates() []SessionState {
	return []SessionState{StateIdle, StatePrompting, StateStopped, StateDetached}
}

func (s SessionState) valid() bool {
	switch s {
	case StateIdle, StatePrompting, StateStopped, StateDetached:
		return true
	}
	return false
}

// A HealthGrade says how well a session is known to be.
type HealthGrade string

// The grades of health.
const (
	GradeHealthy  HealthGrade = "healthy"
	GradeDegraded HealthGrade = "degraded" // it hangs, or no prompt can be delivered
	GradeStale    HealthGrade = "stale"    // nothing was reported for too long
	GradeDead     HealthGrade = "dead"
	GradeUnknown  HealthGrade = "unknown" // nothing was reported yet
)

// HealthGrades lists every grade.
func HealthGrades() []HealthGrade {
	return []HealthGrade{GradeHealthy, GradeDegraded, GradeStale, GradeDead, GradeUnknown}
}

// A DetailCode tells apart the causes of the reason session_unhealthy.
type DetailCode string

// The detail codes.
const (
	DetailUnknown DetailCode = "health_unknown"
	DetailDead    DetailCode = "health_dead"
	DetailStale   DetailCode = "health_stale"
	DetailHung    DetailCode = "health_hung"
)

// DetailCodes lists every detail code.
func DetailCodes() []DetailCode {
	return []DetailCode{DetailUnknown, DetailDead, DetailStale, DetailHung}
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
	IneligibilityReason *Reason     `json:"ineligibility_reason"`
	DetailCode          *DetailCode `json:"detail_code"` // null: the reason says everything
	// LastActivityAt is the last activity of a prompt, LastPresenceAt the last sign of the session,
	// and UpdatedAt the last report about it. Each is null if there was none.
	LastActivityAt picket.Instant `json:"last_activity_at"`
	LastPresenceAt picket.Instant `json:"last_presence_at"`
	UpdatedAt      picket.Instant `json:"updated_at"`
}

// HealthFacts are what [Health] judges. All instants are of the store.
type HealthFacts struct {
	// ReportedAt is the last report of the present incarnation of the adapter; 0: there was none.
	ReportedAt picket.Instant
	// KnownSince is when the server that decides took its lock. Older reports do not count. 0: all do.
	KnownSince    picket.Instant
	ReportedState SessionState // by the adapter
	ActivePrompt  bool
	ActiveRun     bool // the session works on a task
	Nudged        bool // for silence, while prompting
	// AgentDead is true if the agent is dead or deregistered.
	AgentDead       bool
	AgentUnhealthy  bool
	AdapterDraining bool
	// CannotStart is true if no process of the session can be started, and ConversationLost if there
	// is no conversation to resume.
	CannotStart      bool
	ConversationLost bool
	LastActivityAt   picket.Instant
	LastPresenceAt   picket.Instant
}

// Health judges a session at an instant. A report is stale if it is older than staleAfter; one of
// exactly that age is not. Facts that contradict each other never make a session eligible.
func Health(f HealthFacts, staleAfter time.Duration, now picket.Instant) SessionHealth {
	h := SessionHealth{LastActivityAt: f.LastActivityAt, LastPresenceAt: f.LastPresenceAt, UpdatedAt: f.ReportedAt}
	switch {
	case f.ReportedAt.IsZero() || f.ReportedAt < f.KnownSince || !f.ReportedState.valid():
		h.unhealthy(StateDetached, GradeUnknown, DetailUnknown)
	case f.AgentDead || f.ReportedState == StateStopped:
		h.unhealthy(StateStopped, GradeDead, DetailDead)
	case f.AgentUnhealthy || now-f.ReportedAt > picket.Instant(staleAfter.Milliseconds()):
		h.unhealthy(f.ReportedState, GradeStale, DetailStale)
		h.ActivePrompt = f.ActivePrompt
	case f.Nudged && f.prompting():
		h.unhealthy(StatePrompting, GradeDegraded, DetailHung)
		h.ActivePrompt, h.Attachable = f.ActivePrompt, true
	case f.prompting():
		h.ineligible(StatePrompting, GradeHealthy, ReasonSessionPromptActive)
		h.ActivePrompt, h.Attachable = f.ActivePrompt, true
	case f.AdapterDraining || f.CannotStart || f.ConversationLost || f.ReportedState == StateDetached:
		h.ineligible(StateDetached, GradeDegraded, ReasonSessionNotAttachable)
	default:
		h.State, h.Health, h.Attachable, h.EligibleForWake = StateIdle, GradeHealthy, true, true
	}
	return h
}

func (f HealthFacts) prompting() bool {
	return f.ActivePrompt || f.ActiveRun || f.ReportedState == StatePrompting
}

func (h *SessionHealth) ineligible(state SessionState, grade HealthGrade, reason Reason) {
	h.State, h.Health, h.IneligibilityReason = state, grade, &reason
}

func (h *SessionHealth) unhealthy(state SessionState, grade HealthGrade, detail DetailCode) {
	h.ineligible(state, grade, ReasonSessionUnhealthy)
	h.DetailCode = &detail
}
