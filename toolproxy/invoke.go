package toolproxy

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/web"
)

// maxArgs bounds the arguments of a tool that has no bound of its own, in
// bytes.
const maxArgs = 1 << 20

// Invoke runs a tool by its name, for calls over HTTP and over MCP alike. args is a JSON
// object, where empty text means {}. key is the caller's idempotency key, or "". The
// answer is a JSON object. Refusals are *picket.Error, and those of the fence have been
// recorded.
func (p *Proxy) Invoke(ctx context.Context, backend Backend, held picket.LeaseCredential, name string,
	args jsontext.Value, key string) (jsontext.Value, error) {
	ctx, end := p.BeginCall(ctx, held, name)
	answer, err := p.invoke(ctx, Call{Backend: backend, Held: held, Name: name, Args: args, Key: key})
	end(err)
	if e, ok := errors.AsType[*estimateError](err); ok {
		return EncodeJSON(e.estimate)
	}
	return answer, err
}

func (p *Proxy) invoke(ctx context.Context, c Call) (jsontext.Value, error) {
	if !isOpen(c.Held, c.Name) {
		return nil, refuseTool(c.Held)
	}
	if c.Held.OfSession() {
		if err := CheckNoLeaseToken(c.Held, c.Args); err != nil {
			return nil, err
		}
	}
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

type toolList struct {
	Tools []Tool `json:"tools"`
}

func (p *Proxy) handleListTools(c echo.Context, b Backend, held picket.LeaseCredential) (any, error) {
	list, err := p.ToolsFor(c.Request().Context(), b, held)
	return toolList{list}, err
}

func (p *Proxy) handleCallTool(c echo.Context, b Backend, held picket.LeaseCredential) (any, error) {
	h := c.Request().Header
	key, err := idempotencyKey(h)
	if err != nil {
		return nil, err
	}
	name := c.Param("name")
	args, err := web.ReadBody(c, argsLimit(name), echo.MIMEApplicationJSON)
	if err != nil {
		return nil, err
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
		return nil, picket.Invalid(picket.EstimateHeader, "Send true, or leave it out.", "%s is neither true nor false",
			picket.EstimateHeader)
	}
	answer, err := p.Invoke(ctx, b, held, name, args, key)
	if err != nil && waitingTools[name] && web.Stopping(c) && c.Request().Context().Err() == nil {
		return nil, web.StoppingError()
	}
	return answer, err
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

// CheckKey refuses what is not an idempotency key of 1 to 255 bytes. The error is a
// *picket.Error.
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

// toolNotFound refuses the name of an unknown tool.
func (p *Proxy) toolNotFound(ctx context.Context, c Call) error {
	if record := RecordOf(ctx); record != nil {
		record.Tool = "unknown" // the name is a text of the agent
	}
	list, err := p.ToolsFor(ctx, c.Backend, c.Held)
	if err != nil {
		return err
	}
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = t.Name
	}
	return picket.Refuse(picket.CodeNotFound, "Call one of: "+commaList(names)+".", "there is no tool %q",
		web.Shortened(c.Name)).
		With("tools", names)
}

// ToolsFor lists what a run can call: the free tools, then those of the sources, in the
// order in which the sources were added. An agent session has a few of the free tools.
func (p *Proxy) ToolsFor(ctx context.Context, backend Backend, held picket.LeaseCredential) ([]Tool, error) {
	list := openTools(held)
	if held.OfSession() {
		return list, nil
	}
	for _, s := range p.sources {
		more, err := s.Tools(ctx, backend, held)
		if err != nil {
			return nil, err
		}
		for _, t := range more {
			if !slices.ContainsFunc(list, func(known Tool) bool { return known.Name == t.Name }) {
				list = append(list, t)
			}
		}
	}
	return list, nil
}
