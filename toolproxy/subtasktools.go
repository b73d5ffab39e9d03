package toolproxy

import (
	"context"
	"time"

	"github.com/picket-dev/picket"
)

// delegator is what an agent gives to others, and what it hears of it.
type delegator interface {
	// Delegate makes a subtask; the same requestKey again answers the same one.
	Delegate(ctx context.Context, held picket.LeaseCredential, requestKey string,
		s picket.Subtask) (picket.Delegated, error)
	// AwaitSubtask waits until the caller can go on with a subtask, or wait has
	// passed.
	AwaitSubtask(ctx context.Context, held picket.LeaseCredential, taskID string,
		wait time.Duration) (picket.SubtaskState, error)
	ReviewSubtask(ctx context.Context, held picket.LeaseCredential, requestKey string,
		r picket.SubtaskReview) (picket.SubtaskState, error)
}

func delegateSubtask(ctx context.Context, c Call) (any, error) {
	s, err := DecodeArgs[picket.Subtask](c.Args)
	if err != nil {
		return nil, err
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	return delegator(c.Backend).Delegate(ctx, c.Held, c.requestID(), s)
}

func awaitSubtask(ctx context.Context, c Call) (any, error) {
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
	return delegator(c.Backend).AwaitSubtask(ctx, c.Held, req.TaskID, wait)
}

func reviewSubtask(ctx context.Context, c Call) (any, error) {
	req, err := DecodeArgs[picket.SubtaskReview](c.Args)
	if err != nil {
		return nil, err
	}
	if err := req.Check(); err != nil {
		return nil, err
	}
	return delegator(c.Backend).ReviewSubtask(ctx, c.Held, c.requestID(), req)
}
