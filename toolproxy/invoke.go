package toolproxy

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/web"
)

// maxArgs bounds the arguments of a tool that has no bound of its own, in
// bytes.
const maxArgs = 1 << 20

// Invoke runs a tool by its name: the one way for calls over HTTP and over
// MCP. args is a JSON object (empty: {}), key the caller's idempotency key, ""
// for none. Refusals are *picket.Error; those of the fence have been recorded.
func (p *Proxy) Invoke(ctx context.Context, door Backend, held picket.LeaseCredential, name string, args jsontext.Value,
	key string) (jsontext.Value, error) {
	answer, err := p.invoke(ctx, Call{Backend: door, Held: held, Name: name, Args: args, Key: key})
	var e *estimateError
	if errors.As(err, &e) {
		return EncodeJSON(e.Estimate)
	}
	return answer, err
}

func (p *Proxy) invoke(ctx context.Context, c Call) (jsontext.Value, error) {
	if limit := argsLimit(c.Name); int64(len(c.Args)) > limit {
		return nil, picket.Refuse(picket.CodeTooLarge, "Send less: keep large things in files and name them.",
			"the arguments have %d bytes, at most %d are allowed", len(c.Args), limit).With("limit", limit)
	}
	if b, ok := freeToolHandlers[c.Name]; ok {
		return p.callFree(ctx, b, c)
	}
	for _, s := range p.sources {
		answer, mine, err := s.Call(ctx, c)
		if !mine {
			continue
		}
		if err != nil {
			p.RecordRefusal(ctx, c.Backend, c.Held, c.Name, err)
		}
		return answer, err
	}
	return nil, p.toolNotFound(ctx, c)
}

// callFree calls a built-in tool that costs nothing.
func (p *Proxy) callFree(ctx context.Context, b freeToolHandler, c Call) (jsontext.Value, error) {
	if isEstimate(ctx) {
		return nil, p.estimate(ctx, c.Backend, c.Held, c.Name, budget.Envelope{}, "")
	}
	answer, err := b.call(ctx, c)
	if err != nil {
		if b.recordRefusal {
			p.RecordRefusal(ctx, c.Backend, c.Held, c.Name, err)
		}
		return nil, err
	}
	return EncodeJSON(answer)
}

func argsLimit(name string) int64 {
	if b, ok := freeToolHandlers[name]; ok {
		return b.limit
	}
	return maxArgs
}

// EncodeJSON writes a value as JSON whose object members are sorted, so that equal
// values have equal bytes.
func EncodeJSON(v any) (jsontext.Value, error) { return json.Marshal(v, json.Deterministic(true)) }

// DecodeArgs reads the arguments of a call as strictly as the body of a request.
// Empty arguments are {}. Errors are *picket.Error.
func DecodeArgs[T any](args jsontext.Value) (v T, err error) {
	if len(bytes.TrimLeft(args, " \t\r\n")) > 0 {
		err = web.Unmarshal(args, &v)
	}
	return v, err
}

type toolList struct {
	Tools []Tool `json:"tools"`
}

func handleListTools(p *Proxy, c echo.Context, door Backend, held picket.LeaseCredential) error {
	list, err := p.ToolsFor(c.Request().Context(), door, held)
	if err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, toolList{list})
}

func handleCallTool(p *Proxy, c echo.Context, door Backend, held picket.LeaseCredential) error {
	h := c.Request().Header
	key, err := idempotencyKey(h)
	if err != nil {
		return err
	}
	name := c.Param("name")
	args, err := web.ReadBody(c, argsLimit(name), echo.MIMEApplicationJSON)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if waitingTools[name] {
		waiting, over := web.WaitContext(c)
		defer over()
		ctx = waiting
	}
	switch h.Get(picket.EstimateHeader) {
	case "true":
		ctx = withEstimate(ctx)
	case "", "false":
	default:
		return picket.Invalid(picket.EstimateHeader, "Send true, or leave it out.", "%s is neither true nor false",
			picket.EstimateHeader)
	}
	answer, err := p.Invoke(ctx, door, held, name, args, key)
	if err != nil && waitingTools[name] && web.Stopping(c) && c.Request().Context().Err() == nil {
		return web.StoppingError()
	}
	if err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, answer)
}

// idempotencyKey is the key of a request, "" when it has none.
func idempotencyKey(h http.Header) (string, error) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 {
		return "", invalidKey()
	}
	return values[0], CheckKey(values[0])
}

// CheckKey refuses what is not an idempotency key; "" is none either.
func CheckKey(key string) error {
	if key == "" || len(key) > 255 {
		return invalidKey()
	}
	return nil
}

func invalidKey() error {
	return picket.Invalid("Idempotency-Key", "Send one key of 1 to 255 characters, or none.",
		"the Idempotency-Key is not one key of 1 to 255 characters")
}

// toolNotFound refuses a name that nothing here answers to.
func (p *Proxy) toolNotFound(ctx context.Context, c Call) error {
	list, err := p.ToolsFor(ctx, c.Backend, c.Held)
	if err != nil {
		return err
	}
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = t.Name
	}
	return picket.Refuse(picket.CodeNotFound, "Call one of: "+commaList(names)+".", "there is no tool %q",
		shortened(c.Name)).
		With("tools", names)
}
