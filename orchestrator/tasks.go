package orchestrator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
)

// Task shows the whole of a task.
func (e *Engine) Task(ctx context.Context, taskID string) (picket.Task, error) {
	return e.FollowTask(ctx, taskID, 0)
}

// FollowTask is [Engine.Task] for a reader who knows the first emissions of the task: Emitted has those after them.
func (e *Engine) FollowTask(ctx context.Context, taskID string, known int) (picket.Task, error) {
	return e.runChecked(ctx, picket.CheckID("taskId", "task", taskID), "task", taskID, known).task()
}

// Tasks pages through tasks, newest first, without runs, input and output.
func (e *Engine) Tasks(ctx context.Context, q picket.TaskQuery) (picket.TaskPage, error) {
	var err error
	if q.Limit, err = pageLimit(q.Limit, 50, 200); err != nil {
		return picket.TaskPage{}, err
	}
	if err := checkNumericCursor(q.Cursor); err != nil {
		return picket.TaskPage{}, err
	}
	args := []any{q.Limit, q.Cursor, int64(q.Since), len(q.States)}
	for _, s := range q.States {
		if !s.Valid() {
			return picket.TaskPage{},
				picket.Invalid("state", "Send states of a task, separated by commas.", "%q is not a state", s)
		}
		args = append(args, string(s))
	}
	sets, err := filterSets(q.Role, q.Parent, q.Assignee, q.Labels)
	if err != nil {
		return picket.TaskPage{}, err
	}
	r := e.run(ctx, "list", append(append(args, "tasks"), sets...)...)
	var p struct {
		Next string `reply:"next"`
		Rows []struct {
			ID       string            `reply:"id"`
			Record   map[string]string `reply:"record"`
			Spec     specRecord        `reply:"spec,json"`
			Envelope map[string]string `reply:"envelope"`
		} `reply:"rows"`
	}
	r.Decode(&p)
	page := picket.TaskPage{NextCursor: optionalString(p.Next)}
	for _, row := range p.Rows {
		t := taskRecord(row.ID, row.Record, row.Spec)
		taskMoney(&t, row.Envelope)
		page.Tasks = append(page.Tasks, t)
	}
	return page, r.Err
}

// ClientTasks pages through the tasks that clients have submitted at endpoints.
func (e *Engine) ClientTasks(ctx context.Context, q picket.ClientTaskQuery) (picket.ClientTaskPage, error) {
	limit, err := pageLimit(q.Limit, 50, 100)
	if err != nil {
		return picket.ClientTaskPage{}, err
	}
	score, before, err := clientTaskCursor(q.Cursor)
	if err != nil {
		return picket.ClientTaskPage{}, err
	}
	contextKey := ""
	if q.ContextID != "" {
		contextKey = contextIndex(q.ContextID)
	}
	args := []any{cmp.Or(q.Client, "*"), q.Role, contextKey, limit, score, before, int64(q.Since), q.AgentID,
		boolArg(q.Emitted)}
	for _, s := range q.States {
		args = append(args, string(s))
	}
	if q.Rejected {
		args = append(args, "failed:rejected")
	}
	for _, k := range q.Handoffs {
		args = append(args, "handoff:"+string(k))
	}
	r := e.run(ctx, "client_tasks", args...)
	var p struct {
		Total int64      `reply:"total"`
		Score string     `reply:"score"`
		ID    string     `reply:"id"`
		Rows  []taskView `reply:"rows"`
	}
	r.Decode(&p)
	page := picket.ClientTaskPage{Total: p.Total}
	for _, row := range p.Rows {
		page.Tasks = append(page.Tasks, r.taskOf(row))
	}
	if p.ID != "" {
		page.NextCursor = p.Score + "." + p.ID
	}
	return page, r.Err
}

// clientTaskCursor reads the place of the row that comes before a page.
func clientTaskCursor(cursor string) (score, id string, err error) {
	if cursor == "" {
		return "", "", nil
	}
	score, id, found := strings.Cut(cursor, ".")
	if _, bad := strconv.ParseInt(score, 10, 64); !found || bad != nil || picket.CheckID("cursor", "task", id) != nil {
		return "", "", picket.Invalid("cursor", "Send the cursor of the page before.", "the cursor is not valid")
	}
	return score, id, nil
}

// Reports lists the progress reports of a task that are kept, oldest first.
func (e *Engine) Reports(ctx context.Context, taskID string) ([]picket.Report, error) {
	r := e.runChecked(ctx, picket.CheckID("taskId", "task", taskID), "reports", taskID)
	l := r.List(r.Value)
	out := make([]picket.Report, 0, len(l))
	for i, v := range l {
		if rep := r.report(r.Text(v), i == len(l)-1); rep != nil {
			out = append(out, *rep)
		}
	}
	return out, r.Err
}

// Submit creates a task and queues it. The same by.Once answers the task made
// before, as it is now.
func (e *Engine) Submit(ctx context.Context, by picket.Caller, spec picket.TaskSpec) (picket.Task, error) {
	if err := e.normalize(&spec); err != nil {
		return picket.Task{}, err
	}
	id := "task_" + ulid.Make().String()
	if spec.Client != nil && spec.Client.TaskID != "" {
		id = ClientTaskID(by.Actor, spec.Client.TaskID)
	}
	fields, err := e.specArgs(id, by.Actor, spec)
	if err != nil {
		return picket.Task{}, err
	}
	limits, err := e.clientArgs(id, spec.Client)
	if err != nil {
		return picket.Task{}, err
	}
	args := slices.Concat([]any{by.Idempotency.Key, by.Idempotency.Body, spec.Fixes}, fields, limits)
	r := e.run(ctx, "submit", args...)
	var made struct {
		Task     string `reply:"task"`
		Created  int64  `reply:"created"`  // ms
		Repeated bool   `reply:"repeated"` // the same request has made the task before
	}
	if r.Decode(&made); made.Repeated {
		return e.Task(ctx, made.Task)
	}
	t := taskFromSpec(id, spec)
	t.CreatedBy = by.Actor
	t.CreatedAt = picket.Instant(made.Created)
	t.UpdatedAt = t.CreatedAt
	return t, r.Err
}

// clientArgs are the limits of a client, and the push configuration with which its task begins.
func (e *Engine) clientArgs(taskID string, c *picket.ClientTask) ([]any, error) {
	if c == nil {
		c = &picket.ClientTask{}
	}
	push, err := e.pushArgs(taskID, c.Push)
	return slices.Concat([]any{c.MaxOpen, c.MaxQueue}, push, []any{picket.MaxClientPushes, boolArg(c.Closed)}), err
}

// normalize fills in what a task leaves out, its envelope as it is configured.
func (e *Engine) normalize(spec *picket.TaskSpec) error {
	if spec.BudgetEnvelope == nil {
		spec.BudgetEnvelope = e.defaultEnvelope()
	}
	return spec.Normalize()
}

// ClientTaskID is the id of the task that a client has submitted under an id of its own.
func ClientTaskID(client, id string) string {
	sum := sha256.Sum256([]byte(client + "\x00" + id))
	return "task_" + ulid.ULID(sum[:16]).String()
}

// contextIndex stands for the id of a context, which is any text, in the name of a list.
func contextIndex(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
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
	spec, err := json.Marshal(specRecord{TaskSpec: stored, Trace: s.Trace, Client: s.Client})
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
	client, contextKey, instance, incarnation := "", "", "", ""
	if c := s.Client; c != nil {
		client, contextKey = actor, contextIndex(c.ContextID)
		if c.AgentID != "" {
			instance, incarnation = c.AgentID, strconv.FormatInt(c.Incarnation, 10)
		}
	}
	return []any{
		id, laneOf(s), *s.Priority, *s.LeaseWindowSeconds * 1000, *s.Retry.MaxAttempts, *s.Retry.BackoffSeconds * 1000,
		on, string(s.Escalate), string(s.Review), int64(s.NotBefore), s.Role, strings.Join(labels, "\n"), s.Fixes, "",
		actor, string(spec), string(s.Input), s.BudgetEnvelope.Tokens, int64(s.BudgetEnvelope.USD), e.dailyLimitArg(),
		s.Assignee, client, contextKey, instance, incarnation,
	}, nil
}

// Cancel ends a task permanently, in any open state.
func (e *Engine) Cancel(ctx context.Context, by picket.Caller, taskID, reason string) (picket.Task, error) {
	return e.changeTask(ctx, by, picket.CheckID("taskId", "task", taskID), "cancel", taskID, reason)
}

// Retry queues an escalated task again, or makes a new task from one that
// failed, was cancelled or was rejected; the task returned is the one to run.
func (e *Engine) Retry(ctx context.Context, by picket.Caller, taskID, reason string) (picket.Task, error) {
	return e.changeTask(ctx, by, picket.CheckID("taskId", "task", taskID), "retry", taskID, reason,
		"task_"+ulid.Make().String(), e.dailyLimitArg())
}

// changeTask runs a script that changes the task of id, a task or a hand-off, unless
// its arguments were refused. It returns the task as it is then.
func (e *Engine) changeTask(ctx context.Context, by picket.Caller, refused error, script, id string,
	args ...any) (picket.Task, error) {
	who := []any{id, by.Actor, by.Idempotency.Key, by.Idempotency.Body}
	return e.runChecked(ctx, refused, script, append(who, args...)...).task()
}

// keepUntil is when the workspace of a run may go; 0 while nothing is decided.
// It follows from what the deciding verbs write in their one step, so that it
// can never say something else than they do, and from how long this server keeps it: while
// it may still be wanted, and then for as long as somebody may want to look.
func keepUntil(t picket.Task, r picket.Run, keep picket.WorkspaceRetention) picket.Instant {
	switch {
	case r.State == picket.RunRunning:
		return 0
	case r.State == picket.RunFailed || r.State == picket.RunExpired:
		return r.EndedAt + picket.Instant(keep.Failed.Milliseconds())
	case !t.State.Terminal():
		return 0
	}
	decided := t.UpdatedAt
	if t.Review != nil && t.Review.At != 0 {
		decided = t.Review.At
	}
	return decided + picket.Instant(keep.Decided.Milliseconds())
}
