package picket

// Explanation answers "why is it not running". Because holds the texts of
// Reasons. Next holds commands that a person can run.
type Explanation struct {
	State   TaskState `json:"state"`
	Because []string  `json:"because"`
	Reasons []Reason  `json:"reasons"`
	Next    []string  `json:"next"`
}

// Reason is one reason why a task is where it is. Programs compare the code; the
// text is for people and can change.
type Reason struct {
	Code ReasonCode `json:"code"`
	Text string     `json:"text"`
	// Until is when the reason ends at the latest, if that is known.
	Until Instant `json:"until,omitzero"`
}

// ReasonCode names a kind of reason.
type ReasonCode string

// The reasons of an explanation.
const (
	ReasonNoReaper        ReasonCode = "no_reaper"         // no reaper runs, so store time stands still
	ReasonRunning         ReasonCode = "running"           // a run holds its lease; until its deadline
	ReasonInReview        ReasonCode = "in_review"         // it waits for a decision
	ReasonInHandoff       ReasonCode = "in_handoff"        // it waits for a person
	ReasonEnded           ReasonCode = "ended"             // it will not run again
	ReasonGiven           ReasonCode = "given"             // the reason that was given for its end
	ReasonCancelledAbove  ReasonCode = "cancelled_above"   // a task above it was cancelled
	ReasonPaused          ReasonCode = "paused"            // the namespace is paused
	ReasonCallUnderWay    ReasonCode = "call_under_way"    // a call of the lease before may still act outside
	ReasonAwaitingExit    ReasonCode = "awaiting_exit"     // the process of the run before has not reported its exit
	ReasonNotBefore       ReasonCode = "not_before"        // its start has not come
	ReasonBackoff         ReasonCode = "backoff"           // it waits after a failure
	ReasonTasksAhead      ReasonCode = "tasks_ahead"       // other tasks of its lane come first
	ReasonKeptForAgent    ReasonCode = "kept_for_agent"    // the agent that asked may take it first
	ReasonPinned          ReasonCode = "pinned"            // only one agent may take it
	ReasonAgentWaiting    ReasonCode = "agent_waiting"     // an agent asks for it: it starts at once
	ReasonNobodyWaiting   ReasonCode = "nobody_waiting"    // no agent asks for work of its lane
	ReasonAgentAboveBusy  ReasonCode = "agent_above_busy"  // the agent of the task above it asks for nothing
	ReasonPinnedAgentGone ReasonCode = "pinned_agent_gone" // it is dead or deregistered
	ReasonPinnedAgentIdle ReasonCode = "pinned_agent_idle" // it is registered and does not ask
	ReasonAgentsIdle      ReasonCode = "agents_idle"       // registered agents could take it, and do not ask
	ReasonNoAgent         ReasonCode = "no_agent"          // no registered agent serves its lane
)
