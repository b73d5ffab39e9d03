package toolproxy

import (
	"context"

	"github.com/picket-dev/picket"
)

// freeToolHandler is what a call of a free tool does.
type freeToolHandler struct {
	recordRefusal bool  // a refusal is recorded
	limit         int64 // of the arguments, in bytes
	call          func(ctx context.Context, c Call) (any, error)
}

// handedTool is a tool that is handed its arguments and the part of the backend that it
// needs.
func handedTool[B, A any](part func(Backend) B,
	call func(context.Context, B, Call, A) (any, error)) func(context.Context, Call) (any, error) {
	return func(ctx context.Context, c Call) (any, error) {
		args, err := DecodeArgs[A](c.Args)
		if err != nil {
			return nil, err
		}
		return call(ctx, part(c.Backend), c, args)
	}
}

// IsFreeTool reports whether a name is that of a free tool.
func IsFreeTool(name string) bool {
	_, ok := freeToolHandlers[name]
	return ok
}

var freeToolHandlers = map[string]freeToolHandler{
	"get_task":           {false, smallBody, handedTool(tasks, getTask)},
	"report_progress":    {true, picket.MaxPayload, handedTool(tasks, reportProgress)},
	"request_human_help": {true, picket.MaxPayload, handedTool(tasks, requestHumanHelp)},
	"delegate_subtask":   {true, picket.MaxPayload + smallBody, handedTool(subtasks, delegateSubtask)},
	"await_subtask":      {false, smallBody, handedTool(subtasks, awaitSubtask)},
	"review_subtask":     {true, smallBody, handedTool(subtasks, reviewSubtask)},
	"await_top_up":       {false, smallBody, handedTool(envelopes, awaitTopUp)},
	"mark_complete":      {true, completeBody, handedTool(tasks, markComplete)},
	"mark_failed":        {true, smallBody, handedTool(tasks, markFailed)},
}
