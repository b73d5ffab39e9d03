package a2a

import (
	"bytes"
	"cmp"
	"context"
	stdjson "encoding/json"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/internal/web"
)

// rpcRequest is a request of JSON-RPC 2.0.
type rpcRequest struct {
	Version string             `json:"jsonrpc"`
	ID      stdjson.RawMessage `json:"id"`
	Method  string             `json:"method"`
	Params  stdjson.RawMessage `json:"params"`
}

// rpcMethod is an operation that takes params. A method with a stream answers events.
type rpcMethod struct {
	call   func(ctx context.Context, x *exchange, params []byte) (any, error)
	stream func(ctx context.Context, x *exchange, params []byte) (*stream, error)
}

var rpcMethods = map[string]rpcMethod{
	"SendMessage":          {call: calls(sendResult)},
	"SendStreamingMessage": {stream: streams(sendStream)},
	"GetTask":              {call: calls((*exchange).getTask)},
	"ListTasks":            {call: calls(listPage)},
	"CancelTask":           {call: calls((*exchange).cancelTask)},
	"SubscribeToTask":      {stream: streams((*exchange).subscribe)},

	"CreateTaskPushNotificationConfig": {call: calls((*exchange).createPush)},
	"GetTaskPushNotificationConfig":    {call: calls((*exchange).getPush)},
	"ListTaskPushNotificationConfigs":  {call: calls((*exchange).listPushes)},
	"DeleteTaskPushNotificationConfig": {call: calls((*exchange).deletePush)},
	"GetExtendedAgentCard": {call: func(ctx context.Context, x *exchange, _ []byte) (any, error) {
		return x.extendedCard(ctx)
	}},
}

// sendResult wraps the task that a message became, as the protocol does.
func sendResult(x *exchange, ctx context.Context, params *sendParams) (protocol.StreamResponse, error) {
	result, err := x.sendMessage(ctx, params.request())
	return protocol.StreamResponse{Event: result}, err
}

func sendStream(x *exchange, ctx context.Context, params *sendParams) (*stream, error) {
	return x.sendStreaming(ctx, params.request())
}

// listParams are the params of ListTasks. Its PageSize tells 0 from an absent one.
type listParams struct {
	protocol.ListTasksRequest
	PageSize *int `json:"pageSize"`
}

// listPage lists tasks. A page of none cannot be asked for.
func listPage(x *exchange, ctx context.Context, p *listParams) (*protocol.ListTasksResponse, error) {
	if p.PageSize != nil {
		if err := checkPageSize(*p.PageSize); err != nil {
			return nil, err
		}
		p.ListTasksRequest.PageSize = *p.PageSize
	}
	return x.listTasks(ctx, &p.ListTasksRequest)
}

// calls decodes the params of an operation.
func calls[Params, Result any](do func(*exchange, context.Context, *Params) (Result, error),
) func(context.Context, *exchange, []byte) (any, error) {
	return func(ctx context.Context, x *exchange, raw []byte) (any, error) {
		var params Params
		if err := decodeParams(raw, &params); err != nil {
			return nil, err
		}
		return do(x, ctx, &params)
	}
}

func streams[Params any](do func(*exchange, context.Context, *Params) (*stream, error),
) func(context.Context, *exchange, []byte) (*stream, error) {
	return func(ctx context.Context, x *exchange, raw []byte) (*stream, error) {
		var params Params
		if err := decodeParams(raw, &params); err != nil {
			return nil, err
		}
		return do(x, ctx, &params)
	}
}

// decodeParams reads the params of an operation. Members of their first level may be in snake case.
func decodeParams(raw []byte, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte("{}")
	}
	if web.Depth(raw) > web.MaxDepth {
		return protocol.NewError(protocol.ErrInvalidParams, fmt.Sprintf("the JSON is nested deeper than %d levels",
			web.MaxDepth))
	}
	var members map[string]stdjson.RawMessage
	if stdjson.Unmarshal(raw, &members) != nil {
		return protocol.NewError(protocol.ErrInvalidParams, "params is not a JSON object")
	}
	for name, value := range members {
		camel := camelCase(name)
		if camel == name {
			continue
		}
		if _, twice := members[camel]; twice {
			return protocol.NewError(protocol.ErrInvalidParams,
				fmt.Sprintf("params has both %.64q and %.64q; send one of them", name, camel))
		}
		delete(members, name)
		members[camel] = value
	}
	raw, err := stdjson.Marshal(members)
	if err != nil {
		return err
	}
	if err := stdjson.Unmarshal(raw, into); err != nil {
		return protocol.NewError(protocol.ErrInvalidParams, "params: "+strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// camelCase is a name in snake case as the protocol writes it.
func camelCase(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// serveRPC answers a request of the JSON-RPC binding.
func serveRPC(x *exchange) error {
	if base, _, err := mime.ParseMediaType(x.Request().Header.Get(echo.HeaderContentType)); err != nil ||
		base != echo.MIMEApplicationJSON {
		return x.rpcFailure(nil, protocol.NewError(protocol.ErrUnsupportedContentType,
			"send Content-Type: application/json"))
	}
	raw, err := web.ReadBody(x.Context, maxBody, echo.MIMEApplicationJSON)
	if err != nil {
		return x.rpcFailure(nil, err)
	}
	var req rpcRequest
	if err := stdjson.Unmarshal(raw, &req); err != nil {
		if stdjson.Valid(raw) {
			return x.rpcFailure(nil, protocol.ErrInvalidRequest)
		}
		return x.rpcFailure(nil, protocol.ErrParseError)
	}
	if !validID(req.ID) {
		return x.rpcFailure(nil, protocol.NewError(protocol.ErrInvalidRequest,
			fmt.Sprintf("id must be a string, a number or null, of at most %d bytes", maxRPCID)))
	}
	if req.Version != "2.0" || req.Method == "" {
		return x.rpcFailure(req.ID, protocol.NewError(protocol.ErrInvalidRequest,
			`jsonrpc must be "2.0", and method a name`))
	}
	if err := cmp.Or(x.lost, x.checkVersion()); err != nil {
		return x.rpcFailure(req.ID, err)
	}
	return x.callRPC(req)
}

func (x *exchange) callRPC(req rpcRequest) error {
	method, known := rpcMethods[req.Method]
	if !known {
		return x.rpcFailure(req.ID, protocol.NewError(protocol.ErrMethodNotFound,
			fmt.Sprintf("%.64q is not a method of A2A 1.0", req.Method)))
	}
	ctx, done := x.waitContext()
	defer done()
	if method.stream == nil {
		result, err := method.call(ctx, x, req.Params)
		if err != nil {
			return x.rpcFailure(req.ID, err)
		}
		return x.JSON(http.StatusOK, rpcResult(req.ID, result))
	}
	s, err := method.stream(ctx, x, req.Params)
	if err != nil {
		return x.rpcFailure(req.ID, err)
	}
	id := req.ID // the stream holds nothing else of the request
	return x.send(ctx, s, func(ev protocol.Event, err error) any {
		if err != nil {
			return rpcError(id, failureOf(err))
		}
		return rpcResult(id, protocol.StreamResponse{Event: ev})
	})
}

// maxRPCID is how many bytes the id of a request may have. Each event of a stream repeats it.
const maxRPCID = 1024

// validID reports whether the id of a request is a string, a number or null, and is not too long.
func validID(id stdjson.RawMessage) bool {
	if len(id) > maxRPCID {
		return false
	}
	if len(id) == 0 || string(id) == "null" {
		return true
	}
	return id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9'
}

func rpcResult(id stdjson.RawMessage, result any) map[string]any {
	return map[string]any{"jsonrpc": "2.0", "id": orNull(id), "result": result}
}

func rpcError(id stdjson.RawMessage, f failure) map[string]any {
	return map[string]any{"jsonrpc": "2.0", "id": orNull(id), "error": f.rpc()}
}

func orNull(id stdjson.RawMessage) stdjson.RawMessage {
	if len(id) == 0 {
		return stdjson.RawMessage("null")
	}
	return id
}

// rpcFailure answers an error of JSON-RPC, which has the status 200.
func (x *exchange) rpcFailure(id stdjson.RawMessage, err error) error {
	x.logUnexpected(err)
	f := failureOf(err)
	f.setRetryAfter(x.Response().Header())
	return x.JSON(http.StatusOK, rpcError(id, f))
}

// refuseRate answers a client of the JSON-RPC binding that sends too many requests. Its request is not read, so the
// answer has no id. The status is that of HTTP, which proxies and libraries know.
func (x *exchange) refuseRate(err error) error {
	f := failureOf(err)
	f.setRetryAfter(x.Response().Header())
	return x.JSON(f.status, rpcError(nil, f))
}

// supportedVersion is this version of the protocol, with any patch number, which does not count.
var supportedVersion = lazyregexp.New(`^` + regexp.QuoteMeta(string(protocol.Version)) + `(\.[0-9]+)?$`)

// checkVersion refuses other versions of the protocol. A client that names none is answered in this one.
func (x *exchange) checkVersion() error {
	got := x.Request().Header.Get(protocol.SvcParamVersion)
	if got == "" {
		got = x.QueryParam(protocol.SvcParamVersion)
	}
	if got == "" || supportedVersion().MatchString(got) {
		return nil
	}
	return protocol.NewError(protocol.ErrVersionNotSupported,
		fmt.Sprintf("version %.32q is not supported; send A2A-Version: %s", got, protocol.Version))
}

// logUnexpected logs an error whose text the client does not get.
func (x *exchange) logUnexpected(err error) {
	if f := failureOf(err); f.status >= http.StatusInternalServerError && f.status != http.StatusServiceUnavailable {
		x.server.log.ErrorContext(x.Request().Context(), "a request at an endpoint failed", "error", err,
			"code", string(picket.CodeInternal))
	}
}
