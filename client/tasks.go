package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
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
	v := parameters("state", joined(q.States), "role", q.Role, "parent", q.Parent, "assignee", q.Assignee,
		"label", q.Labels,
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

// Bundle describes the bundle of the branch of a task that the server keeps.
func (t Tasks) Bundle(ctx context.Context, id string, opts ...Option) (picket.Bundle, error) {
	return get[picket.Bundle](ctx, t.c, route("tasks", id, "bundle"), opts)
}

// BundlePiece reads one piece of a bundle. It is not found if another bundle has taken the place
// of the one with this SHA-256.
func (t Tasks) BundlePiece(ctx context.Context, id, sha256 string, number int, opts ...Option) ([]byte, error) {
	var data []byte
	opts = append([]Option{WithBody(&data)}, opts...)
	path := route("tasks", id, "bundle", sha256, strconv.Itoa(number))
	return data, t.c.Call(ctx, http.MethodGet, path, nil, nil, opts...)
}

// ErrBundleDigest reports that the bytes of a bundle are not those that were handed in.
var ErrBundleDigest = errors.New("the bundle does not have the SHA-256 that the server names")

// DownloadBundle writes the bundle of a task to w and returns its description. It refuses a bundle
// of more than limit bytes before it reads it, with [picket.CodeTooLarge]. The error is
// ErrBundleDigest if the bytes are wrong; they are in w then.
func (t Tasks) DownloadBundle(ctx context.Context, id string, w io.Writer, limit int64,
	opts ...Option) (picket.Bundle, error) {
	b, err := t.Bundle(ctx, id, opts...)
	if err != nil {
		return b, err
	}
	if b.Size > limit || b.Pieces != picket.BundlePieces(b.Size) {
		return b, picket.Refuse(picket.CodeTooLarge, "Read it where more is allowed.",
			"the bundle has %d bytes in %d pieces, at most %d bytes are read", b.Size, b.Pieces, limit)
	}
	sum := sha256.New()
	for n := range b.Pieces {
		piece, err := t.BundlePiece(ctx, id, b.SHA256, n, opts...)
		if err != nil {
			return b, err
		}
		if len(piece) > picket.BundlePieceSize {
			return b, ErrBundleDigest
		}
		sum.Write(piece)
		if _, err := w.Write(piece); err != nil {
			return b, err
		}
	}
	if hex.EncodeToString(sum.Sum(nil)) != b.SHA256 {
		return b, ErrBundleDigest
	}
	return b, nil
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

// Tell sends a message to the agent that works on a task. One with the MessageID of an earlier message is
// sent once.
func (t Tasks) Tell(ctx context.Context, id string, m picket.MessageRequest,
	opts ...Option) (picket.MessageSent, error) {
	return post[picket.MessageSent](ctx, t.c, route("tasks", id, "messages"), m, opts)
}

// Messages reads a page of the messages from and to a task, oldest first.
func (t Tasks) Messages(ctx context.Context, id string, q picket.MessageQuery,
	opts ...Option) (picket.MessagePage, error) {
	return query[picket.MessagePage](ctx, t.c, route("tasks", id, "messages"),
		parameters("before", q.Before, "limit", q.Limit), opts)
}
