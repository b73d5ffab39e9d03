package toolproxy

import (
	"context"
	"time"

	"github.com/picket-dev/picket"
)

func delegateSubtask(ctx context.Context, subtasks delegator, c Call) (any, error) {
	s, err := DecodeArgs[picket.Subtask](c.Args)
	if err != nil {
		return nil, err
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	return subtasks.Delegate(ctx, c.Held, c.requestID(), s)
}

func awaitSubtask(ctx context.Context, subtasks delegator, c Call) (any, error) {
	req, err := DecodeArgs[picket.SubtaskAwait](c.Args)
	if err != nil {
		return nil, err
	}
	if err := picket.CheckID("/taskId", "task", req.TaskID); err != nil {
		return nil, err
	}
	wait := picket.MaxAwait
	if req.WaitSeconds != nil {
		wait = time.Duration(*req.WaitSeconds) * time.Second
	}
	if wait < 0 || wait > picket.MaxAwait {
		return nil, picket.Invalid("/waitSeconds", "Send a number from 0 to 50, and call again when the wait ran out.",
			"waitSeconds is %d, allowed are 0 to 50", *req.WaitSeconds)
	}
	return subtasks.AwaitSubtask(ctx, c.Held, req.TaskID, wait)
}

func reviewSubtask(ctx context.Context, subtasks delegator, c Call) (any, error) {
	req, err := DecodeArgs[picket.SubtaskReview](c.Args)
	if err != nil {
		return nil, err
	}
	if err := req.Check(); err != nil {
		return nil, err
	}
	return subtasks.ReviewSubtask(ctx, c.Held, c.requestID(), req)
}
