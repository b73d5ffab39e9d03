package a2a

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// protocolJSON is the media type that the specification has for the HTTP+JSON binding.
const protocolJSON = "application/a2a+json"

// restContentTypes are what the HTTP+JSON binding takes.
var restContentTypes = []string{echo.MIMEApplicationJSON, protocolJSON}

// restCall is a request of the HTTP+JSON binding: exactly one of answer and stream is set.
type restCall struct {
	answer func(ctx context.Context) (any, error)
	stream func(ctx context.Context) (*stream, error)
}

// belowBase are the routes below /a2a/ of each endpoint. JSON-RPC has the empty one. serveREST finds what they do.
var belowBase = []string{
	"POST ",
	"POST message:send",
	"POST message:stream",
	"GET tasks",
	"POST tasks",
	"GET tasks/:id",
	"POST tasks/:id:cancel",
	"GET tasks/:id:subscribe",
	"POST tasks/:id:subscribe",
	"GET tasks/:id/pushNotificationConfigs",
	"POST tasks/:id/pushNotificationConfigs",
	"GET tasks/:id/pushNotificationConfigs/:config",
	"DELETE tasks/:id/pushNotificationConfigs/:config",
	"POST messages",
	"GET health",
	"GET extendedAgentCard",
}

// serveREST answers what is below /a2a/: the HTTP+JSON binding and the routes of RFC-001. JSON-RPC may have the slash.
func serveREST(x *exchange) error {
	path := x.Param("*")
	if path == "" && x.Request().Method == http.MethodPost {
		return serveRPC(x)
	}
	isSubmission := path == "tasks" && x.Request().Method == http.MethodPost
	isMessage := path == "messages" && x.Request().Method == http.MethodPost
	switch {
	case x.lost != nil && (isSubmission || isMessage):
		return x.lost
	case x.lost != nil:
		return x.restFailure(x.lost)
	case isSubmission:
		return conflictOfID(x.submitTask(x.Request().Context()))
	case isMessage:
		return conflictOfID(x.sendToAgent(x.Request().Context()))
	}
	if path == "health" && x.Request().Method == http.MethodGet && x.instance != nil {
		health, status := x.instanceHealth()
		return x.JSON(status, health)
	}
	call, err := x.restCall(path)
	if err == nil {
		err = x.checkVersion()
	}
	if err != nil {
		return x.restFailure(err)
	}
	ctx, done := x.waitContext()
	defer done()
	if call.stream == nil {
		result, err := call.answer(ctx)
		if err != nil {
			return x.restFailure(err)
		}
		return x.restJSON(http.StatusOK, result)
	}
	s, err := call.stream(ctx)
	if err != nil {
		return x.restFailure(err)
	}
	return x.send(ctx, s, func(ev protocol.Event, err error) any {
		if err != nil {
			return failureOf(err).body()
		}
		return protocol.StreamResponse{Event: ev}
	})
}

// restCall finds what a request asks for.
func (x *exchange) restCall(path string) (restCall, error) {
	method := x.Request().Method
	switch {
	case method == http.MethodPost && path == "message:send":
		return x.restBody(func(ctx context.Context, raw []byte) (any, error) { return calls(sendResult)(ctx, x, raw) })
	case method == http.MethodPost && path == "message:stream":
		raw, err := x.restContent()
		return restCall{stream: func(ctx context.Context) (*stream, error) {
			return streams(sendStream)(ctx, x, raw)
		}}, err
	case method == http.MethodGet && path == "tasks":
		req, err := listRequest(x.QueryParams())
		return restCall{answer: func(ctx context.Context) (any, error) { return x.listTasks(ctx, req) }}, err
	case method == http.MethodGet && path == "health":
		return restCall{answer: func(ctx context.Context) (any, error) { return x.health(ctx) }}, nil
	case method == http.MethodGet && path == "extendedAgentCard":
		return restCall{answer: func(ctx context.Context) (any, error) { return x.extendedCard(ctx) }}, nil
	case strings.HasPrefix(path, "tasks/"):
		return x.restTaskCall(method, strings.TrimPrefix(path, "tasks/"))
	}
	return restCall{}, noSuchPath(method, path)
}

// restTaskCall finds what a request asks for about one task.
func (x *exchange) restTaskCall(method, rest string) (restCall, error) {
	id, below, isBelow := strings.Cut(rest, "/")
	if of, config, _ := strings.Cut(below, "/"); id != "" && of == pushPath {
		return x.restPushCall(method, id, config)
	}
	id, action, hasAction := strings.Cut(id, ":")
	switch {
	case isBelow || id == "":
	case action == "cancel" && method == http.MethodPost:
		return restCall{answer: func(ctx context.Context) (any, error) {
			return x.cancelTask(ctx, &protocol.CancelTaskRequest{ID: protocol.TaskID(id)})
		}}, nil
	case action == "subscribe" && method != http.MethodDelete:
		return restCall{stream: func(ctx context.Context) (*stream, error) {
			return x.subscribe(ctx, &protocol.SubscribeToTaskRequest{ID: protocol.TaskID(id)})
		}}, nil
	case !hasAction && method == http.MethodGet:
		length, err := intParam(x.QueryParams(), "historyLength")
		return restCall{answer: func(ctx context.Context) (any, error) {
			return x.getTask(ctx, &protocol.GetTaskRequest{ID: protocol.TaskID(id), HistoryLength: length})
		}}, err
	}
	return restCall{}, noSuchPath(method, "tasks/"+rest)
}

// noSuchPath refuses a path that neither binding has.
func noSuchPath(method, path string) error {
	return protocol.NewError(protocol.ErrMethodNotFound, fmt.Sprintf("there is no %s %.128q here", method, path))
}

// restBody reads the body of a request for an operation that answers at once.
func (x *exchange) restBody(do func(context.Context, []byte) (any, error)) (restCall, error) {
	raw, err := x.restContent()
	return restCall{answer: func(ctx context.Context) (any, error) { return do(ctx, raw) }}, err
}

// restContent reads the body of a request.
func (x *exchange) restContent() ([]byte, error) {
	got := x.Request().Header.Get(echo.HeaderContentType)
	base, _, _ := mime.ParseMediaType(got)
	for _, known := range restContentTypes {
		if base == known {
			raw, err := web.ReadBody(x.Context, maxBody, known)
			if err == nil && !stdjson.Valid(raw) {
				err = protocol.NewError(protocol.ErrParseError, "the body is not JSON")
			}
			return raw, err
		}
	}
	return nil, picket.Refuse(picket.CodeUnsupportedMedia, "Send Content-Type: application/json.",
		"Content-Type %.128q is not accepted here", got)
}

// listRequest reads the parameters of a list.
func listRequest(q url.Values) (*protocol.ListTasksRequest, error) {
	req := &protocol.ListTasksRequest{
		ContextID: q.Get("contextId"),
		Status:    protocol.TaskState(q.Get("status")),
		PageToken: q.Get("pageToken"),
	}
	size, err := intParam(q, "pageSize")
	if err != nil {
		return nil, err
	}
	if size != nil {
		if err := checkPageSize(*size); err != nil {
			return nil, err
		}
		req.PageSize = *size
	}
	if req.HistoryLength, err = intParam(q, "historyLength"); err != nil {
		return nil, err
	}
	if s := q.Get("includeArtifacts"); s != "" {
		if req.IncludeArtifacts, err = strconv.ParseBool(s); err != nil {
			return nil, picket.Invalid("/includeArtifacts", "Send true or false.",
				"includeArtifacts is %.32q, and not a boolean", s)
		}
	}
	if s := q.Get("statusTimestampAfter"); s != "" {
		at, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return nil, picket.Invalid("/statusTimestampAfter", "Send an instant such as 2026-01-02T15:04:05Z.",
				"statusTimestampAfter is %.64q, and not an instant of RFC 3339", s)
		}
		req.StatusTimestampAfter = &at
	}
	return req, nil
}

// intParam reads a number; nil if it is absent.
func intParam(q url.Values, name string) (*int, error) {
	s := q.Get(name)
	if s == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return nil, picket.Invalid("/"+name, "Send a number.", "%s is %.32q, and not a whole number", name, s)
	}
	return &n, nil
}

// restFailure answers an error of the HTTP+JSON binding.
func (x *exchange) restFailure(err error) error {
	x.logUnexpected(err)
	f := failureOf(err)
	f.setRetryAfter(x.Response().Header())
	return x.restJSON(f.status, f.body())
}

// restJSON answers JSON of the HTTP+JSON binding, under its own media type. A client that asks for other types alone
// gets plain JSON: the official Go library reads no errors of another type.
func (x *exchange) restJSON(status int, answer any) error {
	raw, err := stdjson.Marshal(answer)
	if err != nil {
		return err
	}
	kind := protocolJSON
	if r := x.Request(); r.Header.Get(echo.HeaderAccept) != "" && !web.Accepts(r, protocolJSON) &&
		!web.Accepts(r, "application/*") && !web.Accepts(r, "*/*") {
		kind = echo.MIMEApplicationJSON
	}
	return x.Blob(status, kind, raw)
}
