package toolproxy

import (
	"context"

	"github.com/picket-dev/picket"
)

func delegateSubtask(ctx context.Context, subtasks delegator, c Call, s picket.Subtask) (any, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	return subtasks.Delegate(ctx, c.Held, c.requestID(), s)
}

func awaitSubtask(ctx context.Context, subtasks delegator, c Call, req picket.SubtaskAwait) (any, error) {
	if err := picket.CheckID("/taskId", "task", req.TaskID); err != nil {
		return nil, err
	}
	wait, err := toolWait(req.WaitSeconds)
	if err != nil {
		return nil, err
	}
	return subtasks.AwaitSubtask(ctx, c.Held, req.TaskID, wait)
}

func reviewSubtask(ctx context.Context, subtasks delegator, c Call, req picket.SubtaskReview) (any, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	return subtasks.ReviewSubtask(ctx, c.Held, c.requestID(), req)
}
