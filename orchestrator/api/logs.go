package api

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// The headers of a piece of log say which bytes of what it is, and whether more
// may come; the body is the bytes themselves.
const (
	logRunHeader    = "X-Picket-Run"
	logStreamHeader = "X-Picket-Stream"
	logOffsetHeader = "X-Picket-Offset"     // of the first byte of the body
	logNextHeader   = "X-Picket-Next"       // the offset to read on from
	logStateHeader  = "X-Picket-Log"        // open, ended or closed
	logLatestHeader = "X-Picket-Latest-Run" // of the task
	taskStateHeader = "X-Picket-Task-State"
	maxLogBytes     = 1 << 20
	defaultLogBytes = 64 << 10
	followWait      = 30 // seconds
)

// logQuery is what a reader of a log asks for.
type logQuery struct {
	task       string
	run        string
	stream     string
	offset     int64
	limit      int64
	follow     string // run, task or empty
	wait       time.Duration
	timestamps bool
}

func taskLogs(r request) error {
	q, err := r.logQuery()
	if err != nil {
		return err
	}
	chunk, err := r.log(q)
	if err != nil {
		return err
	}
	h := r.Response().Header()
	h.Set(logRunHeader, chunk.RunID)
	h.Set(logStreamHeader, chunk.Stream)
	h.Set(logOffsetHeader, strconv.FormatInt(chunk.Offset, 10))
	h.Set(logNextHeader, strconv.FormatInt(chunk.Next, 10))
	h.Set(logStateHeader, string(chunk.State))
	h.Set(logLatestHeader, chunk.LatestRunID)
	h.Set(taskStateHeader, string(chunk.TaskState))
	h.Set(echo.HeaderCacheControl, "no-store")
	data := chunk.Data
	if q.timestamps {
		data = withTimestamps(chunk)
	}
	return r.Blob(http.StatusOK, "text/plain; charset=utf-8", data)
}

// log reads, or waits for something to read.
func (r request) log(q logQuery) (picket.LogChunk, error) {
	if q.follow == "" {
		return r.engine.Log(r.ctx(), q.task, q.run, q.stream, q.offset, int(q.limit))
	}
	ctx, done := r.waitContext()
	defer done()
	chunk, err := r.engine.FollowLog(ctx, q.task, q.run, q.stream, q.offset, int(q.limit), q.follow == "task", q.wait)
	if err := revokedError(ctx); err != nil {
		return picket.LogChunk{}, err
	}
	if err != nil && web.Stopping(r.Context) && ctx.Err() != nil {
		return chunk, web.StoppingError()
	}
	return chunk, err
}

func (r request) logQuery() (l logQuery, err error) {
	q := r.query("run", "stream", "offset", "limit", "follow", "waitSeconds", "timestamps")
	task, err := r.id("task")
	q.fail(err)
	l = logQuery{
		task:   task,
		run:    q.id("run", "run"),
		stream: choice(q, "stream", "stdout", "stdout", "stderr"),
		offset: q.number("offset", 0, 0, 1<<52),
		limit:  q.number("limit", defaultLogBytes, 1, maxLogBytes),
		follow: choice(q, "follow", "", "run", "task"),
		wait:   time.Duration(q.number("waitSeconds", followWait, 0, 50)) * time.Second,
	}
	if q.values.Has("waitSeconds") && l.follow == "" {
		q.fail(web.BadParameter("waitSeconds", "Send follow=run or follow=task too, or leave it out.",
			"waitSeconds needs follow"))
	}
	l.timestamps = q.boolean("timestamps")
	return l, q.err
}

// withTimestamps puts the time before each line that begins in the chunk.
func withTimestamps(c picket.LogChunk) []byte {
	var out []byte
	marks, inside := c.Marks, c.MidLine
	at, known := picket.Instant(0), false
	offset := c.Offset
	for line := range bytes.Lines(c.Data) {
		for len(marks) > 0 && marks[0].Offset <= offset {
			at, known, marks = marks[0].At, true, marks[1:]
		}
		switch {
		case inside:
		case known:
			out = append(append(out, at.String()...), ' ')
		default:
			out = append(out, "- "...)
		}
		out = append(out, line...)
		offset += int64(len(line))
		inside = false
	}
	return out
}
