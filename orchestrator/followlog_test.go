package orchestrator_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// readLogInBackground starts to follow a log in a goroutine of its own.
func (f *fixture) readLogInBackground(task, run string, offset int64, whole bool) <-chan picket.LogChunk {
	got := make(chan picket.LogChunk, 1)
	go func() {
		c, err := f.FollowLog(f.Ctx, task, run, "stdout", offset, 1<<20, whole, 50*time.Second)
		if err != nil {
			c.Data = []byte(err.Error())
		}
		got <- c
	}()
	return got
}

// A reader that waits is woken by output and by each end that there is. Nobody
// asks again and again: a wait that nothing ends lasts to its end.
func TestFollowLog(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{Retry: &picket.Retry{On: []picket.ExitClass{picket.ExitCrash}}})
		first := f.readLogInBackground(task.TaskID, "", 0, true) // there is no run yet
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		_, err := f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stderr", Data: []byte("not this stream")})
		kit.OK(t, err)
		_, err = f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stdout", Data: []byte("one\n")})
		kit.OK(t, err)
		if c := <-first; string(c.Data) != "one\n" || c.RunID != h.RunID || c.State != picket.LogOpen ||
			c.TaskState != picket.TaskLeased {
			t.Fatalf("%+v %s", c, c.Data)
		}
		short, err := f.FollowLog(f.Ctx, task.TaskID, h.RunID, "stdout", 4, 10, true, 20*time.Millisecond)
		if err != nil || len(short.Data) != 0 || short.Next != 4 || short.State != picket.LogOpen {
			t.Fatalf("a wait that ran out: %+v, %v", short, err)
		}

		// The end of the run, for a reader of this run and for a reader of the task.
		ofRun, ofTask := f.readLogInBackground(task.TaskID, h.RunID, 4, false),
			f.readLogInBackground(task.TaskID, h.RunID, 4, true)
		code := 1
		_, err = f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitCrash, Code: &code})
		kit.OK(t, err)
		_, err = f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stdout", Offset: 4, End: true})
		kit.OK(t, err)
		if c := <-ofRun; len(c.Data) != 0 || c.State != picket.LogClosed {
			t.Fatalf("the end of the run: %+v %s", c, c.Data)
		}
		next := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		_, err = f.RunLog(f.Ctx, next, picket.LogWrite{Stream: "stdout", Data: []byte("two\n")})
		kit.OK(t, err)
		if c := <-ofTask; len(c.Data) != 0 || c.State != picket.LogClosed || c.LatestRunID != next.RunID {
			t.Fatalf("a newer run: %+v %s", c, c.Data)
		}

		// A task that needs no run any more, of an adapter that never says "end".
		last := f.readLogInBackground(task.TaskID, next.RunID, 4, true)
		_, err = f.Complete(f.Ctx, next, picket.Completion{})
		kit.OK(t, err)
		if c := <-last; len(c.Data) != 0 || c.State != picket.LogEnded || c.TaskState != picket.TaskReview {
			t.Fatalf("in review: %+v %s", c, c.Data)
		}
	})
}

// A task that is cancelled before it ran ends a wait, and so does a client that
// goes.
func TestFollowLogEnds(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		began, waiting := time.Now(), f.readLogInBackground(task.TaskID, "", 0, true)
		if f.Virtual {
			synctest.Wait() // it has looked and waits
		}
		_, err := f.Cancel(f.Ctx, kit.Operator, task.TaskID, "")
		kit.OK(t, err)
		if c := <-waiting; c.TaskState != picket.TaskCancelled || len(c.Data) != 0 {
			t.Fatalf("%+v %s", c, c.Data)
		}
		if waited := time.Since(began); waited > 40*time.Second { // 50 s is the wait itself
			t.Fatalf("nobody woke the reader for %s", waited)
		}
		ctx, leave := context.WithTimeout(f.Ctx, 10*time.Millisecond)
		defer leave()
		_, err = f.FollowLog(ctx, f.MustSubmit(t, picket.TaskSpec{}).TaskID, "", "stdout", 0, 10, true, 50*time.Second)
		kit.Refused(t, err, picket.CodeUnavailable)
	})
}

// The times of output are kept with it, are forgotten with it, and are those of
// arrival where nobody told them.
func TestLogMarks(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		piece := picket.LogWrite{
			Stream: "stdout",
			Data:   []byte("one\ntwo\nthree\n"),
			Marks:  []picket.LogMark{{Offset: 0, At: 1000}, {Offset: 4, At: 1500}},
		}
		_, err := f.RunLog(f.Ctx, h, piece)
		kit.OK(t, err)
		piece.Data = append(piece.Data, "four\n"...) // its beginning is known
		piece.Marks = append(piece.Marks, picket.LogMark{Offset: 14, At: 2000})
		at, err := f.RunLog(f.Ctx, h, piece)
		kit.OK(t, err)
		c, err := f.Log(f.Ctx, task.TaskID, "", "stdout", 5, 100)
		kit.OK(t, err)
		if !c.MidLine || c.Marks[1] != (picket.LogMark{Offset: 4, At: 1500}) ||
			c.Marks[len(c.Marks)-1] != (picket.LogMark{Offset: 14, At: 2000}) {
			t.Fatalf("%+v", c)
		}
		if c, err = f.Log(f.Ctx, task.TaskID, "", "stdout", 4, 100); err != nil || c.MidLine {
			t.Fatalf("%+v, %v", c, err)
		}
		chunk := bytes.Repeat([]byte("x"), 64<<10)
		for range 40 {
			at, err = f.RunLog(f.Ctx, h,
				picket.LogWrite{
					Stream: "stdout",
					Offset: at,
					Data:   chunk,
					Marks:  []picket.LogMark{{Offset: at, At: picket.Instant(at)}},
				})
			kit.OK(t, err)
		}
		c, err = f.Log(f.Ctx, task.TaskID, "", "stdout", 0, 1<<20)
		kit.OK(t, err)
		if c.Offset == 0 || len(c.Marks) == 0 || c.Marks[0].Offset != c.Offset || int64(c.Marks[0].At) != c.Offset {
			t.Fatalf("from %d: %v", c.Offset, c.Marks)
		}
		pieces, marks := f.Raw.LLen(f.Ctx, "pk:{default}:log:"+h.RunID+":stdout").Val(),
			f.Raw.LLen(f.Ctx, "pk:{default}:marks:"+h.RunID+":stdout").Val()
		if pieces == 0 || marks != pieces {
			t.Fatalf("%d pieces have %d marks", pieces, marks)
		}
		_, err = f.RunLog(f.Ctx, h, picket.LogWrite{Stream: "stderr", Data: []byte("unmarked")})
		kit.OK(t, err)
		if c, err = f.Log(f.Ctx, task.TaskID, "", "stderr", 0, 100); err != nil || len(c.Marks) != 1 ||
			c.Marks[0].Offset != 0 || c.Marks[0].At == 0 {
			t.Fatalf("%+v, %v", c, err)
		}
	})
}
