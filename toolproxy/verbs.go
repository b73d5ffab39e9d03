package toolproxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// worker is what an agent says about its own task.
type worker interface {
	// Report stores a checkpoint; the same requestID again answers the same.
	Report(ctx context.Context, held picket.Held, requestID string, p picket.Progress) (picket.Reported, error)
	Complete(ctx context.Context, held picket.Held, c picket.Completion) (picket.TaskState, error)
	Fail(ctx context.Context, held picket.Held, reason string, retryable bool) (picket.TaskState, error)
	RequestHelp(ctx context.Context, held picket.Held, req picket.HelpRequest) (picket.HelpRequested, error)
}

// reader shows an agent its own task.
type reader interface {
	// HeldTask with the requestID of the look before is that look again.
	HeldTask(ctx context.Context, held picket.Held, requestID string) (picket.Task, error)
}

// completeBody leaves room for an output of picket.MaxPayload and a summary.
const (
	completeBody = picket.MaxPayload + smallBody
	maxSummary   = 16 << 10 // bytes
	maxReason    = 8 << 10  // bytes: it goes into the event
)

func reportProgress(c echo.Context, door Door, held picket.Held) (any, error) {
	key, err := requestKey(c.Request().Header)
	if err != nil {
		return nil, err
	}
	p, _, err := web.Decode[picket.Progress](c, picket.MaxPayload)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(p.Summary) == "" {
		return nil, picket.Invalid("/summary", "Say in a sentence where you are.", "summary is required")
	}
	return worker(door).Report(c.Request().Context(), held, key, p)
}

// requestKey identifies a report: the Idempotency-Key as a hash, since it is
// any text, or a new one that nobody repeats.
func requestKey(h http.Header) (string, error) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return rand.Text(), nil
	}
	if len(values) > 1 || values[0] == "" || len(values[0]) > 255 {
		return "", picket.Invalid("Idempotency-Key", "Send one key of 1 to 255 characters, or none.", "the Idempotency-Key is not one key of 1 to 255 characters")
	}
	sum := sha256.Sum256([]byte(values[0]))
	return hex.EncodeToString(sum[:16]), nil
}

type completeRequest struct {
	Output   picket.RawJSON `json:"output"`
	Summary  string         `json:"summary"`
	Children picket.RawJSON `json:"children" later:"delegation"` // refused: not available yet
}

func markComplete(c echo.Context, door Door, held picket.Held) (any, error) {
	body, err := decodeComplete(c)
	if err != nil {
		return nil, err
	}
	state, err := worker(door).Complete(c.Request().Context(), held, picket.Completion{Output: body.Output, Summary: body.Summary})
	return stateAnswer{state}, err
}

func decodeComplete(c echo.Context) (completeRequest, error) {
	body, _, err := web.Decode[completeRequest](c, completeBody)
	switch {
	case err != nil:
		return body, err
	case len(body.Children) > 0 && string(body.Children) != "null":
		return body, picket.NotAvailable("/children", "delegation")
	case body.Output == nil:
		return body, picket.Invalid("/output", "Send the result of the task: text or any JSON.", "output is required")
	case len(body.Output) > picket.MaxPayload:
		return body, picket.TooLarge("/output", len(body.Output))
	}
	return body, checkText("/summary", body.Summary, maxSummary)
}

type failRequest struct {
	Reason    string `json:"reason"`
	Retryable *bool  `json:"retryable"` // absent: true
}

func markFailed(c echo.Context, door Door, held picket.Held) (any, error) {
	body, err := decodeFail(c)
	if err != nil {
		return nil, err
	}
	retryable := body.Retryable == nil || *body.Retryable
	state, err := worker(door).Fail(c.Request().Context(), held, body.Reason, retryable)
	return stateAnswer{state}, err
}

func decodeFail(c echo.Context) (failRequest, error) {
	body, _, err := web.Decode[failRequest](c, smallBody)
	if err != nil {
		return body, err
	}
	if strings.TrimSpace(body.Reason) == "" {
		return body, picket.Invalid("/reason", "Say why it cannot be done.", "reason is required")
	}
	return body, checkText("/reason", body.Reason, maxReason)
}

func requestHumanHelp(c echo.Context, door Door, held picket.Held) (any, error) {
	req, _, err := web.Decode[picket.HelpRequest](c, picket.MaxPayload)
	if err != nil {
		return nil, err
	}
	if err := req.Normalize(); err != nil {
		return nil, err
	}
	return worker(door).RequestHelp(c.Request().Context(), held, req)
}

func getTask(c echo.Context, door Door, held picket.Held) (any, error) {
	if _, _, err := web.Decode[struct{}](c, smallBody); err != nil {
		return nil, err
	}
	key, err := requestKey(c.Request().Header)
	if err != nil {
		return nil, err
	}
	return reader(door).HeldTask(c.Request().Context(), held, key)
}

func checkText(field, text string, limit int) error {
	if len(text) <= limit {
		return nil
	}
	return picket.Refuse(picket.CodeTooLarge, "Say it shorter; details fit into the output or a report.",
		"%s has %d bytes, at most %d are allowed", field, len(text), limit).With("field", field).With("limit", limit)
}
