package web

import (
	"context"
	"log/slog"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// logIDs is what leads from a line of the log back to the request it was
// written for.
type logIDs struct {
	request string
	trace   string
}

type logIDsKey struct{}

// setLogIDs puts the id of the request, and of the trace that it is a part of,
// into its context.
func setLogIDs(c echo.Context, requestID string) {
	r := c.Request()
	t := logIDs{request: requestID, trace: picket.ParseTrace(r.Header.Values("Traceparent"), nil).ID()}
	c.SetRequest(r.WithContext(context.WithValue(r.Context(), logIDsKey{}, t)))
}

// WithLogIDs is a log whose lines say for which request they were written, as
// requestId and, where it is a part of a trace, traceId. They must be written
// with the request's context, or one that is made of it.
func WithLogIDs(log *slog.Logger) *slog.Logger {
	if _, already := log.Handler().(logIDsHandler); already {
		return log
	}
	return slog.New(logIDsHandler{log.Handler()})
}

type logIDsHandler struct{ slog.Handler }

func (h logIDsHandler) Handle(ctx context.Context, line slog.Record) error {
	if t, ok := ctx.Value(logIDsKey{}).(logIDs); ok {
		line.AddAttrs(slog.String("requestId", t.request))
		if t.trace != "" {
			line.AddAttrs(slog.String("traceId", t.trace))
		}
	}
	return h.Handler.Handle(ctx, line)
}

func (h logIDsHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logIDsHandler{h.Handler.WithAttrs(attrs)}
}
func (h logIDsHandler) WithGroup(name string) slog.Handler {
	return logIDsHandler{h.Handler.WithGroup(name)}
}
