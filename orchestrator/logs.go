package orchestrator

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// Log reads up to limit bytes of a run's output from offset on; an empty runID
// means the latest run. A chunk may start later than asked when the older part
// is not kept any more.
func (e *Engine) Log(ctx context.Context, taskID, runID, stream string, offset int64,
	limit int) (picket.LogChunk, error) {
	refused := cmp.Or(picket.CheckID("taskId", "task", taskID), picket.CheckOptionalID("run", "run", runID),
		checkStream(stream))
	r := e.runChecked(ctx, refused, "log", taskID, runID, stream, max(offset, 0), min(max(limit, 1), 1<<20))
	var v struct {
		Run       string   `reply:"run"`
		Offset    int64    `reply:"offset"` // of the first byte
		Data      string   `reply:"data"`
		Before    string   `reply:"before"` // the byte before the first one
		Latest    string   `reply:"latest"` // run
		TaskState string   `reply:"task_state"`
		RunState  string   `reply:"run_state"`
		Closed    string   `reply:"closed"` // "1" when the stream is
		Marks     []string `reply:"marks"`  // of each piece
	}
	r.Decode(&v)
	c := picket.LogChunk{
		RunID:       v.Run,
		Stream:      stream,
		Offset:      v.Offset,
		Data:        []byte(v.Data),
		Next:        v.Offset + int64(len(v.Data)),
		MidLine:     v.Before != "" && v.Before != "\n",
		LatestRunID: v.Latest,
		TaskState:   picket.TaskState(v.TaskState),
		State:       logState(v.RunState, v.Closed),
	}
	for _, packed := range v.Marks {
		c.Marks = append(c.Marks, r.marks(packed)...)
	}
	return c, r.Err
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

// lastOutputWait is how long the last output of an ended run may be on its way when
// nobody says that it was the last.
const lastOutputWait = 2 * time.Second

// FollowLog is Log, but where there is nothing yet it waits: for output, or
// until no more can come, at most wait. With whole it waits for the task rather
// than the run: no more can come when a newer run has begun or the task needs
// no run any more.
func (e *Engine) FollowLog(ctx context.Context, taskID, runID, stream string, offset int64, limit int, whole bool,
	wait time.Duration) (picket.LogChunk, error) {
	var c picket.LogChunk
	var lastOutputDue time.Time
	topics := e.records.Subscribe(logTopic(taskID), taskTopic(taskID))
	_, err := e.records.WaitUntil(ctx, topics, wait, func() (done bool, again time.Duration, err error) {
		c, err = e.Log(ctx, taskID, runID, stream, offset, limit)
		if err != nil || len(c.Data) > 0 {
			return true, 0, err
		}
		settled := c.TaskState.Terminal() || c.TaskState == picket.TaskReview
		over := !whole || c.RunID != c.LatestRunID || settled
		if over && c.State == picket.LogClosed || settled && c.RunID == "" {
			return true, 0, nil
		}
		if !over || c.State != picket.LogEnded {
			return false, 0, nil
		}
		if lastOutputDue.IsZero() {
			lastOutputDue = time.Now().Add(lastOutputWait)
		}
		left := time.Until(lastOutputDue)
		return left <= 0, left, nil
	})
	return c, err
}

// Marks are kept beside each piece of output as "offset:ms,offset:ms,…", each
// but the first as the difference to the one before.

func packMarks(marks []picket.LogMark) string {
	var b strings.Builder
	var before picket.LogMark
	for i, m := range marks {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(m.Offset-before.Offset, 10))
		b.WriteByte(':')
		b.WriteString(strconv.FormatInt(int64(m.At-before.At), 10))
		before = m
	}
	return b.String()
}

func (r *reply) marks(packed string) []picket.LogMark {
	var marks []picket.LogMark
	var last picket.LogMark
	for pair := range strings.SplitSeq(packed, ",") {
		offset, at, _ := strings.Cut(pair, ":")
		o, err1 := strconv.ParseInt(offset, 10, 64)
		ms, err2 := strconv.ParseInt(at, 10, 64)
		if err1 != nil || err2 != nil {
			r.Fail("marks of output", packed)
			return nil
		}
		last = picket.LogMark{Offset: last.Offset + o, At: last.At + picket.Instant(ms)}
		marks = append(marks, last)
	}
	return marks
}

// RunLog appends output to a stream of the run and returns the offset of the
// next byte. Bytes known already are ignored; a gap is CodeOffset with the
// fact "expected".
func (e *Engine) RunLog(ctx context.Context, held picket.LeaseCredential, p picket.LogWrite) (int64, error) {
	if err := checkStream(p.Stream); err != nil {
		return 0, err
	}
	if p.Offset < 0 {
		return 0, picket.Invalid("offset", "Send the number of bytes sent before.", "offset is negative")
	}
	if len(p.Marks) > picket.MaxLogMarks {
		return 0, picket.Invalid("marks", "Send smaller pieces.", "%d marks are more than %d", len(p.Marks),
			picket.MaxLogMarks)
	}
	r := e.runHeld(ctx, held, "run_log", p.Stream, p.Offset, p.Data, packMarks(p.Marks), boolArg(p.End),
		e.quotas().LogBytes)
	return r.Int(r.Value), r.Err
}

func checkStream(stream string) error {
	if stream == "stdout" || stream == "stderr" {
		return nil
	}
	return picket.Invalid("stream", "Send stdout or stderr.", "stream is %q, allowed are stdout and stderr", stream)
}
