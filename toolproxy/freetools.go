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

// IsFreeTool reports whether a name is that of a free tool.
func IsFreeTool(name string) bool {
	_, ok := freeToolHandlers[name]
	return ok
}

var freeToolHandlers = map[string]freeToolHandler{
	"get_task":           {false, smallBody, getTask},
	"report_progress":    {true, picket.MaxPayload, reportProgress},
	"request_human_help": {true, picket.MaxPayload, requestHumanHelp},
	"delegate_subtask":   {true, picket.MaxPayload + smallBody, delegateSubtask},
	"await_subtask":      {false, smallBody, awaitSubtask},
	"review_subtask":     {true, smallBody, reviewSubtask},
	"await_top_up":       {false, smallBody, awaitTopUp},
	"mark_complete":      {true, completeBody, markComplete},
	"mark_failed":        {true, smallBody, markFailed},
}
