package main

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/tracing"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/toolproxy"
)

// traceService is what the traces of this process call it, if OTEL_SERVICE_NAME does not say it.
func (h serverProcess) traceService() string {
	switch h.roles {
	case roles{orchestrator: true}:
		return "picket-orchestrator"
	case roles{toolproxy: true}:
		return "picket-toolproxy"
	case roles{reaper: true}:
		return "picket-reaper"
	}
	return "picket"
}

// exportEvents makes spans of the events of all namespaces, in a process that keeps the state of
// tasks.
func (h serverProcess) exportEvents(ctx context.Context, group *errgroup.Group, tracer *tracing.Tracer,
	store *orchestrator.Store) {
	if tracer == nil || !h.orchestrator && !h.reaper {
		return
	}
	for _, e := range store.Engines() {
		group.Go(func() error {
			tracer.ExportEvents(ctx, e)
			return nil
		})
	}
}

// onCall makes spans of calls. It is nil without traces.
func onCall(calls *tracing.Calls) func(toolproxy.CallRecord) {
	if calls == nil {
		return nil
	}
	return func(r toolproxy.CallRecord) {
		var code picket.Code
		if r.Err != nil {
			code = picket.CodeOf(r.Err)
			if errors.Is(r.Err, context.Canceled) {
				code = "cancelled"
			}
		}
		calls.Add(tracing.Call{
			Namespace: r.Held.Namespace, TaskID: r.Held.TaskID, RunID: r.Held.RunID, Token: r.Token, Tool: r.Tool,
			CallID: r.CallID, Cost: r.Cost, Outcome: r.Outcome, Replayed: r.Replayed, Code: code, From: r.From,
			To: r.To, Model: r.Model, Vendor: r.Vendor, Usage: r.Usage,
		})
	}
}

// taskLookup finds a task in the store.
func taskLookup(store *orchestrator.Store) func(context.Context, string, string) (picket.Task, error) {
	return func(ctx context.Context, namespace, taskID string) (picket.Task, error) {
		e := store.Engine(namespace)
		if e == nil {
			return picket.Task{}, picket.CodeNotFound
		}
		return e.Task(ctx, taskID)
	}
}
