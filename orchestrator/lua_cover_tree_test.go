package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// coverTree takes the ways of what a run delegates.
func coverTree(t *testing.T, f *fixture) {
	task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "1")})
	part := picket.Subtask{Title: "a part", BudgetEnvelope: worth(10, "0.1")}
	f.callTwice(t, func() error { _, err := f.Delegate(f.ctx, h, "d1", part); return err })
	_, err := f.Delegate(f.ctx, h, "d1", picket.Subtask{Title: "another"})
	refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Delegate(f.ctx, h, "", picket.Subtask{Title: "dear", BudgetEnvelope: worth(0, "2")})
	refused(t, err, picket.CodeBudgetExceeded)
	foreign := h
	foreign.Secret = strings.Repeat("0", 64)
	_, err = f.Delegate(f.ctx, foreign, "", part)
	refused(t, err, picket.CodeLeaseExpired)
	_, err = f.AwaitSubtask(f.ctx, foreign, noTask, 0)
	refused(t, err, picket.CodeLeaseExpired)
	_, err = f.ReviewSubtask(f.ctx, foreign, "", picket.SubtaskReview{TaskID: noTask, Decision: "approve"})
	refused(t, err, picket.CodeLeaseExpired)
	f.fillLanes(t)
	_, err = f.Delegate(f.ctx, h, "", picket.Subtask{Title: "t", Role: "new"})
	refused(t, err, picket.CodeTooManyLanes)
	f.removeFillerLanes(t)
	for range 19 {
		_, err = f.Delegate(f.ctx, h, "", picket.Subtask{Title: fmt.Sprint("t", time.Now().UnixNano())})
		ok(t, err)
	}
	_, err = f.Delegate(f.ctx, h, "", part)
	refused(t, err, picket.CodeDelegation)

	// Awaited, decided.
	child := f.leaseSubtask(t, h.TaskID)
	for _, id := range []string{noTask, child.TaskID} {
		_, err = f.AwaitSubtask(f.ctx, h, id, time.Millisecond)
		if id == noTask {
			refused(t, err, picket.CodeNotFound)
		} else {
			ok(t, err)
		}
	}
	review := func(id, decision string) error {
		_, err := f.ReviewSubtask(f.ctx, h, "", picket.SubtaskReview{TaskID: id, Decision: decision})
		return err
	}
	refused(t, review(task.TaskID, "approve"), picket.CodeAuthorCannotReview)
	refused(t, review(noTask, "approve"), picket.CodeNotFound)
	refused(t, review(child.TaskID, "approve"), picket.CodeStateConflict)
	_, err = f.Complete(f.ctx, child, picket.Completion{})
	ok(t, err)
	f.fillLanes(t)
	lane := f.raw.HGet(f.ctx, "pk:{default}:task:"+child.TaskID, "lane").Val()
	ok(t, f.raw.HSet(f.ctx, "pk:{default}:task:"+child.TaskID, "lane", "gone|").Err())
	refused(t, review(child.TaskID, "reject"), picket.CodeTooManyLanes)
	ok(t, f.raw.HSet(f.ctx, "pk:{default}:task:"+child.TaskID, "lane", lane).Err())
	f.removeFillerLanes(t)
	f.callTwice(t, func() error { return review(child.TaskID, "reject") })
	refused(t, review(child.TaskID, "approve"), picket.CodeTaskClosed)
	child = f.leaseSubtask(t, h.TaskID)
	_, err = f.Complete(f.ctx, child, picket.Completion{})
	ok(t, err)
	ok(t, review(child.TaskID, "approve"))
	// A person decides what is a person's, below a parent and below none.
	h = f.leaseFreshTask(t)
	_, err = f.Delegate(f.ctx, h, "", picket.Subtask{Title: "t", Review: picket.ReviewByHuman})
	ok(t, err)
	child = f.leaseSubtask(t, h.TaskID)
	_, err = f.Complete(f.ctx, child, picket.Completion{})
	ok(t, err)
	refused(t, review(child.TaskID, "approve"), picket.CodeForbidden)
	_, _, err = f.Reject(f.ctx, operator, child.TaskID, picket.Decision{Note: "n"}, &picket.TaskSpec{Title: "fix"})
	ok(t, err)
	// Below a task that is pinned to an agent.
	f.cancelAll(t)
	_, h = f.submitAndLease(t, picket.TaskSpec{Agent: "a1"})
	_, err = f.Delegate(f.ctx, h, "", picket.Subtask{Title: "t", Role: "coder"})
	ok(t, err)
	f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})
	coverSubtaskLoops(t, f)
	f.cancelAll(t)
}

// leaseSubtask leases the next subtask.
func (f *fixture) leaseSubtask(t *testing.T, parent string) picket.LeaseCredential {
	t.Helper()
	h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	if h.TaskID == parent {
		t.Fatal("leased the parent")
	}
	return h
}

// leaseFreshTask is the lease of one more task, for a stop that needs one of its own.
func (f *fixture) leaseFreshTask(t *testing.T) picket.LeaseCredential {
	t.Helper()
	f.cancelAll(t)
	_, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "1")})
	return h
}

// coverSubtaskLoops ends runs that repeat for ever what concerns their subtasks.
func coverSubtaskLoops(t *testing.T, f *fixture) {
	for _, act := range []func(h picket.LeaseCredential, child string) error{
		func(h picket.LeaseCredential, child string) error {
			_, err := f.AwaitSubtask(f.ctx, h, child, 0)
			return err
		},
		func(h picket.LeaseCredential, child string) error {
			ok(t, f.raw.HSet(f.ctx, "pk:{default}:task:"+child, "state", "review").Err())
			_, err := f.ReviewSubtask(f.ctx, h, "", picket.SubtaskReview{TaskID: child, Decision: "approve"})
			ok(t, f.raw.HSet(f.ctx, "pk:{default}:task:"+child, "state", "queued").Err())
			return err
		},
	} {
		h := f.leaseFreshTask(t)
		d, err := f.Delegate(f.ctx, h, "", picket.Subtask{Title: "a part"})
		ok(t, err)
		for range 20 {
			if err = act(h, d.TaskID); err != nil {
				break
			}
		}
		refused(t, err, picket.CodeLeaseReleased)
	}
}

// coverTreeEnds takes the ways of what becomes of subtasks when what is above ends.
func coverTreeEnds(t *testing.T, f *fixture) {
	brood := func(h picket.LeaseCredential, n int) (ids []string) {
		t.Helper()
		for i := range n {
			d, err := f.Delegate(f.ctx, h, "", picket.Subtask{Title: fmt.Sprint("part ", i)})
			ok(t, err)
			ids = append(ids, d.TaskID)
		}
		return ids
	}
	h := f.leaseFreshTask(t)
	_, err := f.Complete(f.ctx, h, picket.Completion{Children: picket.ChildrenCancel}) // there are none
	ok(t, err)
	h = f.leaseFreshTask(t)
	gone := brood(h, 3)
	_, err = f.Cancel(f.ctx, operator, gone[0], "r")
	ok(t, err)
	_, err = f.Complete(f.ctx, h, picket.Completion{})
	refused(t, err, picket.CodeChildrenOpen)
	_, err = f.Delegate(f.ctx, h, "", picket.Subtask{Title: "nobody looks at it", Review: picket.ReviewByNone})
	ok(t, err)
	_, err = f.Complete(f.ctx, h, picket.Completion{Children: picket.ChildrenDetach})
	ok(t, err)
	h = f.leaseFreshTask(t)
	brood(h, 1)
	deep := f.leaseSubtask(t, h.TaskID)
	for range 8 { // down to the deepest level, so that every part of a path is used
		brood(deep, 1)
		deep = f.leaseSubtask(t, h.TaskID)
		if d, err := f.Delegate(f.ctx, deep, "", picket.Subtask{Title: "too deep?"}); err != nil {
			refused(t, err, picket.CodeDelegation)
			break
		} else if _, err := f.Cancel(f.ctx, operator, d.TaskID, "r"); err != nil {
			t.Fatal(err)
		}
	}
	_, err = f.Explain(f.ctx, deep.TaskID)
	ok(t, err)
	part, err := f.Delegate(f.ctx, h, "", picket.Subtask{Title: "t"})
	ok(t, err)
	_, err = f.Cancel(f.ctx, operator, part.TaskID, "r")
	ok(t, err)
	_, err = f.Complete(f.ctx, h, picket.Completion{Children: picket.ChildrenCancel})
	ok(t, err)
	_, err = f.Renew(f.ctx, deep)
	refused(t, err, picket.CodeTaskCancelled)
	_, err = f.Retry(f.ctx, operator, deep.TaskID, "r") // its parent is gone, too
	ok(t, err)

	// More than a step takes: marked at once, written down by and by.
	h = f.leaseFreshTask(t)
	parts := brood(h, 3)
	asks := f.leaseSubtask(t, h.TaskID)
	help, err := f.RequestHelp(f.ctx, asks, picket.HelpRequest{Question: "?"})
	ok(t, err)
	mark := func(with string) {
		t.Helper()
		ok(t, f.raw.HSet(f.ctx, "pk:{default}:tree:"+h.TaskID, with, "1").Err())
	}
	next := f.leaseSubtask(t, h.TaskID)
	mark(h.TaskID)
	_, _, err = f.Watch(f.ctx, next, time.Millisecond)
	ok(t, err)
	_, err = f.Answer(f.ctx, operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`1`)})
	refused(t, err, picket.CodeTaskClosed)
	_, err = f.Acquire(f.ctx, operator, picket.AcquireRequest{AgentID: "a1"})
	ok(t, err)
	_, err = f.Retry(f.ctx, operator, asks.TaskID, "r")
	refused(t, err, picket.CodeTaskClosed)
	_, err = f.Approve(f.ctx, operator, asks.TaskID, picket.Decision{Note: "r"})
	refused(t, err, picket.CodeTaskClosed)
	_, err = f.Retry(f.ctx, operator, parts[2], "r") // below one that is cancelled there is no shelter
	ok(t, err)
	for range 3 {
		ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:chores",
			redis.Z{Score: 0, Member: "cancel:" + h.TaskID + ":" + h.TaskID}).Err())
		_, err = f.RunChores(f.ctx, 2)
		ok(t, err)
	}
	f.cancelAll(t)
	ok(t, f.raw.HSet(f.ctx, "pk:{default}:tree:"+noTask, "open", "0").Err())
	// One that waits for its time when what is above it is cancelled.
	h = f.leaseFreshTask(t)
	brood(h, 1)
	late := f.leaseSubtask(t, h.TaskID)
	ok(t, f.RunEvents(f.ctx, late, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
	_, err = f.Expire(f.ctx, operator, late.TaskID, "r")
	ok(t, err)
	mark(h.TaskID)
	f.jumpStoreTime(t, time.Hour)
	ok(t, f.Tick(f.ctx))
	// A final failure takes along what it delegated.
	h = f.leaseFreshTask(t)
	brood(h, 1)
	_, err = f.Fail(f.ctx, h, "no", true)
	ok(t, err)
	f.cancelAll(t)
	for range 3 { // from the leaves up
		f.jumpStoreTime(t, 100*24*time.Hour)
		for n := 100; n >= 100; {
			n, err = f.ApplyRetention(f.ctx, picket.Retention{}, 100)
			ok(t, err)
		}
	}
}
