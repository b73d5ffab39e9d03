package web

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// MIMEProblem is the content type of every error answer (RFC 9457).
const MIMEProblem = "application/problem+json"

// handleError is the one error handler.
func handleError(log *slog.Logger, err error, c echo.Context) {
	gone := c.Request().Context().Err() != nil
	if c.Response().Committed {
		if !gone {
			log.WarnContext(c.Request().Context(), "answer broken off", "err", err)
		}
		return
	}
	refusal := refusalOf(c, err)
	if !gone {
		logProblem(log, c, refusal, err)
	}
	writeProblem(c, refusal)
}

// Problem is a refusal as a part of an answer, for requests that are answered piece by piece.
type Problem struct {
	Status     int
	RetryAfter int            // in seconds, as the header Retry-After has it; 0 for none
	Body       jsontext.Value // the object that a request with this error alone is answered
}

// ProblemOf returns the problem for an error of a part of a request, and logs it to log as the error of a
// whole request is logged. A nil log logs nothing.
func ProblemOf(c echo.Context, log *slog.Logger, err error) Problem {
	refusal := refusalOf(c, err)
	if log != nil && c.Request().Context().Err() == nil {
		logProblem(WithLogIDs(log), c, refusal, err)
	}
	status := refusal.Code.Status()
	return Problem{status, retryAfter(status, refusal.RetryAfter), problemBody(refusal, RequestID(c))}
}

// refusalOf finds the refusal in err. Anything that is not one is an internal
// error, whose message stays in the log.
func refusalOf(c echo.Context, err error) *picket.Error {
	if refusal, ok := picket.RefusalOf(err); ok {
		return refusal
	}
	var routing *echo.HTTPError
	if errors.As(err, &routing) {
		return routingRefusal(c, routing)
	}
	return picket.Refuse(picket.CodeInternal,
		"Try again; if it stays, look for the request id in the server's log.", "something went wrong on our side")
}

// routingRefusal translates echo's own errors.
func routingRefusal(c echo.Context, err *echo.HTTPError) *picket.Error {
	r := c.Request()
	switch err.Code {
	case http.StatusNotFound:
		return picket.Refuse(picket.CodeNotFound, "Compare the path with /openapi.yaml.", "there is nothing at %s",
			r.URL.Path)
	case http.StatusMethodNotAllowed:
		allow := cmp.Or(c.Response().Header().Get(echo.HeaderAllow), "another method")
		return picket.Refuse(picket.CodeMethodNotAllowed, "Use "+allow+".", "%s does not take %s", r.URL.Path,
			r.Method).With("allow", allow)
	case http.StatusUnsupportedMediaType:
		return unsupported(r.Header.Get(echo.HeaderContentType))
	case http.StatusRequestEntityTooLarge:
		return tooLarge(0)
	}
	if err.Code >= 400 && err.Code < 500 {
		return picket.Refuse(picket.CodeValidation, "Compare the request with /openapi.yaml.", "%v", err.Message)
	}
	return picket.Refuse(picket.CodeInternal,
		"Try again; if it stays, look for the request id in the server's log.", "something went wrong on our side")
}

func logProblem(log *slog.Logger, c echo.Context, refusal *picket.Error, err error) {
	ctx := c.Request().Context()
	attrs := []any{"method", c.Request().Method, "route", c.Path(), "code", refusal.Code}
	var p *panicked
	switch {
	case errors.As(err, &p):
		log.ErrorContext(ctx, "handler panicked", append(attrs, "err", p, "stack", string(p.stack))...)
	case refusal.Code == picket.CodeInternal:
		log.ErrorContext(ctx, "request failed", append(attrs, "err", err, "cause", errors.Unwrap(refusal))...)
	case refusal.Code == picket.CodeUnavailable && !errors.Is(err, context.Canceled):
		log.WarnContext(ctx, "request failed", append(attrs, "err", err, "cause", errors.Unwrap(refusal))...)
	}
}

func writeProblem(c echo.Context, refusal *picket.Error) {
	status := refusal.Code.Status()
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, MIMEProblem)
	h.Set(echo.HeaderCacheControl, "no-store")
	if after := retryAfter(status, refusal.RetryAfter); after > 0 {
		h.Set(echo.HeaderRetryAfter, strconv.Itoa(after))
	}
	if status == http.StatusUnauthorized {
		h.Set(echo.HeaderWWWAuthenticate, `Bearer realm="picket"`)
	}
	c.Response().WriteHeader(status)
	if c.Request().Method != http.MethodHead {
		_, _ = c.Response().Write(problemBody(refusal, RequestID(c)))
	}
}

// retryAfter is in whole seconds, rounded up; 0 sends no header. A 503 always
// says when to come back.
func retryAfter(status int, d time.Duration) int {
	s := int(math.Ceil(d.Seconds()))
	if status == http.StatusServiceUnavailable {
		return max(s, 1)
	}
	return max(s, 0)
}

// problemBody writes the fixed members in their documented order, then the
// facts by name. A fact cannot replace a fixed member.
func problemBody(refusal *picket.Error, requestID string) []byte {
	members := []struct {
		name  string
		value any
	}{
		{"type", "about:blank"},
		{"title", refusal.Code.Title()},
		{"status", refusal.Code.Status()},
		{"detail", refusal.Error()},
		{"code", string(refusal.Code)},
		{"message", refusal.Error()},
		{"remedy", refusal.Remedy},
		{"retryable", refusal.Code.Retryable()},
		{"requestId", requestID},
	}
	body := []byte{'{'}
	fixed := map[string]bool{}
	for _, m := range members {
		fixed[m.name] = true
		body = appendMember(body, m.name, m.value)
	}
	for _, name := range slices.Sorted(maps.Keys(refusal.Facts)) {
		if !fixed[name] {
			body = appendMember(body, name, refusal.Facts[name])
		}
	}
	return append(body, '}')
}

// appendMember skips a value that has no JSON form: an error answer must never
// fail for one of its facts.
func appendMember(body []byte, name string, value any) []byte {
	lenient := json.JoinOptions(json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	k, err := json.Marshal(name, lenient)
	if err != nil {
		return body
	}
	v, err := json.Marshal(value, lenient)
	if err != nil {
		return body
	}
	if len(body) > 1 {
		body = append(body, ',')
	}
	return append(append(append(body, k...), ':'), v...)
}
