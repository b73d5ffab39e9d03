package heartbeat

import "github.com/picket-dev/picket"

// A Result is how a wake ended.
type Result string

// The results.
const (
	ResultSent        Result = "sent"
	ResultSkipped     Result = "skipped"
	ResultCoalesced   Result = "coalesced" // counted with another wake
	ResultRateLimited Result = "rate_limited"
	ResultFailed      Result = "failed"
)

// Results lists every result.
func Results() []Result {
	return []Result{ResultSent, ResultSkipped, ResultCoalesced, ResultRateLimited, ResultFailed}
}

// A Reason says why a wake ended as it did.
type Reason string

// The reasons.
const (
	ReasonWakeSent                Reason = "wake_sent"
	ReasonDisabled                Reason = "heartbeat_disabled" // by the settings or the file, or the file is empty
	ReasonInvalid                 Reason = "heartbeat_invalid"  // also: file and store contradict each other
	ReasonNoPolicy                Reason = "heartbeat_no_policy"
	ReasonHeartbeatRateLimited    Reason = "heartbeat_rate_limited" // too many wakes of the agent in the cycle
	ReasonCooldownActive          Reason = "cooldown_active"
	ReasonQuietWindow             Reason = "quiet_window" // or outside the active hours
	ReasonSessionNotFound         Reason = "session_not_found"
	ReasonSessionUnhealthy        Reason = "session_unhealthy"
	ReasonSessionNotAttachable    Reason = "session_not_attachable"
	ReasonSessionPromptActive     Reason = "session_prompt_active"
	ReasonSessionPromptActiveRace Reason = "session_prompt_active_race"
	ReasonSyntheticPromptFailed   Reason = "synthetic_prompt_failed"
	ReasonWakeCoalesced           Reason = "wake_coalesced"

	// Picket's own reasons.
	ReasonAgentDraining      Reason = "agent_draining"
	ReasonPaused             Reason = "paused" // the namespace
	ReasonWakeBudgetExceeded Reason = "wake_budget_exceeded"
	ReasonUnmetered          Reason = "unmetered" // the agent uses keys of its own
)

// reasonResults has the result that each reason stands with.
var reasonResults = map[Reason]Result{
	ReasonWakeSent:                ResultSent,
	ReasonDisabled:                ResultSkipped,
	ReasonInvalid:                 ResultSkipped,
	ReasonNoPolicy:                ResultSkipped,
	ReasonHeartbeatRateLimited:    ResultRateLimited,
	ReasonCooldownActive:          ResultRateLimited,
	ReasonQuietWindow:             ResultSkipped,
	ReasonSessionNotFound:         ResultSkipped,
	ReasonSessionUnhealthy:        ResultSkipped,
	ReasonSessionNotAttachable:    ResultSkipped,
	ReasonSessionPromptActive:     ResultSkipped,
	ReasonSessionPromptActiveRace: ResultSkipped,
	ReasonSyntheticPromptFailed:   ResultFailed,
	ReasonWakeCoalesced:           ResultCoalesced,
	ReasonAgentDraining:           ResultSkipped,
	ReasonPaused:                  ResultSkipped,
	ReasonWakeBudgetExceeded:      ResultSkipped,
	ReasonUnmetered:               ResultSkipped,
}

// Reasons lists every reason, in no order.
func Reasons() []Reason {
	all := make([]Reason, 0, len(reasonResults))
	for r := range reasonResults {
		all = append(all, r)
	}
	return all
}

// Result is the result that the reason stands with. It is empty for an unknown reason.
func (r Reason) Result() Result { return reasonResults[r] }

// A Decision is the answer to a wake.
type Decision struct {
	Result Result `json:"result"`
	Reason Reason `json:"reason"`
	// NextAllowedAt is the first instant at which the reason no longer stands and the windows allow a
	// wake. It is null if no time makes a difference, and for a wake that is sent.
	NextAllowedAt *picket.Instant `json:"next_allowed_at"`
}

// MayDeliver reports whether the prompt may go out.
func (d Decision) MayDeliver() bool { return d.Result == ResultSent }

// A DeliveryAnswer is what the adapter answered to the command to deliver a wake.
type DeliveryAnswer string

// The answers. Every other one counts as DeliveryTimedOut.
const (
	DeliveryAccepted     DeliveryAnswer = "accepted"
	DeliveryPromptActive DeliveryAnswer = "prompt_active" // another prompt has the prompt lock
	DeliveryRefused      DeliveryAnswer = "refused"
	DeliveryTimedOut     DeliveryAnswer = "timed_out" // no answer in time
)

// Delivered is the decision after the adapter has answered. If it is not sent, what was reserved for
// the wake is returned.
func Delivered(answer DeliveryAnswer) Decision {
	switch answer {
	case DeliveryAccepted:
		return decided(ReasonWakeSent)
	case DeliveryPromptActive:
		return decided(ReasonSessionPromptActiveRace)
	}
	return decided(ReasonSyntheticPromptFailed)
}

func decided(r Reason) Decision { return Decision{Result: r.Result(), Reason: r} }
