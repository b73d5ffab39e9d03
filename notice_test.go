package picket_test

import (
	"testing"

	"github.com/picket-dev/picket"
)

// A change of state that matters to people is one notice. A change that only moves a task on is not
// a notice.
func TestNoticeTypes(t *testing.T) {
	event := func(kind, data string) picket.Event {
		return picket.Event{Type: kind, Data: picket.RawJSON(data)}
	}
	dead := event(picket.EventAgentLifecycle, `{}`)
	dead.NewStatus = picket.AgentDead
	drained := dead
	drained.Reason = "drain_timeout" // agent.drain_overdue told it
	silent := event(picket.EventAgentLifecycle, `{}`)
	silent.NewStatus = picket.AgentUnhealthy
	for _, e := range []picket.Event{
		event(picket.EventTaskHandoff, `{"state":"handoff"}`), event(picket.EventTaskReview, `{"state":"review"}`),
		event(picket.EventTaskCompleted, `{"state":"completed"}`),
		event(picket.EventTaskApproved, `{"state":"completed"}`),
		event(picket.EventLeaseFailed, `{"state":"failed"}`),
		event(picket.EventLeaseExpired, `{"state":"handoff","class":"lease_expired"}`),
		event(picket.EventLeaseReleased, `{"state":"failed"}`), event(picket.EventWebhookDead, `{"state":"dead"}`),
		event(picket.EventBudgetUnverified, `{"first":true}`), dead, silent,
		event(picket.EventAgentTimeoutWarning, `{}`), event(picket.EventAgentTimedOut, `{}`),
		event(picket.EventAgentDrainOverdue, `{}`), event(picket.EventRunStalled, `{"number":3}`),
		event(picket.EventBudgetWarning, `{"percent":80}`), event(picket.EventBudgetExceeded, `{"first":true}`),
	} {
		if !e.IsNotice() {
			t.Errorf("%s %s %s is not a notice", e.Type, e.NewStatus, e.Data)
		}
	}
	for _, e := range []picket.Event{
		event(picket.EventTaskSubmitted, `{"state":"queued"}`), event(picket.EventTaskLeased, `{"state":"leased"}`),
		event(picket.EventTaskProgress, `{"state":"leased"}`),
		event(picket.EventLeaseFailed, `{"state":"queued"}`), event(picket.EventLeaseReleased, `{}`),
		event(picket.EventLeaseExpired, ``),
		event(picket.EventHandoffClaimed, `{"state":"handoff"}`),
		event(picket.EventTaskRetried, `{"state":"failed","newTaskId":"x"}`),
		event(picket.EventTaskAnswered, `{"state":"queued"}`), event(picket.EventWebhookCreated, `{}`),
		drained, event(picket.EventRunStalled, `{"number":4}`), event(picket.EventRunStalled, `[]`),
		event(picket.EventBudgetWarning, `{"percent":50}`), event(picket.EventBudgetExceeded, `{"first":false}`),
		event(picket.EventBudgetUnverified, `{"first":false}`),
	} {
		if e.IsNotice() {
			t.Errorf("%s %s %s is a notice", e.Type, e.NewStatus, e.Data)
		}
	}
}
