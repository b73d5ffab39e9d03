package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// coverWaits goes through what waits for something else than a worker.
func coverWaits(t *testing.T, f *fixture) {
	// To a person: not listed, and used up.
	_, h := f.submitAndLease(t, picket.TaskSpec{})
	_, err := f.Release(f.ctx, h, picket.Exit{Class: picket.ExitCrash})
	ok(t, err)
	_, h = f.submitAndLease(t, picket.TaskSpec{Retry: retryOn(1, 0, picket.ExitCrash)})
	_, err = f.Release(f.ctx, h, picket.Exit{Class: picket.ExitCrash})
	ok(t, err)
	f.cancelAll(t)
	// More refused writes than are told one by one.
	_, h = f.submitAndLease(t, picket.TaskSpec{})
	for range 25 {
		f.RecordRefusedWrite(f.ctx, h, "report_progress", picket.Refuse(picket.CodeStaleFence, "", "x"))
	}
	f.jumpStoreTime(t, 61*time.Second)
	ok(t, f.Tick(f.ctx))
	f.RecordRefusedWrite(f.ctx, h, "report_progress", picket.Refuse(picket.CodeStaleFence, "", "x"))
	f.cancelAll(t)
	// A repeat of a repeat waits for the process of the first.
	task, h := f.submitAndLease(t, picket.TaskSpec{})
	ok(t, f.RunEvents(f.ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
	for range 2 {
		_, err := f.Cancel(f.ctx, operator, task.TaskID, "r")
		ok(t, err)
		task, err = f.Retry(f.ctx, operator, task.TaskID, "r")
		ok(t, err)
	}
	f.cancelAll(t)
	// The time on the wall has come: for one that waits, one that waits no more.
	late := f.mustSubmit(t, picket.TaskSpec{NotBefore: picket.InstantOf(time.Now().Add(time.Hour))})
	here := f.mustSubmit(t, picket.TaskSpec{})
	ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:starts", zMember(1, late.TaskID), zMember(1, here.TaskID)).Err())
	ok(t, f.Tick(f.ctx))
	f.cancelAll(t)
	// Two tasks of a lane wait: the first that goes leaves the other counted.
	for range 2 {
		f.mustSubmit(t, picket.TaskSpec{Role: "later", NotBefore: picket.InstantOf(time.Now().Add(time.Hour))})
	}
	f.cancelAll(t)
	_, err = f.Acquire(f.ctx, operator, picket.AcquireRequest{AgentID: "a1", PinnedOnly: true})
	ok(t, err)
	f.mustSubmit(t, picket.TaskSpec{})
	_, err = f.Acquire(f.ctx, operator, picket.AcquireRequest{AgentID: "a1", PinnedOnly: true})
	ok(t, err)
	f.cancelAll(t)
	// Many long answers: the oldest are left out.
	for range 6 {
		f.mustSubmit(t, picket.TaskSpec{Labels: map[string]string{"long": "yes"}})
	}
	f.cancelAll(t)
	asked := f.mustSubmit(t, picket.TaskSpec{}).TaskID
	for range 6 {
		h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		help, err := f.RequestHelp(f.ctx, h, picket.HelpRequest{Question: "?"})
		ok(t, err)
		_, err = f.Answer(f.ctx, operator, help.HandoffID,
			picket.AnswerRequest{Answer: picket.RawJSON(`"` + strings.Repeat("x", 250_000) + `"`)})
		ok(t, err)
	}
	if l := f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}); len(l.Answers) != 4 {
		t.Fatalf("%d answers were handed over", len(l.Answers))
	}
	f.cancelAndRetry(t, asked)
	f.cancelAll(t)
	// Lists that do not fit into one reply.
	large := strings.Repeat("x", 250_000)
	for range 20 {
		task, h := f.submitAndLease(t, picket.TaskSpec{})
		_, err := f.Submit(f.ctx, operator, picket.TaskSpec{Title: "t", Fixes: task.TaskID})
		refused(t, err, picket.CodeStateConflict)
		_, err = f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`"` + large + `"`)})
		ok(t, err)
		_, h = f.submitAndLease(t, picket.TaskSpec{})
		_, err = f.RequestHelp(f.ctx, h, picket.HelpRequest{Question: large})
		ok(t, err)
	}
	_, err = f.Reviews(f.ctx, picket.ReviewQuery{})
	ok(t, err)
	_, err = f.Handoffs(f.ctx, picket.HandoffQuery{})
	ok(t, err)
	task, h = f.submitAndLease(t, picket.TaskSpec{})
	for i := range 20 {
		_, err = f.Report(f.ctx, h, "", picket.Progress{Summary: large, NextStep: fmt.Sprint(i)})
		ok(t, err)
	}
	_, err = f.Reports(f.ctx, task.TaskID)
	ok(t, err)
	f.cancelAll(t)
	// A filter that is smaller than the states it is combined with.
	f.mustSubmit(t, picket.TaskSpec{Labels: map[string]string{"rare": "yes"}})
	for _, state := range []picket.TaskState{picket.TaskQueued, picket.TaskLeased} {
		for range 9 {
			f.mustSubmit(t, picket.TaskSpec{})
		}
		_, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{AgentID: "a1", Max: ptr(4)})
		ok(t, err)
		_, err = f.Tasks(f.ctx, picket.TaskQuery{
			States: []picket.TaskState{state},
			Labels: map[string]string{"rare": "yes"},
		})
		ok(t, err)
	}
	f.cancelAll(t)
	pipe := f.raw.Pipeline()
	last, err := f.LastSeq(f.ctx)
	ok(t, err)
	for i := 1; i <= 10_500; i++ { // more than one bite of old events
		pipe.XAdd(f.ctx, oldEvent(int(last)+i))
		if i%500 == 0 {
			_, err := pipe.Exec(f.ctx)
			ok(t, err)
		}
	}
	ok(t, f.raw.HSet(f.ctx, meta, "seq", last+10_500).Err())
	for range 2 {
		_, err = f.ApplyRetention(f.ctx, picket.Retention{Events: time.Hour}, 100)
		ok(t, err)
	}
}

// coverPartialRows plants rows that no script writes, as a partial restore may leave
// them: they go, and hold nothing up.
func coverPartialRows(t *testing.T, f *fixture) {
	for _, key := range []string{"delayed", "starts", "terminal", "deadlines"} {
		ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:"+key, zMember(1, noTask)).Err())
	}
	ok(t, f.Tick(f.ctx))
	_, err := f.ExpireDue(f.ctx, 100)
	ok(t, err)
	_, err = f.ApplyRetention(f.ctx, picket.Retention{}, 100)
	ok(t, err)
	ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:deadlines", zMember(1e15, noTask)).Err())
	_, err = f.Pause(f.ctx, operator, true, "r")
	ok(t, err)
	_, err = f.Resume(f.ctx, operator, "r")
	ok(t, err)
	// Lanes: one whose head is not a task, one that is empty, one with a task behind.
	behind := f.mustSubmit(t, picket.TaskSpec{Role: "behind"})
	for lane, members := range map[string][]string{"gone|": {noTask}, "empty|": nil, "behind|": {noTask}} {
		for _, m := range members {
			ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:lane:"+lane, zMember(1, m)).Err())
		}
		ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:lanes", zMember(1, lane)).Err())
	}
	for _, role := range []string{"gone", "empty"} {
		got, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{Role: role})
		ok(t, err)
		if len(got) != 0 {
			t.Fatalf("granted %v", got)
		}
	}
	if got := f.acquireOne(t, picket.AcquireRequest{Role: "behind"}); got.TaskID != behind.TaskID {
		t.Fatalf("granted %s", got.TaskID)
	}
	if n := countEventsOf(t, f, picket.EventInvariantRepaired); n < 5 {
		t.Fatalf("%d repairs were told", n)
	}
	f.cancelAll(t)
	for _, key := range []string{"delayed", "starts", "deadlines"} {
		if n := f.raw.ZCard(f.ctx, "pk:{default}:"+key).Val(); n != 0 {
			t.Fatalf("%d rows are left in %s", n, key)
		}
	}
}
