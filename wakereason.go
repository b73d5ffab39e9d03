package picket

// A WakeResult is how a wake ended.
type WakeResult string

// The results.
const (
	WakeResultSent        WakeResult = "sent"
	WakeResultSkipped     WakeResult = "skipped"
	WakeResultCoalesced   WakeResult = "coalesced" // counted with another wake
	WakeResultRateLimited WakeResult = "rate_limited"
	WakeResultFailed      WakeResult = "failed"
)

// WakeResults lists every result.
func WakeResults() []WakeResult {
	return []WakeResult{WakeResultSent, WakeResultSkipped, WakeResultCoalesced, WakeResultRateLimited, WakeResultFailed}
}

// A WakeReason says why a wake ended as it did.
type WakeReason string

// The reasons.
const (
	WakeReasonSent                    WakeReason = "wake_sent"
	WakeReasonDisabled                WakeReason = "heartbeat_disabled" // by the settings or the file, or the file is empty
	WakeReasonInvalid                 WakeReason = "heartbeat_invalid"  // also: file and store contradict each other
	WakeReasonNoPolicy                WakeReason = "heartbeat_no_policy"
	WakeReasonRateLimited             WakeReason = "heartbeat_rate_limited" // too many wakes of the agent in the cycle
	WakeReasonCooldownActive          WakeReason = "cooldown_active"
	WakeReasonQuietWindow             WakeReason = "quiet_window" // or outside the active hours
	WakeReasonSessionNotFound         WakeReason = "session_not_found"
	WakeReasonSessionUnhealthy        WakeReason = "session_unhealthy"
	WakeReasonSessionNotAttachable    WakeReason = "session_not_attachable"
	WakeReasonSessionPromptActive     WakeReason = "session_prompt_active"
	WakeReasonSessionPromptActiveRace WakeReason = "session_prompt_active_race"
	WakeReasonSyntheticPromptFailed   WakeReason = "synthetic_prompt_failed"
	WakeReasonCoalesced               WakeReason = "wake_coalesced"

	// Picket's own reasons.
	WakeReasonAgentDraining  WakeReason = "agent_draining"
	WakeReasonPaused         WakeReason = "paused" // the namespace
	WakeReasonBudgetExceeded WakeReason = "wake_budget_exceeded"
	WakeReasonUnmetered      WakeReason = "unmetered" // the session is not metered, and its agent name not marked
)

// wakeReasonResults has the result that each reason stands with.
var wakeReasonResults = map[WakeReason]WakeResult{
	WakeReasonSent:                    WakeResultSent,
	WakeReasonDisabled:                WakeResultSkipped,
	WakeReasonInvalid:                 WakeResultSkipped,
	WakeReasonNoPolicy:                WakeResultSkipped,
	WakeReasonRateLimited:             WakeResultRateLimited,
	WakeReasonCooldownActive:          WakeResultRateLimited,
	WakeReasonQuietWindow:             WakeResultSkipped,
	WakeReasonSessionNotFound:         WakeResultSkipped,
	WakeReasonSessionUnhealthy:        WakeResultSkipped,
	WakeReasonSessionNotAttachable:    WakeResultSkipped,
	WakeReasonSessionPromptActive:     WakeResultSkipped,
	WakeReasonSessionPromptActiveRace: WakeResultSkipped,
	WakeReasonSyntheticPromptFailed:   WakeResultFailed,
	WakeReasonCoalesced:               WakeResultCoalesced,
	WakeReasonAgentDraining:           WakeResultSkipped,
	WakeReasonPaused:                  WakeResultSkipped,
	WakeReasonBudgetExceeded:          WakeResultSkipped,
	WakeReasonUnmetered:               WakeResultSkipped,
}

// WakeReasons lists every reason, in no order.
func WakeReasons() []WakeReason {
	all := make([]WakeReason, 0, len(wakeReasonResults))
	for r := range wakeReasonResults {
		all = append(all, r)
	}
	return all
}

// Result is the result that the reason stands with. It is empty for an unknown reason.
func (r WakeReason) Result() WakeResult { return wakeReasonResults[r] }
