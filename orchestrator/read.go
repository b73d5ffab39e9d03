package orchestrator

import (
	"context"
	"strconv"

	"github.com/picket-dev/picket"
)

// Bounds of listings that are not paged.
const maxListRows = 1000

// Task shows the whole of a task.
func (e *Engine) Task(ctx context.Context, taskID string) (picket.Task, error) {
	if err := picket.CheckID("taskId", "task", taskID); err != nil {
		return picket.Task{}, err
	}
	return e.runForTask(ctx, "task", taskID)
}

// Tasks pages through tasks, newest first, without runs, input and output.
func (e *Engine) Tasks(ctx context.Context, q picket.TaskQuery) (picket.TaskPage, error) {
	if q.Limit == 0 {
		q.Limit = 50
	}
	if q.Limit < 1 || q.Limit > 200 {
		return picket.TaskPage{},
			picket.Invalid("limit", "Send a number from 1 to 200.", "limit is %d, allowed are 1 to 200", q.Limit)
	}
	if q.Cursor != "" {
		if n, err := strconv.ParseInt(q.Cursor, 10, 64); err != nil || n < 0 || n > 1<<53 {
			return picket.TaskPage{},
				picket.Invalid("cursor", "Send nextCursor of the page before, or leave it out.",
					"cursor is not one of ours")
		}
	}
	args := []any{q.Limit, q.Cursor, int64(q.Since), len(q.States)}
	for _, s := range q.States {
		if !s.Valid() {
			return picket.TaskPage{},
				picket.Invalid("state", "Send states of a task, separated by commas.", "%q is not a state", s)
		}
		args = append(args, string(s))
	}
	args = append(args, "tasks")
	if q.Role != "" {
		if err := picket.CheckName("role", q.Role); err != nil {
			return picket.TaskPage{}, err
		}
		args = append(args, "by-role:"+q.Role)
	}
	if q.Parent != "" {
		if err := picket.CheckID("parent", "task", q.Parent); err != nil {
			return picket.TaskPage{}, err
		}
		args = append(args, "children:"+q.Parent)
	}
	for k, v := range q.Labels {
		if err := picket.CheckLabel("label", k, v); err != nil {
			return picket.TaskPage{}, err
		}
		args = append(args, "by-label:"+k+"="+v)
	}
	got, err := e.run(ctx, "list", args...)
	if err != nil {
		return picket.TaskPage{}, err
	}
	r := &reply{script: "list"}
	l := r.list(got)
	page := picket.TaskPage{NextCursor: optionalString(r.text(r.at(l, 0)))}
	for _, v := range l[1:] {
		row := r.list(v)
		t := r.taskRecord(r.text(r.at(row, 0)), r.at(row, 1), r.at(row, 2))
		r.taskMoney(&t, r.at(row, 3))
		page.Tasks = append(page.Tasks, t)
	}
	return page, r.err
}

// Reports lists the last 1,000 progress reports of a task, oldest first.
func (e *Engine) Reports(ctx context.Context, taskID string) ([]picket.Report, error) {
	if err := picket.CheckID("taskId", "task", taskID); err != nil {
		return nil, err
	}
	got, err := e.run(ctx, "reports", taskID)
	if err != nil {
		return nil, err
	}
	r := &reply{script: "reports"}
	l := r.list(got)
	out := make([]picket.Report, 0, len(l))
	for i, v := range l {
		if rep := r.report(v, i == len(l)-1); rep != nil {
			out = append(out, *rep)
		}
	}
	return out, r.err
}

// Log reads up to limit bytes of a run's output from offset on; an empty runID
// means the latest run. A chunk may start later than asked when the older part
// is not kept any more.
func (e *Engine) Log(ctx context.Context, taskID, runID, stream string, offset int64,
	limit int) (picket.LogChunk, error) {
	if err := picket.CheckID("taskId", "task", taskID); err != nil {
		return picket.LogChunk{}, err
	}
	if runID != "" {
		if err := picket.CheckID("run", "run", runID); err != nil {
			return picket.LogChunk{}, err
		}
	}
	if err := checkStream(stream); err != nil {
		return picket.LogChunk{}, err
	}
	got, err := e.run(ctx, "log", taskID, runID, stream, max(offset, 0), min(max(limit, 1), 1<<20))
	if err != nil {
		return picket.LogChunk{}, err
	}
	r := &reply{script: "log"}
	l := r.list(got)
	c := picket.LogChunk{
		RunID:       r.text(r.at(l, 0)),
		Stream:      stream,
		Offset:      r.int(r.at(l, 1)),
		Data:        []byte(r.text(r.at(l, 2))),
		LatestRunID: r.text(r.at(l, 4)),
		TaskState:   picket.TaskState(r.text(r.at(l, 5))),
	}
	c.Next = c.Offset + int64(len(c.Data))
	before := r.text(r.at(l, 3))
	c.MidLine = before != "" && before != "\n"
	c.State = logState(r.text(r.at(l, 6)), r.text(r.at(l, 7)))
	for _, v := range l[min(8, len(l)):] {
		c.Marks = append(c.Marks, r.marks(r.text(v))...)
	}
	return c, r.err
}

func logState(runState, closed string) picket.LogState {
	switch {
	case closed == "1":
		return picket.LogClosed
	case runState != "" && runState != string(picket.RunRunning):
		return picket.LogEnded
	}
	return picket.LogOpen
}

// Leases lists up to 1,000 live leases, the next to expire first.
func (e *Engine) Leases(ctx context.Context) ([]picket.LiveLease, error) {
	got, err := e.run(ctx, "leases", maxListRows)
	if err != nil {
		return nil, err
	}
	r := &reply{script: "leases"}
	l := r.list(got)
	raw := r.int(r.at(l, 0))
	out := make([]picket.LiveLease, 0, len(l)-1)
	for _, v := range l[1:] {
		row := r.list(v)
		ttl := r.int(r.at(row, 4))
		out = append(out, picket.LiveLease{
			TaskID:         r.text(r.at(row, 0)),
			RunID:          r.text(r.at(row, 1)),
			AgentID:        r.text(r.at(row, 2)),
			FencingToken:   r.int(r.at(row, 3)),
			LeaseTTLMs:     ttl,
			LeaseExpiresAt: picket.Instant(raw + ttl),
			Renewals:       r.int(r.at(row, 5)),
		})
	}
	return out, r.err
}
