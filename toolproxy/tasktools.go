package toolproxy

import (
	"context"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
)

// completeBody leaves room for an output of picket.MaxPayload and a summary.
const (
	completeBody = picket.MaxPayload + smallBody
	maxSummary   = 16 << 10 // bytes
)

func reportProgress(ctx context.Context, task taskReporter, c Call) (any, error) {
	p, err := DecodeArgs[picket.Progress](c.Args)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(p.Summary) == "" {
		return nil, picket.Invalid("/summary", "Say in a sentence where you are.", "summary is required")
	}
	return task.Report(ctx, c.Held, c.requestID(), p)
}

type completeRequest struct {
	Output   picket.RawJSON  `json:"output"`
	Summary  string          `json:"summary"`
	Children picket.Children `json:"children"`
}

func markComplete(ctx context.Context, task taskReporter, c Call) (any, error) {
	body, err := decodeComplete(c.Args)
	if err != nil {
		return nil, err
	}
	state, err := task.Complete(ctx, c.Held, picket.Completion(body))
	return stateResponse{state}, err
}

func decodeComplete(args jsontext.Value) (completeRequest, error) {
	body, err := DecodeArgs[completeRequest](args)
	switch {
	case err != nil:
		return body, err
	case body.Output == nil:
		return body, picket.Invalid("/output", "Send the result of the task: text or any JSON.", "output is required")
	case len(body.Output) > picket.MaxPayload:
		return body, picket.TooLarge("/output", len(body.Output))
	}
	if err := body.Children.Check(); err != nil {
		return body, err
	}
	return body, checkText("/summary", body.Summary, maxSummary)
}

type failRequest struct {
	Reason    string `json:"reason"`
	Retryable *bool  `json:"retryable"` // absent: true
}

func markFailed(ctx context.Context, task taskReporter, c Call) (any, error) {
	body, err := decodeFail(c.Args)
	if err != nil {
		return nil, err
	}
	retryable := body.Retryable == nil || *body.Retryable
	state, err := task.Fail(ctx, c.Held, body.Reason, retryable)
	return stateResponse{state}, err
}

func decodeFail(args jsontext.Value) (failRequest, error) {
	body, err := DecodeArgs[failRequest](args)
	if err != nil {
		return body, err
	}
	if strings.TrimSpace(body.Reason) == "" {
		return body, picket.Invalid("/reason", "Say why it cannot be done.", "reason is required")
	}
	return body, checkText("/reason", body.Reason, maxReason)
}

func requestHumanHelp(ctx context.Context, task taskReporter, c Call) (any, error) {
	req, err := DecodeArgs[picket.HelpRequest](c.Args)
	if err != nil {
		return nil, err
	}
	if err := req.Normalize(); err != nil {
		return nil, err
	}
	return task.RequestHelp(ctx, c.Held, req)
}

func getTask(ctx context.Context, task taskReporter, c Call) (any, error) {
	if _, err := DecodeArgs[struct{}](c.Args); err != nil {
		return nil, err
	}
	return task.HeldTask(ctx, c.Held, c.requestID())
}

func checkText(field, text string, limit int) error {
	if len(text) <= limit {
		return nil
	}
	return picket.Refuse(picket.CodeTooLarge, "Say it shorter; details fit into the output or a report.",
		"%s has %d bytes, at most %d are allowed", field, len(text), limit).With("field", field).With("limit", limit)
}
