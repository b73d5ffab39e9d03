package toolproxy

import (
	"cmp"
	"context"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// completeBody leaves room for an output of picket.MaxPayload and a summary.
const (
	completeBody = picket.MaxPayload + smallBody
	maxSummary   = 16 << 10 // bytes
)

func reportProgress(ctx context.Context, task taskReporter, c Call, p picket.Progress) (any, error) {
	if strings.TrimSpace(p.Summary) == "" {
		return nil, picket.Invalid("/summary", "Say in a sentence where you are.", "summary is required")
	}
	return task.Report(ctx, c.Held, c.requestID(), p)
}

func emitArtifact(ctx context.Context, task taskReporter, c Call, chunk picket.ArtifactChunk) (any, error) {
	if err := chunk.Normalize(); err != nil {
		return nil, err
	}
	return task.Emit(ctx, c.Held, c.requestID(), chunk)
}

func emitStatus(ctx context.Context, task taskReporter, c Call, m picket.StatusMessage) (any, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	return task.EmitStatus(ctx, c.Held, c.requestID(), m)
}

type completeRequest struct {
	Output   picket.RawJSON  `json:"output"`
	Summary  string          `json:"summary"`
	Children picket.Children `json:"children"`
}

func markComplete(ctx context.Context, task taskReporter, c Call, body completeRequest) (any, error) {
	switch {
	case body.Output == nil:
		return nil, picket.Invalid("/output", "Send the result of the task: text or any JSON.", "output is required")
	case len(body.Output) > picket.MaxPayload:
		return nil, picket.TooLarge("/output", len(body.Output))
	}
	if err := cmp.Or(body.Children.Check(), checkText("/summary", body.Summary, maxSummary)); err != nil {
		return nil, err
	}
	state, err := task.Complete(ctx, c.Held, picket.Completion(body))
	return stateResponse{state}, err
}

func replyToClient(ctx context.Context, task taskReporter, c Call, m picket.Reply) (any, error) {
	if err := m.Normalize(); err != nil {
		return nil, err
	}
	state, err := task.Reply(ctx, c.Held, m)
	return stateResponse{state}, err
}

type failRequest struct {
	Reason    string `json:"reason"`
	Retryable *bool  `json:"retryable"` // absent: true, unless the class is rejected
	// Class is picket.ExitAgentFailed or picket.ExitRejected; absent: ExitAgentFailed.
	Class picket.ExitClass `json:"class"`
}

func markFailed(ctx context.Context, task taskReporter, c Call, body failRequest) (any, error) {
	if strings.TrimSpace(body.Reason) == "" {
		return nil, picket.Invalid("/reason", "Say why it cannot be done.", "reason is required")
	}
	if err := checkText("/reason", body.Reason, maxReason); err != nil {
		return nil, err
	}
	switch body.Class {
	case "", picket.ExitAgentFailed:
	case picket.ExitRejected:
		if body.Retryable != nil && *body.Retryable {
			return nil, picket.Invalid("/retryable", "Leave it out: a rejected task is not tried again.",
				"a task cannot be rejected and tried again")
		}
		state, err := task.Decline(ctx, c.Held, body.Reason)
		return stateResponse{state}, err
	default:
		return nil, picket.Invalid("/class", "Send agent_failed or rejected.", "%.64q is not a class of failures",
			string(body.Class))
	}
	state, err := task.Fail(ctx, c.Held, body.Reason, body.Retryable == nil || *body.Retryable)
	return stateResponse{state}, err
}

func requestHumanHelp(ctx context.Context, task taskReporter, c Call, req picket.HelpRequest) (any, error) {
	if err := req.Normalize(); err != nil {
		return nil, err
	}
	return task.RequestHelp(ctx, c.Held, req)
}

func getTask(ctx context.Context, task taskReporter, c Call, _ struct{}) (any, error) {
	return task.HeldTask(ctx, c.Held, c.requestID())
}

func checkText(field, text string, limit int) error {
	if len(text) <= limit {
		return nil
	}
	return picket.Refuse(picket.CodeTooLarge, "Say it shorter; details fit into the output or a report.",
		"%s has %d bytes, at most %d are allowed", field, len(text), limit).With("field", field).With("limit", limit)
}

func findAgents(ctx context.Context, subtasks delegator, c Call, q picket.AgentSearch) (any, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	return subtasks.FindAgents(ctx, c.Held, c.requestID(), q)
}

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

// waitingTools are the tools that wait: a server that stops ends them at once, for
// they have no effect that would be lost.
var waitingTools = map[string]bool{"await_subtask": true, "await_top_up": true, "read_messages": true}

type awaitTopUpRequest struct {
	WaitSeconds *int `json:"waitSeconds"`
}

func awaitTopUp(ctx context.Context, envelope envelopeAccount, c Call, req awaitTopUpRequest) (any, error) {
	wait, err := toolWait(req.WaitSeconds)
	if err != nil {
		return nil, err
	}
	return envelope.AwaitTopUp(ctx, c.Held, wait)
}

// handleUsage takes what an agent's own output says it has used.
func handleUsage(c echo.Context, envelope envelopeAccount, held picket.LeaseCredential,
	u picket.UsageReport) (any, error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	return envelope.ReportUsage(c.Request().Context(), held, u)
}
