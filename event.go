package picket

import stdjson "encoding/json"

// RawJSON is JSON kept byte for byte; empty is written as null.
type RawJSON = stdjson.RawMessage

// Event is one line of the log: every transition writes exactly one in the
// same atomic step.
type Event struct {
	ID           string  `json:"id"`  // the sequence number in decimal; the cursor of pages and streams
	Seq          int64   `json:"seq"` // dense, from 1
	Type         string  `json:"type"`
	At           Instant `json:"at"`
	TaskID       string  `json:"taskId,omitempty"`
	RunID        string  `json:"runId,omitempty"`
	AgentID      string  `json:"agentId,omitempty"`
	FencingToken int64   `json:"fencingToken,omitzero"` // 0: the event is not about a lease
	Actor        string  `json:"actor"`
	Reason       string  `json:"reason,omitempty"` // of lease events
	Data         RawJSON `json:"data"`
	// Launcher holds the document's fields of agent-heartbeat,
	// agent-timeout-warning and agent-timed-out, at the top level.
	LauncherFields
	// Lifecycle holds RFC-0016's fields of agent.lifecycle.
	LifecycleFields
}

// LauncherFields are the members of the launcher's events that stand at the
// top level of an event. nil stands for a member that was not sent; numbers are not negative.
type LauncherFields struct {
	Agent             string   `json:"agent,omitempty"`
	SessionID         string   `json:"sessionId,omitempty"`
	IssueNumber       *int64   `json:"issueNumber,omitempty"`       // from the label "issue" of the task
	ElapsedSeconds    *float64 `json:"elapsedSeconds,omitempty"`    // since the launch
	TimeoutSeconds    *float64 `json:"timeoutSeconds,omitempty"`    // the task's own
	TimeoutPercentage *float64 `json:"timeoutPercentage,omitempty"` // share of the timeout that is over, 0 to 1
	RemainingSeconds  *float64 `json:"remainingSeconds,omitempty"`  // until the timeout
}

// Event types, named after the verb that writes them.
const (
	EventTaskSubmitted       = "task.submitted"
	EventTaskLeased          = "task.leased"
	EventTaskProgress        = "task.progress"
	EventTaskArtifact        = "task.artifact"
	EventTaskStatus          = "task.status"
	EventTaskReview          = "task.review"
	EventTaskCompleted       = "task.completed"
	EventTaskHandoff         = "task.handoff"
	EventTaskAnswered        = "task.answered"
	EventTaskFinished        = "task.finished"
	EventTaskApproved        = "task.approved"
	EventTaskRejected        = "task.rejected"
	EventTaskCancelled       = "task.cancelled"
	EventTaskRetried         = "task.retried"
	EventLeaseReleased       = "lease.released"
	EventLeaseFailed         = "lease.failed"
	EventLeaseExpired        = "lease.expired"
	EventLeaseReclaimed      = "lease.reclaimed"
	EventStoreAdopted        = "store.adopted"
	EventWriteRefused        = "write.refused"
	EventHandoffClaimed      = "handoff.claimed"
	EventHandoffOverdue      = "handoff.overdue"
	EventHandoffReminder     = "handoff.reminder"
	EventReviewReminder      = "review.reminder"
	EventInvariantViolated   = "invariant.violated"
	EventInvariantRepaired   = "invariant.repaired"
	EventPaused              = "namespace.paused"
	EventResumed             = "namespace.resumed"
	EventKeyCreated          = "key.created"
	EventKeyRevoked          = "key.revoked"
	EventLoginOpened         = "session.opened"
	EventLoginClosed         = "session.closed"
	EventRunLaunched         = "run.launched"
	EventRunExited           = "run.exited"
	EventEvidenceReplaced    = "run.evidence_replaced"
	EventRunStalled          = "run.stalled"
	EventAgentLifecycle      = "agent.lifecycle"
	EventAgentCommand        = "agent.command"
	EventAgentDrift          = "agent.drift"
	EventAgentDrainOverdue   = "agent.drain_overdue"
	EventToolCalled          = "tool.called"
	EventBudgetWarning       = "budget.warning"
	EventBudgetExceeded      = "budget.exceeded"
	EventBudgetToppedUp      = "budget.topped_up"
	EventBudgetOverrun       = "budget.overrun"
	EventBudgetUncertain     = "budget.uncertain"
	EventBudgetLate          = "budget.late"
	EventBudgetUnverified    = "budget.unverified"
	EventMessageSent         = "message.sent"
	EventPolicyWritten       = "heartbeat_policy.written"
	EventPolicyDeleted       = "heartbeat_policy.deleted"
	EventPolicyRolledBack    = "heartbeat_policy.rolled_back"
	EventSessionStarted      = "agent_session.started"
	EventSessionPrompted     = "agent_session.prompted"
	EventSessionStopping     = "agent_session.stopping"
	EventSessionEnded        = "agent_session.ended"
	EventSessionLost         = "agent_session.lost"
	EventSessionHealth       = "agent_session.health"
	EventSessionWaking       = "agent_session.waking"
	EventSessionWoken        = "agent_session.woken"
	EventWebhookCreated      = "webhook.created"
	EventWebhookDeleted      = "webhook.deleted"
	EventWebhookRevived      = "webhook.revived"
	EventWebhookDead         = "webhook.dead"
	EventWebhookGap          = "webhook.gap"
	EventAgentHeartbeat      = "agent-heartbeat"
	EventAgentTimeoutWarning = "agent-timeout-warning"
	EventAgentTimedOut       = "agent-timed-out"
)

// EventTypes are all types that can stand in the log.
var EventTypes = []string{
	EventTaskSubmitted, EventTaskLeased, EventTaskProgress, EventTaskArtifact, EventTaskStatus,
	EventTaskReview, EventTaskCompleted, EventTaskHandoff,
	EventTaskAnswered, EventTaskFinished, EventTaskApproved, EventTaskRejected, EventTaskCancelled, EventTaskRetried,
	EventLeaseReleased, EventLeaseFailed, EventLeaseExpired, EventLeaseReclaimed, EventStoreAdopted, EventWriteRefused,
	EventHandoffClaimed, EventHandoffOverdue, EventHandoffReminder, EventReviewReminder,
	EventInvariantViolated, EventInvariantRepaired,
	EventAgentLifecycle, EventAgentCommand, EventAgentDrift, EventAgentDrainOverdue,
	EventToolCalled, EventBudgetWarning, EventBudgetExceeded, EventBudgetToppedUp, EventBudgetOverrun,
	EventBudgetUncertain, EventBudgetLate, EventBudgetUnverified,
	EventPaused, EventResumed, EventKeyCreated, EventKeyRevoked, EventLoginOpened, EventLoginClosed,
	EventRunLaunched, EventRunExited, EventEvidenceReplaced,
	EventRunStalled, EventAgentHeartbeat, EventAgentTimeoutWarning, EventAgentTimedOut,
	EventMessageSent, EventPolicyWritten, EventPolicyDeleted, EventPolicyRolledBack,
	EventSessionStarted, EventSessionPrompted, EventSessionStopping, EventSessionEnded, EventSessionLost,
	EventSessionHealth, EventSessionWaking, EventSessionWoken,
	EventWebhookCreated, EventWebhookDeleted, EventWebhookRevived, EventWebhookDead, EventWebhookGap,
}

// MaxEventID bounds the id of a run event, in bytes.
const MaxEventID = 64

// RunEvent is one entry of POST /v1/run/events. It is a launcher event, run.launched or
// run.stalled. With run.launched an adapter announces its process. With run.stalled it reports that
// the agent shows no sign of life and has to be nudged.
type RunEvent struct {
	Type string `json:"type"`
	// ID, up to 64 printable characters, makes the event count once: the same
	// id again, as after a lost answer, is taken and not written.
	ID     string `json:"id,omitempty"`
	TaskID string `json:"taskId,omitempty"`
	LauncherFields
	// Containment and WorkspacePath are of run.launched: how the process tree is
	// held together, and the absolute directory it works in.
	Containment   string `json:"containment,omitempty"`
	WorkspacePath string `json:"workspacePath,omitempty"`
	// Exec is of run.launched too: the adapter runs processes for the tool exec.
	Exec bool `json:"exec,omitzero"`
	// IdleSeconds is of run.stalled: since the last sign of life.
	IdleSeconds *float64 `json:"idleSeconds,omitempty"`
}

// EventQuery selects a page of the log in ascending order. Filters are AND-ed.
type EventQuery struct {
	After  int64 // sequence number read last; 0 is the beginning
	Types  []string
	TaskID string
	Agent  string
	Limit  int // 1 to 1,000, default 100
	// Audit reads the audit log instead of the log.
	Audit bool
	// NoticesOnly leaves out events that are not notices; see Event.Notice.
	NoticesOnly bool
	// NewestFirst reads the newest first: After is then the lowest number read so far, 0
	// the end of the log.
	NewestFirst bool
	// Until, with Back and without After, leaves out what came later.
	Until Instant
}

// EventPage is a page of the log; Next is the last sequence number looked at,
// or empty when a page that was read backwards has come to the beginning.
type EventPage struct {
	Events []Event `json:"events"`
	Next   string  `json:"next"`
}
