package heartbeat

import (
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// WakeFacts are what [Decide] decides by. All instants are of the store.
type WakeFacts struct {
	Now      picket.Instant
	Source   picket.WakeSource
	Settings Settings
	Agent    string  // the name of the agent
	Policy   *Policy // nil: the agent has none
	// Conflict is true if the file and the store were both changed.
	Conflict bool
	Session  *WakeSession // nil: there is no such session

	NamespacePaused bool
	AgentDraining   bool
	// Available is what the wakes of the agent may spend today, and those of the namespace.
	Available budget.Money
	// Reserved is true if nothing of it is available only because other prompts have reserved it.
	Reserved bool
	// NoBudget is true if a limit of the day is 0. Then no later day has more.
	NoBudget bool
	// OwnKeys is true if the agent pays its model with keys of its own, and UnmeteredAllowed if it has
	// the setting unmetered.
	OwnKeys          bool
	UnmeteredAllowed bool

	LastWake     picket.Instant // of the session; 0: never
	WakeUnderWay bool           // another wake of the session is being delivered
	WakesInCycle int            // of the agent, in this cycle
	CycleEndsAt  picket.Instant // 0: unknown
}

// A WakeSession is the session that a wake is for.
type WakeSession struct {
	Agent  string // the name of the agent that it belongs to
	Health picket.SessionHealth
}

// Decide decides about a wake. The first rule that refuses gives the reason. A decision with the
// result sent means that the wake may be reserved and delivered; see [Delivered].
func Decide(f WakeFacts) Decision {
	rules := []func(WakeFacts) *Decision{policyRule, windowRule, sessionRule, ownerRule, intervalRule, cycleRule}
	for _, rule := range rules {
		if d := rule(f); d != nil {
			return *d
		}
	}
	return decided(picket.WakeReasonSent)
}

// maxLooksAhead bounds how many refusals [NextAllowed] waits out, one after the other.
const maxLooksAhead = 8

// NextAllowed is the first instant from f.Now on at which [Decide] would let a wake go out, if the session were idle
// and healthy then and had no other wake under way. ok is false if it does not help to wait.
func NextAllowed(f WakeFacts) (at picket.Instant, ok bool) {
	if f.Session == nil {
		return 0, false
	}
	f.Session, f.WakeUnderWay = &WakeSession{Agent: f.Session.Agent, Health: picket.SessionHealth{EligibleForWake: true,
		Attachable: true, State: picket.SessionIdle, Health: picket.HealthHealthy}}, false
	for range maxLooksAhead {
		d := Decide(f)
		switch {
		case d.Result == picket.WakeResultSent:
			return f.Now, true
		case d.NextAllowedAt == nil:
			return 0, false
		case d.Reason == picket.WakeReasonBudgetExceeded:
			f.Available = budget.MaxMoney // another day has its own budget
		}
		f.Now = *d.NextAllowedAt
		if f.Now >= f.CycleEndsAt {
			f.WakesInCycle = 0
		}
	}
	return 0, false
}

// policyRule needs a valid policy that is enabled.
func policyRule(f WakeFacts) *Decision {
	switch {
	case !f.Settings.Enabled:
		return refused(picket.WakeReasonDisabled)
	case f.Conflict:
		return refused(picket.WakeReasonInvalid)
	case f.Policy == nil:
		return refused(picket.WakeReasonNoPolicy)
	case !f.Policy.Valid:
		return refused(picket.WakeReasonInvalid)
	case !f.Policy.Enabled:
		return refused(picket.WakeReasonDisabled)
	}
	return nil
}

// windowRule needs an instant in the active hours and in no quiet window.
func windowRule(f WakeFacts) *Decision {
	if f.Policy.Hours(f.Settings).Allows(f.Now) {
		return nil
	}
	return f.until(picket.WakeReasonQuietWindow, f.Now)
}

// sessionRule needs a session of the agent that may be woken.
func sessionRule(f WakeFacts) *Decision {
	if f.Session == nil || f.Session.Agent != f.Agent {
		return refused(picket.WakeReasonSessionNotFound)
	}
	h := f.Session.Health
	switch {
	case h.EligibleForWake && h.IneligibilityReason == nil && h.Attachable && !h.ActivePrompt &&
		h.State == picket.SessionIdle && h.Health == picket.HealthHealthy:
		return nil
	case h.IneligibilityReason == nil || h.IneligibilityReason.Result() != picket.WakeResultSkipped:
		return refused(picket.WakeReasonSessionUnhealthy)
	}
	return refused(*h.IneligibilityReason)
}

// ownerRule needs that the operator lets the agent work, and that there is money.
func ownerRule(f WakeFacts) *Decision {
	switch {
	case f.NamespacePaused:
		return refused(picket.WakeReasonPaused)
	case f.AgentDraining:
		return refused(picket.WakeReasonAgentDraining)
	case f.Available <= 0 && (f.Reserved || f.NoBudget):
		return refused(picket.WakeReasonBudgetExceeded)
	case f.Available <= 0:
		return f.until(picket.WakeReasonBudgetExceeded, NextDay(f.Now))
	case f.Source == picket.WakeSourceScheduler && f.OwnKeys && !f.UnmeteredAllowed:
		return refused(picket.WakeReasonUnmetered)
	}
	return nil
}

// intervalRule needs that the last wake of the session is long enough ago.
func intervalRule(f WakeFacts) *Decision {
	next := after(f.LastWake, spacing(f.Policy, f.Settings))
	early := !f.LastWake.IsZero() && f.Now < next
	switch {
	case !early && f.WakeUnderWay:
		return refused(picket.WakeReasonCoalesced)
	case !early:
		return nil
	case f.WakeUnderWay || f.Source == picket.WakeSourceScheduler:
		return f.until(picket.WakeReasonCoalesced, next)
	}
	return f.until(picket.WakeReasonCooldownActive, next)
}

// cycleRule needs that the agent was not woken too often in this cycle.
func cycleRule(f WakeFacts) *Decision {
	if f.WakesInCycle < f.Settings.MaxWakesPerCycle {
		return nil
	}
	if f.CycleEndsAt.IsZero() {
		return refused(picket.WakeReasonRateLimited)
	}
	return f.until(picket.WakeReasonRateLimited, f.CycleEndsAt)
}

func refused(r picket.WakeReason) *Decision {
	d := decided(r)
	return &d
}

// until refuses until an instant, or until the windows allow a wake after it.
func (f WakeFacts) until(r picket.WakeReason, at picket.Instant) *Decision {
	d := refused(r)
	if next, ok := f.Policy.Hours(f.Settings).Next(at); ok {
		d.NextAllowedAt = &next
	}
	return d
}

// spacing is the least time between two wakes of a session.
func spacing(p *Policy, s Settings) time.Duration { return max(p.OwnInterval(s), s.WakeCooldown) }

// after adds a duration to an instant. Parts of a millisecond count as a whole one.
func after(at picket.Instant, d time.Duration) picket.Instant {
	return at + picket.Instant((d+time.Millisecond-1)/time.Millisecond)
}

// NextDay is the beginning of the UTC day after an instant.
func NextDay(at picket.Instant) picket.Instant {
	return picket.InstantOf(time.UnixMilli(int64(at)).UTC().Truncate(24 * time.Hour).Add(24 * time.Hour))
}
