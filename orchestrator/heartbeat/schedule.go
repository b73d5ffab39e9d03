package heartbeat

import (
	"time"

	"github.com/picket-dev/picket"
)

// An Occasion is why a session is woken.
type Occasion string

// The occasions.
const (
	OccasionManual  Occasion = "manual"  // a person asked for it
	OccasionAgent   Occasion = "agent"   // the agent asked for it
	OccasionTime    Occasion = "time"    // enough time has passed
	OccasionMessage Occasion = "message" // there are unread messages
	OccasionHandoff Occasion = "handoff" // a hand-off was answered
	OccasionSubtask Occasion = "subtask" // a subtask has ended
	OccasionWork    Occasion = "work"    // tasks are queued for which nobody waits
)

// Occasions lists every occasion.
func Occasions() []Occasion {
	return []Occasion{OccasionManual, OccasionAgent, OccasionTime, OccasionMessage, OccasionHandoff, OccasionSubtask,
		OccasionWork}
}

// MaxAgentMessageWakes bounds the wakes of a session in an hour that only messages of agents caused.
const MaxAgentMessageWakes = 4

// The back-off of sessions whose wakes lead to nothing: the interval doubles after each backOffAfter
// such wakes in a row, up to maxBackOff times.
const (
	backOffAfter = 3
	maxBackOff   = 8
)

// News are what has come for a session since its last wake, as numbers.
type News struct {
	Messages         int // unread ones of people
	AgentMessages    int // unread ones of agents
	AnsweredHandoffs int
	SettledSubtasks  int
	UnattendedWork   int // queued tasks on lanes that the agent covers, while nobody waits there
	// AgentMessageWakes are the wakes of the last hour that only messages of agents caused.
	AgentMessageWakes int
}

// occasion is the first thing to look at. It is empty if there is nothing.
func (n News) occasion() Occasion {
	switch {
	case n.Messages > 0:
		return OccasionMessage
	case n.AnsweredHandoffs > 0:
		return OccasionHandoff
	case n.SettledSubtasks > 0:
		return OccasionSubtask
	case n.UnattendedWork > 0:
		return OccasionWork
	case n.AgentMessages > 0 && n.AgentMessageWakes < MaxAgentMessageWakes:
		return OccasionMessage
	}
	return ""
}

// ScheduleFacts are what [Plan] plans by. All instants are of the store; 0 means never.
type ScheduleFacts struct {
	Now          picket.Instant
	Settings     Settings
	Policy       *Policy        // nil: the agent has none
	Since        picket.Instant // when the session was reported first
	LastWake     picket.Instant
	LastActivity picket.Instant
	// LastUnchanged is when a wake by the clock was last left out because nothing had changed.
	LastUnchanged picket.Instant
	// IdleWakes are the wakes in a row under which the agent sent no message and read none.
	IdleWakes int
	News      News
	// Changed is true if the context of the session is another one than at its last wake.
	Changed bool
}

// A Schedule is when the scheduler wakes a session next.
type Schedule struct {
	// DueAt is the instant; 0: never, because the policy does not allow it. It may be in the past.
	// Such a wake is delivered once.
	DueAt    picket.Instant
	Occasion Occasion // empty with a DueAt of 0
	// Interval is the time from one wake by the clock to the next one.
	Interval time.Duration
	// BackingOff is true if the interval was made longer because wakes led to nothing.
	BackingOff bool
	// OnlyIfChanged is true of a wake by the clock that is left out if nothing changes until DueAt.
	OnlyIfChanged bool
	// Unchanged is true if a wake by the clock must be left out, because nothing has changed.
	// Then the next one is due an interval after LastUnchanged.
	Unchanged bool
}

// Due reports whether the session has to be woken.
func (s Schedule) Due(now picket.Instant) bool {
	return !s.DueAt.IsZero() && s.DueAt <= now && !s.Unchanged
}

// Plan says when the scheduler has to wake a session. [Decide] then decides about that wake.
func Plan(f ScheduleFacts) Schedule {
	if policyRule(WakeFacts{Settings: f.Settings, Policy: f.Policy}) != nil {
		return Schedule{}
	}
	times := backOff(f.IdleWakes)
	s := Schedule{Occasion: OccasionTime, BackingOff: times > 1,
		Interval: times * min(max(f.Settings.DefaultInterval, f.Policy.OwnInterval(f.Settings)), MaxInterval)}
	due, earliest := after(max(f.Since, f.LastWake, f.LastActivity, f.LastUnchanged), s.Interval), picket.Instant(0)
	if !f.LastWake.IsZero() {
		earliest = after(f.LastWake, spacing(f.Policy, f.Settings))
	}
	due = max(due, earliest)
	if news := f.News.occasion(); news != "" {
		s.Occasion, due = news, max(f.Now, earliest)
	}
	return s.within(f, due)
}

// within moves a due time into the hours of the policy.
func (s Schedule) within(f ScheduleFacts, due picket.Instant) Schedule {
	hours := f.Policy.Hours(f.Settings)
	if due < f.Now && !hours.Allows(f.Now) {
		due = f.Now
	}
	next, ok := hours.Next(due)
	if !ok {
		return Schedule{}
	}
	s.DueAt = next
	s.OnlyIfChanged = s.Occasion == OccasionTime && !f.Changed && !f.Settings.WhenIdle
	s.Unchanged = s.OnlyIfChanged && next <= f.Now
	return s
}

// backOff is how many times the interval is longer.
func backOff(idleWakes int) time.Duration {
	times := time.Duration(1)
	for n := backOffAfter; n <= idleWakes && times < maxBackOff; n += backOffAfter {
		times *= 2
	}
	return times
}
