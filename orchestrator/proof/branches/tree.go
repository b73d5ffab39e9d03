package branches

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverTree takes the ways of what a run delegates.
func coverTree(t *testing.T, f *fixture) {
	task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
	part := picket.Subtask{Title: "a part", BudgetEnvelope: kit.Worth(10, "0.1")}
	f.CallTwice(t, func() error { _, err := f.Delegate(f.Ctx, h, "d1", part); return err })
	_, err := f.Delegate(f.Ctx, h, "d1", picket.Subtask{Title: "another"})
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "dear", BudgetEnvelope: kit.Worth(0, "2")})
	kit.Refused(t, err, picket.CodeBudgetExceeded)
	foreign := h
	foreign.Secret = strings.Repeat("0", 64)
	_, err = f.Delegate(f.Ctx, foreign, "", part)
	kit.Refused(t, err, picket.CodeLeaseExpired)
	_, err = f.AwaitSubtask(f.Ctx, foreign, kit.NoTask, 0)
	kit.Refused(t, err, picket.CodeLeaseExpired)
	_, err = f.ReviewSubtask(f.Ctx, foreign, "", picket.SubtaskReview{TaskID: kit.NoTask, Decision: "approve"})
	kit.Refused(t, err, picket.CodeLeaseExpired)
	f.fillLanes(t)
	_, err = f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "t", Role: "new"})
	kit.Refused(t, err, picket.CodeTooManyLanes)
	f.removeFillerLanes(t)
	for range 19 {
		_, err = f.Delegate(f.Ctx, h, "", picket.Subtask{Title: fmt.Sprint("t", time.Now().UnixNano())})
		kit.OK(t, err)
	}
	_, err = f.Delegate(f.Ctx, h, "", part)
	kit.Refused(t, err, picket.CodeDelegation)

	// Awaited, decided.
	child := f.LeaseSubtask(t, h.TaskID)
	for _, id := range []string{kit.NoTask, child.TaskID} {
		_, err = f.AwaitSubtask(f.Ctx, h, id, time.Millisecond)
		if id == kit.NoTask {
			kit.Refused(t, err, picket.CodeNotFound)
		} else {
			kit.OK(t, err)
		}
	}
	review := func(id, decision string) error {
		_, err := f.ReviewSubtask(f.Ctx, h, "", picket.SubtaskReview{TaskID: id, Decision: decision})
		return err
	}
	kit.Refused(t, review(task.TaskID, "approve"), picket.CodeAuthorCannotReview)
	kit.Refused(t, review(kit.NoTask, "approve"), picket.CodeNotFound)
	kit.Refused(t, review(child.TaskID, "approve"), picket.CodeStateConflict)
	_, err = f.Complete(f.Ctx, child, picket.Completion{})
	kit.OK(t, err)
	f.fillLanes(t)
	lane := f.Raw.HGet(f.Ctx, "pk:{default}:task:"+child.TaskID, "lane").Val()
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:task:"+child.TaskID, "lane", "gone|").Err())
	kit.Refused(t, review(child.TaskID, "reject"), picket.CodeTooManyLanes)
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:task:"+child.TaskID, "lane", lane).Err())
	f.removeFillerLanes(t)
	f.CallTwice(t, func() error { return review(child.TaskID, "reject") })
	kit.Refused(t, review(child.TaskID, "approve"), picket.CodeTaskClosed)
	child = f.LeaseSubtask(t, h.TaskID)
	_, err = f.Complete(f.Ctx, child, picket.Completion{})
	kit.OK(t, err)
	kit.OK(t, review(child.TaskID, "approve"))
	// A person decides what is a person's, below a parent and below none.
	h = f.leaseFreshTask(t)
	_, err = f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "t", Review: picket.ReviewByHuman})
	kit.OK(t, err)
	child = f.LeaseSubtask(t, h.TaskID)
	_, err = f.Complete(f.Ctx, child, picket.Completion{})
	kit.OK(t, err)
	kit.Refused(t, review(child.TaskID, "approve"), picket.CodeForbidden)
	_, _, err = f.Reject(f.Ctx, kit.Operator, child.TaskID, picket.Decision{Note: "n"}, &picket.TaskSpec{Title: "fix"})
	kit.OK(t, err)
	// Below a task that is pinned to an agent.
	f.CancelAll(t)
	_, h = f.SubmitAndLease(t, picket.TaskSpec{Agent: "a1"})
	_, err = f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "t", Role: "coder"})
	kit.OK(t, err)
	f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
	coverSubtaskLoops(t, f)
	f.CancelAll(t)
}

// leaseFreshTask is the lease of one more task, for a stop that needs one of its own.
func (f *fixture) leaseFreshTask(t *testing.T) picket.LeaseCredential {
	t.Helper()
	f.CancelAll(t)
	_, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
	return h
}

// coverSubtaskLoops ends runs that repeat for ever what concerns their subtasks.
func coverSubtaskLoops(t *testing.T, f *fixture) {
	for _, act := range []func(h picket.LeaseCredential, child string) error{
		func(h picket.LeaseCredential, child string) error {
			_, err := f.AwaitSubtask(f.Ctx, h, child, 0)
			return err
		},
		func(h picket.LeaseCredential, child string) error {
			kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:task:"+child, "state", "review").Err())
			_, err := f.ReviewSubtask(f.Ctx, h, "", picket.SubtaskReview{TaskID: child, Decision: "approve"})
			kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:task:"+child, "state", "queued").Err())
			return err
		},
	} {
		h := f.leaseFreshTask(t)
		d, err := f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "a part"})
		kit.OK(t, err)
		for range 20 {
			if err = act(h, d.TaskID); err != nil {
				break
			}
		}
		kit.Refused(t, err, picket.CodeLeaseReleased)
	}
}

// coverTreeEnds covers the ways in which subtasks end with their parent.
func coverTreeEnds(t *testing.T, f *fixture) {
	addChildren := func(h picket.LeaseCredential, n int) (ids []string) {
		t.Helper()
		for i := range n {
			d, err := f.Delegate(f.Ctx, h, "", picket.Subtask{Title: fmt.Sprint("part ", i)})
			kit.OK(t, err)
			ids = append(ids, d.TaskID)
		}
		return ids
	}
	h := f.leaseFreshTask(t)
	_, err := f.Complete(f.Ctx, h, picket.Completion{Children: picket.ChildrenCancel}) // there are none
	kit.OK(t, err)
	h = f.leaseFreshTask(t)
	gone := addChildren(h, 3)
	_, err = f.Cancel(f.Ctx, kit.Operator, gone[0], "r")
	kit.OK(t, err)
	_, err = f.Complete(f.Ctx, h, picket.Completion{})
	kit.Refused(t, err, picket.CodeChildrenOpen)
	_, err = f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "nobody looks at it", Review: picket.ReviewByNone})
	kit.OK(t, err)
	_, err = f.Complete(f.Ctx, h, picket.Completion{Children: picket.ChildrenDetach})
	kit.OK(t, err)
	h = f.leaseFreshTask(t)
	addChildren(h, 1)
	deep := f.LeaseSubtask(t, h.TaskID)
	for range 8 { // down to the deepest level, so that every part of a path is used
		addChildren(deep, 1)
		deep = f.LeaseSubtask(t, h.TaskID)
		if d, err := f.Delegate(f.Ctx, deep, "", picket.Subtask{Title: "too deep?"}); err != nil {
			kit.Refused(t, err, picket.CodeDelegation)
			break
		} else if _, err := f.Cancel(f.Ctx, kit.Operator, d.TaskID, "r"); err != nil {
			t.Fatal(err)
		}
	}
	_, err = f.Explain(f.Ctx, deep.TaskID)
	kit.OK(t, err)
	part, err := f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "t"})
	kit.OK(t, err)
	_, err = f.Cancel(f.Ctx, kit.Operator, part.TaskID, "r")
	kit.OK(t, err)
	_, err = f.Complete(f.Ctx, h, picket.Completion{Children: picket.ChildrenCancel})
	kit.OK(t, err)
	_, err = f.Renew(f.Ctx, deep)
	kit.Refused(t, err, picket.CodeTaskCancelled)
	_, err = f.Retry(f.Ctx, kit.Operator, deep.TaskID, "r") // its parent is gone, too
	kit.OK(t, err)

	// More than a step takes: marked at once, written down by and by.
	h = f.leaseFreshTask(t)
	parts := addChildren(h, 3)
	asks := f.LeaseSubtask(t, h.TaskID)
	help, err := f.RequestHelp(f.Ctx, asks, picket.HelpRequest{Question: "?"})
	kit.OK(t, err)
	mark := func(with string) {
		t.Helper()
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:tree:"+h.TaskID, with, "1").Err())
	}
	next := f.LeaseSubtask(t, h.TaskID)
	mark(h.TaskID)
	_, _, err = f.Watch(f.Ctx, next, time.Millisecond)
	kit.OK(t, err)
	_, err = f.Answer(f.Ctx, kit.Operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`1`)})
	kit.Refused(t, err, picket.CodeTaskClosed)
	_, err = f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1"})
	kit.OK(t, err)
	_, err = f.Retry(f.Ctx, kit.Operator, asks.TaskID, "r")
	kit.Refused(t, err, picket.CodeTaskClosed)
	_, err = f.Approve(f.Ctx, kit.Operator, asks.TaskID, picket.Decision{Note: "r"})
	kit.Refused(t, err, picket.CodeTaskClosed)
	_, err = f.Retry(f.Ctx, kit.Operator, parts[2], "r") // below one that is cancelled there is no shelter
	kit.OK(t, err)
	for range 3 {
		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:chores",
			redis.Z{Score: 0, Member: "cancel:" + h.TaskID + ":" + h.TaskID}).Err())
		_, err = f.RunChores(f.Ctx, 2)
		kit.OK(t, err)
	}
	f.CancelAll(t)
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:tree:"+kit.NoTask, "open", "0").Err())
	// One that waits for its time when what is above it is cancelled.
	h = f.leaseFreshTask(t)
	addChildren(h, 1)
	late := f.LeaseSubtask(t, h.TaskID)
	kit.OK(t, f.RunEvents(f.Ctx, late, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
	_, err = f.Expire(f.Ctx, kit.Operator, late.TaskID, "r")
	kit.OK(t, err)
	mark(h.TaskID)
	f.JumpStoreTime(t, time.Hour)
	kit.OK(t, f.Tick(f.Ctx))
	// The same by the clock on the wall.
	h = f.leaseFreshTask(t)
	addChildren(h, 1)
	late = f.LeaseSubtask(t, h.TaskID)
	kit.OK(t, f.RunEvents(f.Ctx, late, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
	_, err = f.Expire(f.Ctx, kit.Operator, late.TaskID, "r")
	kit.OK(t, err)
	mark(h.TaskID)
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:starts", kit.ZMember(1, late.TaskID)).Err())
	kit.OK(t, f.Tick(f.Ctx))
	// Several of one lane, from the last one of the lane on.
	h = f.leaseFreshTask(t)
	for _, priority := range []int{1, 5, 9} {
		_, err = f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "part", Role: "lane-of-one", Priority: &priority})
		kit.OK(t, err)
	}
	_, err = f.Cancel(f.Ctx, kit.Operator, h.TaskID, "enough")
	kit.OK(t, err)
	// A final failure takes along what it delegated.
	h = f.leaseFreshTask(t)
	addChildren(h, 1)
	_, err = f.Fail(f.Ctx, h, "no", true)
	kit.OK(t, err)
	f.CancelAll(t)
	for range 3 { // from the leaves up
		f.JumpStoreTime(t, 100*24*time.Hour)
		for n := 100; n >= 100; {
			n, err = f.ApplyRetention(f.Ctx, picket.Retention{}, 100)
			kit.OK(t, err)
		}
	}
}
