package toolproxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
)

// taskReporter is what an agent says about its own task.
type taskReporter interface {
	// Report stores a checkpoint; the same requestID again answers the same.
	Report(ctx context.Context, held picket.LeaseCredential, requestID string,
		p picket.Progress) (picket.Reported, error)
	Complete(ctx context.Context, held picket.LeaseCredential, c picket.Completion) (picket.TaskState, error)
	Fail(ctx context.Context, held picket.LeaseCredential, reason string, retryable bool) (picket.TaskState, error)
	RequestHelp(ctx context.Context, held picket.LeaseCredential, req picket.HelpRequest) (picket.HelpRequested, error)
}

// taskReader shows an agent its own task.
type taskReader interface {
	// HeldTask with the requestID of the look before is that look again.
	HeldTask(ctx context.Context, held picket.LeaseCredential, requestID string) (picket.Task, error)
}

// completeBody leaves room for an output of picket.MaxPayload and a summary.
const (
	completeBody = picket.MaxPayload + smallBody
	maxSummary   = 16 << 10 // bytes
	maxReason    = 8 << 10  // bytes: it goes into the event
)

func reportProgress(ctx context.Context, c Call) (any, error) {
	p, err := DecodeArgs[picket.Progress](c.Args)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(p.Summary) == "" {
		return nil, picket.Invalid("/summary", "Say in a sentence where you are.", "summary is required")
	}
	return taskReporter(c.Backend).Report(ctx, c.Held, c.requestID(), p)
}

// requestID identifies a report: the idempotency key as a hash, since it is any
// text, or a new one that nobody repeats.
func (c Call) requestID() string {
	if c.Key == "" {
		return rand.Text()
	}
	sum := sha256.Sum256([]byte(c.Key))
	return hex.EncodeToString(sum[:16])
}

type completeRequest struct {
	Output   picket.RawJSON  `json:"output"`
	Summary  string          `json:"summary"`
	Children picket.Children `json:"children"`
}

func markComplete(ctx context.Context, c Call) (any, error) {
	body, err := decodeComplete(c.Args)
	if err != nil {
		return nil, err
	}
	state, err := taskReporter(c.Backend).Complete(ctx, c.Held, picket.Completion(body))
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

func markFailed(ctx context.Context, c Call) (any, error) {
	body, err := decodeFail(c.Args)
	if err != nil {
		return nil, err
	}
	retryable := body.Retryable == nil || *body.Retryable
	state, err := taskReporter(c.Backend).Fail(ctx, c.Held, body.Reason, retryable)
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

func requestHumanHelp(ctx context.Context, c Call) (any, error) {
	req, err := DecodeArgs[picket.HelpRequest](c.Args)
	if err != nil {
		return nil, err
	}
	if err := req.Normalize(); err != nil {
		return nil, err
	}
	return taskReporter(c.Backend).RequestHelp(ctx, c.Held, req)
}

func getTask(ctx context.Context, c Call) (any, error) {
	if _, err := DecodeArgs[struct{}](c.Args); err != nil {
		return nil, err
	}
	return taskReader(c.Backend).HeldTask(ctx, c.Held, c.requestID())
}

func checkText(field, text string, limit int) error {
	if len(text) <= limit {
		return nil
	}
	return picket.Refuse(picket.CodeTooLarge, "Say it shorter; details fit into the output or a report.",
		"%s has %d bytes, at most %d are allowed", field, len(text), limit).With("field", field).With("limit", limit)
}
