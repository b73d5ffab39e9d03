package tracing

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// EventSource is a namespace whose events become spans.
type EventSource interface {
	Namespace() string
	// TracePosition is the number of the event up to which spans were made.
	TracePosition(ctx context.Context) (int64, error)
	// AdvanceTraces moves the position on. moved is false if another process did it before.
	AdvanceTraces(ctx context.Context, from, to int64) (moved bool, err error)
	Events(ctx context.Context, q picket.EventQuery) (picket.EventPage, error)
	Task(ctx context.Context, taskID string) (picket.Task, error)
}

// Bounds of what a server reads for traces.
const (
	eventsPage = 100
	eventPause = 500 * time.Millisecond
	// maxEventAge is how old an event may be that becomes a span. Older ones are from a time in which no
	// process made spans.
	maxEventAge = time.Hour
)

// tracedTypes are the events that end a span.
var tracedTypes = []string{
	picket.EventTaskLeased, picket.EventTaskReview, picket.EventTaskCompleted, picket.EventTaskHandoff,
	picket.EventTaskAnswered, picket.EventTaskFinished, picket.EventTaskApproved, picket.EventTaskRejected,
	picket.EventTaskCancelled, picket.EventTaskRetried,
	picket.EventLeaseReleased, picket.EventLeaseFailed, picket.EventLeaseExpired,
}

// ExportEvents makes spans of the events of a namespace until ctx ends: of tasks, of the time that
// they wait, of runs, hand-offs and reviews. Any number of processes may do so: each event is taken
// by one of them. If the store does not say whether an event was taken, its spans are sent
// again under the same ids.
func (t *Tracer) ExportEvents(ctx context.Context, from EventSource) {
	if t == nil {
		return
	}
	x := &eventExporter{Tracer: t, source: from, log: t.log.With("namespace", from.Namespace())}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		full, err := x.exportPage(ctx)
		if err != nil && ctx.Err() == nil && !x.failing {
			x.log.Warn("events cannot be read for traces, will be tried again", "err", err)
		}
		x.failing = err != nil
		pause := eventPause
		if full {
			pause = 0
		}
		timer.Reset(pause)
	}
}

// eventExporter makes spans of the events of one namespace.
type eventExporter struct {
	*Tracer
	source  EventSource
	log     *slog.Logger
	failing bool
	// retriedAt is when tasks were queued again by a person, as far as this process has exported that.
	// The record of a task does not have it.
	retriedAt map[string]picket.Instant
}

// maxRetried bounds how many tasks retriedAt has.
const maxRetried = 10_000

// exportPage exports the next events; full reports that there are more.
func (x *eventExporter) exportPage(ctx context.Context) (full bool, err error) {
	at, err := x.source.TracePosition(ctx)
	if err != nil {
		return false, err
	}
	page, err := x.source.Events(ctx, picket.EventQuery{After: at, Types: tracedTypes, Limit: eventsPage})
	if errors.Is(err, picket.CodeCursorExpired) {
		return true, x.skip(ctx, at)
	}
	if err != nil {
		return false, err
	}
	next, err := strconv.ParseInt(page.Next, 10, 64)
	if err != nil || next <= at {
		return false, nil
	}
	spans, err := x.spansOf(ctx, page.Events)
	if err != nil {
		return false, err
	}
	moved, err := x.source.AdvanceTraces(ctx, at, next)
	if moved || errors.Is(err, picket.ErrUnknown) {
		for _, s := range spans {
			x.send(s.task.TaskID, s.task.Trace, s.span)
		}
	}
	return true, err
}

// skip goes on at the newest event: those after at were deleted while no process made spans.
func (x *eventExporter) skip(ctx context.Context, at int64) error {
	newest, err := x.source.Events(ctx, picket.EventQuery{NewestFirst: true, Limit: 1})
	if err != nil || len(newest.Events) == 0 {
		return err
	}
	_, err = x.source.AdvanceTraces(ctx, at, newest.Events[0].Seq)
	return err
}

// taskSpan is a span of a task.
type taskSpan struct {
	task picket.Task
	span
}

// spansOf makes the spans that end with some events.
func (x *eventExporter) spansOf(ctx context.Context, events []picket.Event) (all []taskSpan, err error) {
	tasks := map[string]picket.Task{}
	for _, e := range events {
		if e.TaskID == "" || time.Since(timeOf(e.At)) > maxEventAge {
			continue
		}
		task, known := tasks[e.TaskID]
		if !known {
			task, err = x.source.Task(ctx, e.TaskID)
			if errors.Is(err, picket.CodeNotFound) {
				err = nil // deleted since
			}
			if err != nil {
				return nil, err
			}
			tasks[e.TaskID] = task
		}
		if task.TaskID != "" {
			for _, s := range x.spansOfEvent(e, task) {
				all = append(all, taskSpan{task, s})
			}
		}
	}
	return all, nil
}

// spansOfEvent makes the spans that end with an event.
func (x *eventExporter) spansOfEvent(e picket.Event, task picket.Task) (all []span) {
	facts := factsOf(e)
	run, of := runOf(task, e)
	if e.Type == picket.EventTaskRetried && facts.State == picket.TaskQueued {
		if x.retriedAt == nil || len(x.retriedAt) >= maxRetried {
			x.retriedAt = map[string]picket.Instant{}
		}
		x.retriedAt[task.TaskID] = e.At
	}
	switch {
	case of && e.Type == picket.EventTaskLeased:
		return []span{x.waitSpan(task, run)}
	case of && facts.Before.State == picket.TaskReview:
		all = append(all, x.reviewSpan(task, run, e))
	case of && facts.Before.State == picket.TaskHandoff:
		all = append(all, x.handoffSpan(task, run, e))
	case of && e.RunID != "" && !run.EndedAt.IsZero():
		all = append(all, x.runSpan(task, run, e))
	}
	if facts.State.Terminal() && e.Type != picket.EventTaskRetried {
		all = append(all, x.taskSpan(task, facts.State, e))
	}
	return all
}

// eventFacts are the members of events that matter here.
type eventFacts struct {
	State  picket.TaskState `json:"state"`
	Before struct {
		State picket.TaskState `json:"state"`
	} `json:"before"`
}

func factsOf(e picket.Event) (f eventFacts) {
	_ = json.Unmarshal(e.Data, &f) // without them there is no span
	return f
}

var reasonWord = lazyregexp.New(`^[a-z_]{1,40}$`)

// runOf is the run that an event names, or else the last one that had ended by then.
func runOf(task picket.Task, e picket.Event) (last picket.Run, ok bool) {
	for _, r := range task.Runs {
		switch {
		case r.RunID == e.RunID:
			return r, true
		case e.RunID == "" && !r.EndedAt.IsZero() && r.EndedAt <= e.At:
			last, ok = r, true
		}
	}
	return last, ok
}

func timeOf(i picket.Instant) time.Time { return time.UnixMilli(int64(i)) }

// about are the attributes of all spans of a task.
func (x *eventExporter) about(task picket.Task, more ...attribute.KeyValue) []attribute.KeyValue {
	return append(withText(nil, "picket.namespace", x.source.Namespace(), "picket.task.id", task.TaskID,
		"picket.task.role", task.Role), more...)
}

func (x *eventExporter) taskSpan(task picket.Task, state picket.TaskState, e picket.Event) span {
	s := span{
		name: "task", id: spanID("task", task.TaskID), from: timeOf(task.CreatedAt), to: timeOf(e.At),
		attrs: x.about(task, attribute.String("picket.task.state", string(state)),
			attribute.Int("picket.task.attempts", task.Attempts),
			attribute.Float64("picket.cost.usd", float64(task.Spent.USD)/1e9),
			attribute.Int64("picket.cost.tokens", task.Spent.Tokens)),
	}
	if x.titles {
		s.attrs = withText(s.attrs, "picket.task.title", task.Title)
	}
	if state == picket.TaskFailed {
		s.problem = "the task has failed"
	}
	if task.Parent != nil {
		parent := spanID("task", *task.Parent)
		if task.Trace != nil { // the parent is a part of the same trace
			s.parent = parent
		} else {
			id, _ := traceID(*task.Parent, nil)
			s.link = trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: parent, Remote: true})
		}
		s.attrs = withText(s.attrs, "picket.task.parent", *task.Parent)
	}
	return s
}

// waitSpan is the time in which a task waited for a worker: since it was submitted, since the run
// before ended, or since a person answered.
func (x *eventExporter) waitSpan(task picket.Task, run picket.Run) span {
	since := max(task.CreatedAt, min(task.NotBefore, run.StartedAt))
	if at := x.retriedAt[task.TaskID]; at <= run.StartedAt {
		since = max(since, at)
	}
	for _, r := range task.Runs {
		if r.Attempt < run.Attempt {
			since = max(since, r.EndedAt)
		}
	}
	for _, a := range task.Answers {
		if a.At <= run.StartedAt {
			since = max(since, a.At)
		}
	}
	return span{
		name: "wait for a worker", id: spanID("wait", run.RunID), parent: spanID("task", task.TaskID),
		from: timeOf(since), to: timeOf(run.StartedAt),
		attrs: x.about(task, attribute.Int("picket.run.attempt", run.Attempt)),
	}
}

func (x *eventExporter) runSpan(task picket.Task, run picket.Run, e picket.Event) span {
	s := span{
		name: "run", id: spanID("run", run.RunID), parent: spanID("task", task.TaskID),
		from: timeOf(run.StartedAt), to: timeOf(run.EndedAt),
		attrs: withText(x.about(task, attribute.Int64("picket.fencing_token", run.FencingToken),
			attribute.Int("picket.run.attempt", run.Attempt),
			attribute.Float64("picket.cost.usd", float64(run.Spent.USD)/1e9),
			attribute.Int64("picket.cost.tokens", run.Spent.Tokens)),
			"picket.run.id", run.RunID, "picket.agent.id", run.AgentID),
	}
	if run.Exit == nil {
		return s
	}
	class := run.Exit.Class
	s.attrs = withText(s.attrs, "picket.run.class", string(class))
	if code := run.Exit.Code; code != nil {
		s.attrs = append(s.attrs, attribute.Int("process.exit.code", *code))
	}
	switch class {
	case picket.ExitSuccess, picket.ExitReleased, picket.ExitCancelled, picket.ExitUndelivered:
		return s
	}
	s.problem = string(class)
	// A reason of the server is one word. One that a person gave is not sent.
	if e.Type == picket.EventLeaseExpired && reasonWord().MatchString(e.Reason) {
		s.problem = "the lease was lost: " + e.Reason
		s.attrs = withText(s.attrs, "picket.lease.lost", e.Reason)
	}
	s.attrs = withText(s.attrs, "error.type", string(class))
	return s
}

// reviewSpan is the time in which a result waited for a decision.
func (x *eventExporter) reviewSpan(task picket.Task, run picket.Run, e picket.Event) span {
	return span{
		name: "review", id: spanID("review", task.TaskID), parent: spanID("task", task.TaskID),
		from: timeOf(run.EndedAt), to: timeOf(e.At),
		attrs: withText(x.about(task), "picket.decision", strings.TrimPrefix(e.Type, "task."), "picket.actor", e.Actor),
	}
}

// handoffSpan is the time in which a task waited for a person.
func (x *eventExporter) handoffSpan(task picket.Task, run picket.Run, e picket.Event) span {
	id := "handoff_" + strings.TrimPrefix(run.RunID, "run_")
	s := span{
		name: "hand-off", id: spanID("handoff", id), parent: spanID("task", task.TaskID),
		from: timeOf(run.EndedAt), to: timeOf(e.At),
		attrs: withText(x.about(task), "picket.handoff.id", id, "picket.decision", strings.TrimPrefix(e.Type, "task."),
			"picket.actor", e.Actor),
	}
	if h := task.Handoff; h != nil && h.HandoffID == id {
		s.attrs = withText(s.attrs, "picket.handoff.kind", string(h.Kind))
	}
	return s
}
