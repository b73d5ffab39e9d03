package heartbeat

import "github.com/picket-dev/picket"

// A Decision is the answer to a wake.
type Decision struct {
	Result picket.WakeResult `json:"result"`
	Reason picket.WakeReason `json:"reason"`
	// NextAllowedAt is the first instant at which the reason no longer stands and the windows allow a
	// wake. It is null if no time makes a difference, and for a wake that is sent.
	NextAllowedAt *picket.Instant `json:"next_allowed_at"`
}

// MayDeliver reports whether the prompt may go out.
func (d Decision) MayDeliver() bool { return d.Result == picket.WakeResultSent }

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
		return decided(picket.WakeReasonSent)
	case DeliveryPromptActive:
		return decided(picket.WakeReasonSessionPromptActiveRace)
	}
	return decided(picket.WakeReasonSyntheticPromptFailed)
}

func decided(r picket.WakeReason) Decision { return Decision{Result: r.Result(), Reason: r} }
