package picket

import (
	"slices"

	"github.com/go-json-experiment/json"
)

// NoticeTypes are the event types a person always wants to hear of: one for
// each change that needs people or ends something.
var NoticeTypes = []string{
	EventTaskHandoff, EventHandoffOverdue, EventTaskReview,
	EventTaskCompleted, EventTaskApproved, EventTaskFinished, EventTaskRejected, EventTaskCancelled,
	EventBudgetOverrun, EventBudgetUnverified, EventStoreAdopted, EventInvariantViolated, EventPaused, EventResumed,
	EventWebhookDead, EventWebhookGap,
}

// IsNotice reports whether people want to hear of the event: it is of one of
// NoticeTypes, a run's end left its task failed or with people, or an agent is
// dead. A change of state has one notice.
func (e Event) IsNotice() bool {
	switch e.Type {
	case EventLeaseReleased, EventLeaseFailed, EventLeaseExpired:
		state := e.state()
		return state == TaskFailed || state == TaskHandoff
	case EventAgentLifecycle:
		return e.NewStatus == AgentDead
	case EventBudgetUnverified:
		var data struct {
			First bool `json:"first"`
		}
		return json.Unmarshal(e.Data, &data) == nil && data.First // of a run, or of an envelope
	}
	return slices.Contains(NoticeTypes, e.Type)
}

// state is the task's new state, as data has it.
func (e Event) state() TaskState {
	var data struct {
		State TaskState `json:"state"`
	}
	if json.Unmarshal(e.Data, &data) != nil {
		return ""
	}
	return data.State
}
