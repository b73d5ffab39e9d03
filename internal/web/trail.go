package web

import (
	"context"
	"log/slog"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// trail is what leads from a line of the log back to the request it was
// written for.
type trail struct {
	request string
	trace   string
}

type trailKey struct{}

// withTrail puts the id of the request, and of the trace that it is a part of,
// into its context.
func withTrail(c echo.Context, requestID string) {
	r := c.Request()
	t := trail{request: requestID, trace: picket.ParseTrace(r.Header.Values("Traceparent"), nil).ID()}
	c.SetRequest(r.WithContext(context.WithValue(r.Context(), trailKey{}, t)))
}

// Logged is a log whose lines say for which request they were written, as
// requestId and, where it is a part of a trace, traceId. They must be written
// with the request's context, or one that is made of it.
func Logged(log *slog.Logger) *slog.Logger {
	if _, already := log.Handler().(trailed); already {
		return log
	}
	return slog.New(trailed{log.Handler()})
}

type trailed struct{ slog.Handler }

func (h trailed) Handle(ctx context.Context, line slog.Record) error {
	if t, ok := ctx.Value(trailKey{}).(trail); ok {
		line.AddAttrs(slog.String("requestId", t.request))
		if t.trace != "" {
			line.AddAttrs(slog.String("traceId", t.trace))
		}
	}
	return h.Handler.Handle(ctx, line)
}

func (h trailed) WithAttrs(attrs []slog.Attr) slog.Handler {
	return trailed{h.Handler.WithAttrs(attrs)}
}
func (h trailed) WithGroup(name string) slog.Handler { return trailed{h.Handler.WithGroup(name)} }
