package a2a

import (
	"context"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
)

// listTasks pages through the tasks that the caller may see at this endpoint.
func (x *exchange) listTasks(ctx context.Context, req *protocol.ListTasksRequest) (*protocol.ListTasksResponse, error) {
	if err := checkHistoryLength(req.HistoryLength); err != nil {
		return nil, err
	}
	q := picket.ClientTaskQuery{ContextID: req.ContextID, Limit: req.PageSize, Cursor: req.PageToken}
	if q.Limit == 0 {
		q.Limit = usualListed
	}
	if !x.isOperator() {
		q.Client = x.who.KeyID
	}
	if x.pool != nil {
		q.Role = x.pool.Role
	}
	if x.instance != nil {
		q.AgentID = x.instance.AgentID
	}
	q.Emitted = req.IncludeArtifacts || req.HistoryLength != nil && *req.HistoryLength > 0
	if req.StatusTimestampAfter != nil {
		q.Since = picket.Instant(req.StatusTimestampAfter.UnixMilli())
	}
	if err := filterByState(&q, req.Status); err != nil {
		return nil, err
	}
	answer := &protocol.ListTasksResponse{Tasks: []*protocol.Task{}, PageSize: q.Limit}
	page, err := x.engine.ClientTasks(ctx, q)
	if err != nil {
		return nil, err
	}
	answer.TotalSize, answer.NextPageToken = int(page.Total), page.NextCursor
	for _, t := range page.Tasks {
		view, err := x.listed(ctx, t, req)
		if err != nil {
			return nil, err
		}
		answer.Tasks = append(answer.Tasks, view)
	}
	return answer, nil
}

func checkPageSize(n int) error {
	if n < 1 || n > maxListed {
		return picket.Invalid("/pageSize", "Send 1 to 100.", "pageSize is %d, and not from 1 to 100", n)
	}
	return nil
}

// listed is a task as a list shows it: without artifacts and history, unless they are asked for. After much history,
// further tasks of the list have none.
func (x *exchange) listed(ctx context.Context, t picket.Task, req *protocol.ListTasksRequest) (*protocol.Task, error) {
	none := 0
	length := req.HistoryLength
	if length == nil || x.conversationBytes > maxListedHistory {
		length = &none
	}
	view, err := x.withHistory(ctx, t, length)
	if err == nil && !req.IncludeArtifacts {
		view.Artifacts = nil
	}
	return view, err
}

// filterByState asks for the tasks of a state.
func filterByState(q *picket.ClientTaskQuery, state protocol.TaskState) error {
	switch state {
	case protocol.TaskStateUnspecified:
	case protocol.TaskStateSubmitted:
		q.States = []picket.TaskState{picket.TaskQueued}
	case protocol.TaskStateWorking:
		q.States = []picket.TaskState{picket.TaskLeased, picket.TaskReview}
		q.Handoffs = []picket.HandoffKind{picket.HandoffEscalation}
	case protocol.TaskStateInputRequired:
		q.Handoffs = []picket.HandoffKind{picket.HandoffQuestion}
	case protocol.TaskStateAuthRequired:
		q.Handoffs = []picket.HandoffKind{picket.HandoffApproval, picket.HandoffBudget}
	case protocol.TaskStateCompleted:
		q.States = []picket.TaskState{picket.TaskCompleted}
	case protocol.TaskStateCanceled:
		q.States = []picket.TaskState{picket.TaskCancelled}
	case protocol.TaskStateFailed:
		q.States = []picket.TaskState{picket.TaskFailed, picket.TaskRejected}
	case protocol.TaskStateRejected:
		q.Rejected = true
	default:
		return picket.Invalid("/status", "Send a state such as TASK_STATE_WORKING.",
			"%.64q is not a state of tasks", string(state))
	}
	return nil
}
