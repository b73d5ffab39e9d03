package orchestrator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
)

// Submit creates a task and queues it. The same by.Once answers the task made
// before, as it is now.
func (e *Engine) Submit(ctx context.Context, by picket.Caller, spec picket.TaskSpec) (picket.Task, error) {
	if err := e.normalize(&spec); err != nil {
		return picket.Task{}, err
	}
	id := "task_" + ulid.Make().String()
	fields, err := e.specArgs(id, by.Actor, spec)
	if err != nil {
		return picket.Task{}, err
	}
	got, err := e.run(ctx, "submit", append([]any{by.Idempotency.Key, by.Idempotency.Body, spec.Fixes}, fields...)...)
	if err != nil {
		return picket.Task{}, err
	}
	r := &reply{script: "submit"}
	l := r.list(got)
	if r.int(r.at(l, 2)) == 1 {
		return e.Task(ctx, r.text(l[0]))
	}
	t := taskFromSpec(id, spec)
	t.CreatedBy = by.Actor
	t.CreatedAt = picket.Instant(r.int(r.at(l, 1)))
	t.UpdatedAt = t.CreatedAt
	return t, r.err
}

// normalize fills in what a task leaves out, its envelope as it is configured.
func (e *Engine) normalize(spec *picket.TaskSpec) error {
	if spec.BudgetEnvelope == nil {
		spec.BudgetEnvelope = e.defaultEnvelope()
	}
	return spec.Normalize()
}

// laneOf names the queue a task waits in: its agent's, or that of its role and
// needs.
func laneOf(s picket.TaskSpec) string {
	if s.Agent != "" {
		return "agent:" + s.Agent
	}
	return s.Role + "|" + strings.Join(s.Needs, ",")
}

// laneArg is where specArgs has the lane.
const laneArg = 1

// specArgs is a specification as _create.lua reads it: FIELDS, in order.
func (e *Engine) specArgs(id, actor string, s picket.TaskSpec) ([]any, error) {
	stored := s
	stored.Input = nil
	spec, err := jsonv2.Marshal(specRecord{TaskSpec: stored, Trace: s.Trace})
	if err != nil {
		return nil, fmt.Errorf("encode task: %w", err)
	}
	on := ","
	for _, class := range s.Retry.On {
		on += string(class) + ","
	}
	var labels []string
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		labels = append(labels, k+"="+s.Labels[k])
	}
	return []any{
		id, laneOf(s), *s.Priority, *s.LeaseWindowSeconds * 1000, *s.Retry.MaxAttempts, *s.Retry.BackoffSeconds * 1000,
		on, string(s.Escalate), string(s.Review), int64(s.NotBefore), s.Role, strings.Join(labels, "\n"), s.Fixes, "",
		actor, string(spec), string(s.Input), s.BudgetEnvelope.Tokens, int64(s.BudgetEnvelope.USD), e.dailyLimitArg(),
	}, nil
}

// Cancel ends a task for good, whatever it is doing.
func (e *Engine) Cancel(ctx context.Context, by picket.Caller, taskID, reason string) (picket.Task, error) {
	if err := picket.CheckID("taskId", "task", taskID); err != nil {
		return picket.Task{}, err
	}
	return e.runForTask(ctx, "cancel", taskID, by.Actor, by.Idempotency.Key, by.Idempotency.Body, reason)
}

// Retry queues an escalated task again, or makes a new task from one that
// failed, was cancelled or was rejected; the task returned is the one to run.
func (e *Engine) Retry(ctx context.Context, by picket.Caller, taskID, reason string) (picket.Task, error) {
	if err := picket.CheckID("taskId", "task", taskID); err != nil {
		return picket.Task{}, err
	}
	return e.runForTask(ctx, "retry", taskID, by.Actor, by.Idempotency.Key, by.Idempotency.Body, reason,
		"task_"+ulid.Make().String(),
		e.dailyLimitArg())
}

// runForTask runs a script that answers the view of a task.
func (e *Engine) runForTask(ctx context.Context, script string, args ...any) (picket.Task, error) {
	got, err := e.run(ctx, script, args...)
	if err != nil {
		return picket.Task{}, err
	}
	r := &reply{script: script}
	t := r.task(got)
	return t, r.err
}
