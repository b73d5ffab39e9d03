package picket

import (
	"slices"

	"github.com/go-json-experiment/json"
)

// NoticeTypes are the event types a person always wants to hear of: one for
// each change that needs people or ends something.
var NoticeTypes = []string{
	EventTaskHandoff, EventHandoffOverdue, EventTaskReview, EventHandoffReminder, EventReviewReminder,
	EventTaskCompleted, EventTaskApproved, EventTaskFinished, EventTaskRejected, EventTaskCancelled,
	EventAgentTimeoutWarning, EventAgentTimedOut, EventAgentDrainOverdue,
	EventBudgetOverrun, EventStoreAdopted, EventInvariantViolated, EventPaused, EventResumed,
	EventWebhookDead, EventWebhookGap,
}

// Events that come often are notices only as far as a person can act on them.
const (
	noticePercent = 80 // budget.warning is a notice from this share of an envelope on
	noticeNudges  = 3  // run.stalled is a notice for so many nudges of a run
)

// IsNotice reports whether people want to hear of the event. A change of state has
// one notice. An event is a notice if one of these holds:
//   - it is of one of NoticeTypes;
//   - a run's end left its task failed or with people;
//   - an agent is unhealthy or dead, and no overdue drain has told that already;
//   - it is one of the first three nudges of a run;
//   - 80 or 95 percent of an envelope are spent;
//   - a call was refused for lack of money, for the first time since the last top-up;
//   - it is the first unverified usage of a run or of an envelope.
func (e Event) IsNotice() bool {
	if slices.Contains(NoticeTypes, e.Type) {
		return true
	}
	var data struct {
		State   TaskState `json:"state"`
		First   bool      `json:"first"`
		Percent int       `json:"percent"`
		Number  int       `json:"number"`
	}
	readable := json.Unmarshal(e.Data, &data) == nil
	switch e.Type {
	case EventLeaseReleased, EventLeaseFailed, EventLeaseExpired:
		return readable && (data.State == TaskFailed || data.State == TaskHandoff)
	case EventAgentLifecycle:
		return e.NewStatus == AgentUnhealthy || e.NewStatus == AgentDead && e.Reason != reasonDrainTimeout
	case EventRunStalled:
		return readable && data.Number <= noticeNudges
	case EventBudgetWarning:
		return readable && data.Percent >= noticePercent
	case EventBudgetUnverified, EventBudgetExceeded:
		return readable && data.First
	}
	return false
}

// reasonDrainTimeout is the reason of an agent's death that agent.drain_overdue has told.
const reasonDrainTimeout = "drain_timeout"

// TaskFacts is what an event says about its task, in the member "task" of its data. Only
// events that can be notices have it. The title has at most 200 bytes, the labels
// are the first 8 by name.
type TaskFacts struct {
	Title  string            `json:"title"`
	Role   string            `json:"role"`
	Labels map[string]string `json:"labels"`
	// Assignee is the person who should take its hand-offs and reviews.
	Assignee string `json:"assignee,omitempty"`
}
