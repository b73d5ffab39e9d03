package main

import (
	"context"
	"os"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
)

// submit makes a task. It is a part of the trace that this command is a part
// of, as its environment says.
func (s *connection) submit(ctx context.Context, spec picket.TaskSpec, task *picket.Task, raw *jsontext.Value) error {
	var opts []adapter.Option
	if trace := picket.ParseTrace([]string{os.Getenv("TRACEPARENT")}, []string{os.Getenv("TRACESTATE")}); trace != nil {
		opts = append(opts, adapter.WithHeader("Traceparent", trace.Parent))
		if trace.State != "" {
			opts = append(opts, adapter.WithHeader("Tracestate", trace.State))
		}
	}
	return s.post(ctx, "/api/v1/tasks", spec, task, raw, opts...)
}
