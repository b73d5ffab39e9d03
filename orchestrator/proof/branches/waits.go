package branches

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverWaits goes through what waits for something else than a worker.
func coverWaits(t *testing.T, f *fixture) {
	// To a person: not listed, and used up.
	_, h := f.SubmitAndLease(t, picket.TaskSpec{})
	_, err := f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitCrash})
	kit.OK(t, err)
	_, h = f.SubmitAndLease(t, picket.TaskSpec{Retry: kit.RetryOn(1, 0, picket.ExitCrash)})
	_, err = f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitCrash})
	kit.OK(t, err)
	f.CancelAll(t)
	// More refused writes than are told one by one.
	_, h = f.SubmitAndLease(t, picket.TaskSpec{})
	for range 25 {
		f.RecordRefusedWrite(f.Ctx, h, "report_progress", picket.Refuse(picket.CodeStaleFence, "", "x"))
	}
	f.JumpStoreTime(t, 61*time.Second)
	kit.OK(t, f.Tick(f.Ctx))
	f.RecordRefusedWrite(f.Ctx, h, "report_progress", picket.Refuse(picket.CodeStaleFence, "", "x"))
	f.CancelAll(t)
	// A repeat of a repeat waits for the process of the first.
	task, h := f.SubmitAndLease(t, picket.TaskSpec{})
	kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
	for range 2 {
		_, err := f.Cancel(f.Ctx, kit.Operator, task.TaskID, "r")
		kit.OK(t, err)
		task, err = f.Retry(f.Ctx, kit.Operator, task.TaskID, "r")
		kit.OK(t, err)
	}
	f.CancelAll(t)
	// The time on the wall has come: for one that waits, one that waits no more.
	late := f.MustSubmit(t, picket.TaskSpec{NotBefore: picket.InstantOf(time.Now().Add(time.Hour))})
	here := f.MustSubmit(t, picket.TaskSpec{})
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:starts", kit.ZMember(1, late.TaskID), kit.ZMember(1, here.TaskID)).Err())
	kit.OK(t, f.Tick(f.Ctx))
	f.CancelAll(t)
	// Two tasks of a lane wait: the first that goes leaves the other counted.
	for range 2 {
		f.MustSubmit(t, picket.TaskSpec{Role: "later", NotBefore: picket.InstantOf(time.Now().Add(time.Hour))})
	}
	f.CancelAll(t)
	_, err = f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1", PinnedOnly: true})
	kit.OK(t, err)
	f.MustSubmit(t, picket.TaskSpec{})
	_, err = f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1", PinnedOnly: true})
	kit.OK(t, err)
	f.CancelAll(t)
	// Many long answers: the oldest are left out.
	for range 6 {
		f.MustSubmit(t, picket.TaskSpec{Labels: map[string]string{"long": "yes"}})
	}
	f.CancelAll(t)
	asked := f.MustSubmit(t, picket.TaskSpec{}).TaskID
	for range 6 {
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		help, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "?"})
		kit.OK(t, err)
		_, err = f.Answer(f.Ctx, kit.Operator, help.HandoffID,
			picket.AnswerRequest{Answer: picket.RawJSON(`"` + strings.Repeat("x", 250_000) + `"`)})
		kit.OK(t, err)
	}
	if l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}); len(l.Answers) != 4 {
		t.Fatalf("%d answers were handed over", len(l.Answers))
	}
	f.CancelAndRetry(t, asked)
	f.CancelAll(t)
	// Lists that do not fit into one reply.
	large := strings.Repeat("x", 250_000)
	for range 20 {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		_, err := f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "t", Fixes: task.TaskID})
		kit.Refused(t, err, picket.CodeStateConflict)
		_, err = f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`"` + large + `"`)})
		kit.OK(t, err)
		_, h = f.SubmitAndLease(t, picket.TaskSpec{})
		_, err = f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: large})
		kit.OK(t, err)
	}
	_, err = f.Reviews(f.Ctx, picket.ReviewQuery{})
	kit.OK(t, err)
	_, err = f.Handoffs(f.Ctx, picket.HandoffQuery{})
	kit.OK(t, err)
	task, h = f.SubmitAndLease(t, picket.TaskSpec{})
	for i := range 20 {
		_, err = f.Report(f.Ctx, h, "", picket.Progress{Summary: large, NextStep: fmt.Sprint(i)})
		kit.OK(t, err)
	}
	_, err = f.Reports(f.Ctx, task.TaskID)
	kit.OK(t, err)
	f.CancelAll(t)
	// A filter that is smaller than the states it is combined with.
	f.MustSubmit(t, picket.TaskSpec{Labels: map[string]string{"rare": "yes"}})
	for _, state := range []picket.TaskState{picket.TaskQueued, picket.TaskLeased} {
		for range 9 {
			f.MustSubmit(t, picket.TaskSpec{})
		}
		_, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1", Max: kit.Ptr(4)})
		kit.OK(t, err)
		_, err = f.Tasks(f.Ctx, picket.TaskQuery{
			States: []picket.TaskState{state},
			Labels: map[string]string{"rare": "yes"},
		})
		kit.OK(t, err)
	}
	f.CancelAll(t)
	pipe := f.Raw.Pipeline()
	last, err := f.LastSeq(f.Ctx)
	kit.OK(t, err)
	for i := 1; i <= 10_500; i++ { // more than one bite of old events
		pipe.XAdd(f.Ctx, kit.OldEvent(int(last)+i))
		if i%500 == 0 {
			_, err := pipe.Exec(f.Ctx)
			kit.OK(t, err)
		}
	}
	kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "seq", last+10_500).Err())
	for range 2 {
		_, err = f.ApplyRetention(f.Ctx, picket.Retention{Events: time.Hour}, 100)
		kit.OK(t, err)
	}
}

// coverPartialRows plants rows that no script writes, as a partial restore may leave
// them: they go, and hold nothing up.
func coverPartialRows(t *testing.T, f *fixture) {
	for _, key := range []string{"delayed", "starts", "terminal", "deadlines"} {
		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:"+key, kit.ZMember(1, kit.NoTask)).Err())
	}
	kit.OK(t, f.Tick(f.Ctx))
	_, err := f.ExpireDue(f.Ctx, 100)
	kit.OK(t, err)
	_, err = f.ApplyRetention(f.Ctx, picket.Retention{}, 100)
	kit.OK(t, err)
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:deadlines", kit.ZMember(1e15, kit.NoTask)).Err())
	_, err = f.Pause(f.Ctx, kit.Operator, true, "r")
	kit.OK(t, err)
	_, err = f.Resume(f.Ctx, kit.Operator, "r")
	kit.OK(t, err)
	// Lanes: one whose head is not a task, one that is empty, one with a task behind.
	behind := f.MustSubmit(t, picket.TaskSpec{Role: "behind"})
	for lane, members := range map[string][]string{"gone|": {kit.NoTask}, "empty|": nil, "behind|": {kit.NoTask}} {
		for _, m := range members {
			kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:lane:"+lane, kit.ZMember(1, m)).Err())
		}
		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:lanes", kit.ZMember(1, lane)).Err())
	}
	for _, role := range []string{"gone", "empty"} {
		got, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{Role: role})
		kit.OK(t, err)
		if len(got) != 0 {
			t.Fatalf("granted %v", got)
		}
	}
	if got := f.AcquireOne(t, picket.AcquireRequest{Role: "behind"}); got.TaskID != behind.TaskID {
		t.Fatalf("granted %s", got.TaskID)
	}
	if n := kit.CountEventsOf(t, f.Fixture, picket.EventInvariantRepaired); n < 5 {
		t.Fatalf("%d repairs were told", n)
	}
	f.CancelAll(t)
	for _, key := range []string{"delayed", "starts", "deadlines"} {
		if n := f.Raw.ZCard(f.Ctx, "pk:{default}:"+key).Val(); n != 0 {
			t.Fatalf("%d rows are left in %s", n, key)
		}
	}
}
