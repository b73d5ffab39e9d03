package heartbeat

import (
	"time"

	"github.com/picket-dev/picket"
)

// HealthFacts are what [Health] judges. All instants are of the store.
type HealthFacts struct {
	// ReportedAt is the last report of the present incarnation of the adapter; 0: there was none.
	ReportedAt picket.Instant
	// KnownSince is from when on reports count: since the store was adopted, and since the server that decides took
	// its lock. 0: all do.
	KnownSince    picket.Instant
	ReportedState picket.SessionState // by the adapter
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
func Health(f HealthFacts, staleAfter time.Duration, now picket.Instant) picket.SessionHealth {
	h := judged{LastActivityAt: f.LastActivityAt, LastPresenceAt: f.LastPresenceAt, UpdatedAt: f.ReportedAt}
	switch {
	case f.ReportedAt.IsZero() || f.ReportedAt < f.KnownSince || !f.ReportedState.Known():
		h.unhealthy(picket.SessionDetached, picket.HealthUnknown, picket.HealthDetailUnknown)
	case f.AgentDead || f.ReportedState == picket.SessionStopped:
		h.unhealthy(picket.SessionStopped, picket.HealthDead, picket.HealthDetailDead)
	case f.AgentUnhealthy || now-f.ReportedAt > picket.Instant(staleAfter.Milliseconds()):
		h.unhealthy(f.ReportedState, picket.HealthStale, picket.HealthDetailStale)
		h.ActivePrompt = f.ActivePrompt
	case f.Nudged && f.prompting():
		h.unhealthy(picket.SessionPrompting, picket.HealthDegraded, picket.HealthDetailHung)
		h.ActivePrompt, h.Attachable = f.ActivePrompt, true
	case f.prompting():
		h.ineligible(picket.SessionPrompting, picket.HealthHealthy, picket.WakeReasonSessionPromptActive)
		h.ActivePrompt, h.Attachable = f.ActivePrompt, true
	case f.AdapterDraining || f.CannotStart || f.ConversationLost || f.ReportedState == picket.SessionDetached:
		h.ineligible(picket.SessionDetached, picket.HealthDegraded, picket.WakeReasonSessionNotAttachable)
	default:
		h.State, h.Health, h.Attachable, h.EligibleForWake = picket.SessionIdle, picket.HealthHealthy, true, true
	}
	return picket.SessionHealth(h)
}

func (f HealthFacts) prompting() bool {
	return f.ActivePrompt || f.ActiveRun || f.ReportedState == picket.SessionPrompting
}

// judged is a health, which the rules of [Health] fill in.
type judged picket.SessionHealth

func (h *judged) ineligible(state picket.SessionState, grade picket.HealthGrade, reason picket.WakeReason) {
	h.State, h.Health, h.IneligibilityReason = state, grade, &reason
}

func (h *judged) unhealthy(state picket.SessionState, grade picket.HealthGrade, detail picket.HealthDetail) {
	h.ineligible(state, grade, picket.WakeReasonSessionUnhealthy)
	h.DetailCode = &detail
}
