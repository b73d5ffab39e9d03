package client

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/picket-dev/picket"
)

// Tasks submits, reads and steers tasks.
type Tasks struct{ c *Client }

// Create submits a task.
func (t Tasks) Create(ctx context.Context, spec picket.TaskSpec, opts ...Option) (picket.Task, error) {
	return post[picket.Task](ctx, t.c, route("tasks"), spec, opts)
}

// Get reads a task.
func (t Tasks) Get(ctx context.Context, id string, opts ...Option) (picket.Task, error) {
	return get[picket.Task](ctx, t.c, route("tasks", id), opts)
}

// List reads a page of tasks, newest first, without their runs and payloads.
func (t Tasks) List(ctx context.Context, q picket.TaskQuery, opts ...Option) (picket.TaskPage, error) {
	v := parameters("state", joined(q.States), "role", q.Role, "parent", q.Parent, "label", q.Labels,
		"since", q.Since, "limit", q.Limit, "cursor", q.Cursor)
	return query[picket.TaskPage](ctx, t.c, route("tasks"), v, opts)
}

// All reads the tasks of all pages from the one that the query begins with.
func (t Tasks) All(ctx context.Context, q picket.TaskQuery, opts ...Option) iter.Seq2[picket.Task, error] {
	return all(q.Cursor, func(cursor string) ([]picket.Task, *string, error) {
		q.Cursor = cursor
		page, err := t.List(ctx, q, opts...)
		return page.Tasks, page.NextCursor, err
	})
}

// Cancel ends a task. Its run ends within a second or two.
func (t Tasks) Cancel(ctx context.Context, id, reason string, opts ...Option) (picket.Task, error) {
	return post[picket.Task](ctx, t.c, route("tasks", id, "cancel"), reasonBody{reason}, opts)
}

// Retry queues an escalated task again, or repeats a closed one as a new task.
func (t Tasks) Retry(ctx context.Context, id, reason string, opts ...Option) (picket.Task, error) {
	return post[picket.Task](ctx, t.c, route("tasks", id, "retry"), reasonBody{reason}, opts)
}

// Explain reads why a task is where it is, and what to do about it.
func (t Tasks) Explain(ctx context.Context, id string, opts ...Option) (picket.Explanation, error) {
	return get[picket.Explanation](ctx, t.c, route("tasks", id, "explain"), opts)
}

// Reports reads the progress reports of a task, oldest first.
func (t Tasks) Reports(ctx context.Context, id string, opts ...Option) ([]picket.Report, error) {
	got, err := get[struct {
		Reports []picket.Report `json:"reports"`
	}](ctx, t.c, route("tasks", id, "reports"), opts)
	return got.Reports, err
}

// Evidence reads what the runs of a task have changed, the latest run first.
func (t Tasks) Evidence(ctx context.Context, id string, opts ...Option) ([]picket.Evidence, error) {
	got, err := get[struct {
		Evidence []picket.Evidence `json:"evidence"`
	}](ctx, t.c, route("tasks", id, "evidence"), opts)
	return got.Evidence, err
}

// LogQuery selects a piece of the output of a run.
type LogQuery struct {
	Run    string // defaults to the latest run of the task
	Stream string // stdout, the default, or stderr
	Offset int64  // of the first byte
	Limit  int    // 1 to 1,048,576 bytes, default 65,536
	// Follow waits up to 30 s for output: of this run if it is "run", also of later runs
	// of the task if it is "task". Defaults to "", which does not wait.
	Follow     string
	Timestamps bool // begin each line with the time at which it was written
}

// Log reads a piece of the output of a run. Marks and MidLine are not sent.
func (t Tasks) Log(ctx context.Context, id string, q LogQuery, opts ...Option) (picket.LogChunk, error) {
	v := parameters("run", q.Run, "stream", q.Stream, "offset", q.Offset, "limit", q.Limit, "follow", q.Follow,
		"timestamps", q.Timestamps)
	if q.Follow != "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.c.options.Timeout+30*time.Second)
		defer cancel()
	}
	var data []byte
	var h http.Header
	opts = append([]Option{WithQuery(v), WithBody(&data), WithResponseHeader(&h)}, opts...)
	if err := t.c.Call(ctx, http.MethodGet, route("tasks", id, "logs"), nil, nil, opts...); err != nil {
		return picket.LogChunk{}, err
	}
	chunk := picket.LogChunk{
		RunID:       h.Get("X-Picket-Run"),
		Stream:      h.Get("X-Picket-Stream"),
		Data:        data,
		State:       picket.LogState(h.Get("X-Picket-Log")),
		LatestRunID: h.Get("X-Picket-Latest-Run"),
		TaskState:   picket.TaskState(h.Get("X-Picket-Task-State")),
	}
	chunk.Offset, _ = strconv.ParseInt(h.Get("X-Picket-Offset"), 10, 64)
	var err error
	if chunk.Next, err = strconv.ParseInt(h.Get("X-Picket-Next"), 10, 64); err != nil {
		chunk.Next = q.Offset + int64(len(data))
	}
	return chunk, nil
}

// reasonBody is the body of a request that only gives a reason.
type reasonBody struct {
	Reason string `json:"reason,omitempty"`
}
