package orchestrator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

func coverHandoffs(t *testing.T, f *fixture) {
	ask := func(agent string, req picket.HelpRequest) string {
		t.Helper()
		f.mustSubmit(t, picket.TaskSpec{Priority: ptr(9)})
		h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: agent}))
		got, err := f.RequestHelp(f.ctx, h, req)
		ok(t, err)
		again, err := f.RequestHelp(f.ctx, h, req)
		ok(t, err)
		req.Question += "!"
		_, err = f.RequestHelp(f.ctx, h, req)
		refused(t, err, picket.CodeLeaseReleased)
		return again.HandoffID + got.HandoffID[len(again.HandoffID):]
	}
	yes := picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)}
	hid := ask("a1", picket.HelpRequest{Question: "?", Options: []string{"red", "blue"}})
	f.callTwice(t, func() error { _, err := f.Claim(f.ctx, idempotent("5"), hid, false); return err })
	gone := idempotent("gone") // claimed, and deleted since
	ok(t, f.raw.Set(f.ctx, "pk:{default}:req:"+gone.Idempotency.Key, gone.Idempotency.Body+" "+noHelp, 0).Err())
	_, err := f.Claim(f.ctx, gone, noHelp, false)
	refused(t, err, picket.CodeNotFound)
	_, err = f.Claim(f.ctx, operator, hid, false) // the same person
	ok(t, err)
	_, err = f.Claim(f.ctx, picket.Caller{Actor: "other"}, hid, false)
	refused(t, err, picket.CodeStateConflict)
	clash := idempotent("5")
	clash.Idempotency.Body = strings.Repeat("c", 64)
	for verb, act := range map[string]func(by picket.Caller, id string) error{
		"claim":  func(by picket.Caller, id string) error { _, err := f.Claim(f.ctx, by, id, false); return err },
		"answer": func(by picket.Caller, id string) error { _, err := f.Answer(f.ctx, by, id, yes); return err },
		"finish": func(by picket.Caller, id string) error {
			_, err := f.Finish(f.ctx, by, id, picket.RawJSON(`1`))
			return err
		},
		"cancel": func(by picket.Caller, id string) error { _, err := f.CancelHandoff(f.ctx, by, id, "r"); return err },
	} {
		if err := act(clash, hid); picket.CodeOf(err) != picket.CodeIdempotencyConflict {
			t.Fatalf("%s with another body: %v", verb, err)
		}
		if err := act(operator, noHelp); picket.CodeOf(err) != picket.CodeNotFound {
			t.Fatalf("%s of nothing: %v", verb, err)
		}
	}
	_, err = f.Answer(f.ctx, operator, hid, picket.AnswerRequest{Option: ptr("green")})
	refused(t, err, picket.CodeValidation)
	f.callTwice(t, func() error {
		_, err := f.Answer(f.ctx, idempotent("6"), hid, picket.AnswerRequest{Option: ptr("blue")})
		return err
	})
	for _, act := range []func() error{
		func() error { _, err := f.Answer(f.ctx, operator, hid, yes); return err },
		func() error { _, err := f.CancelHandoff(f.ctx, operator, hid, "r"); return err },
	} {
		refused(t, act(), picket.CodeStateConflict)
	}
	f.jumpStoreTime(t, 2*time.Minute) // the pin ends
	ok(t, f.Tick(f.ctx))
	hid = ask("", picket.HelpRequest{Question: "?"}) // asked by nobody in particular: no pin
	_, err = f.Answer(f.ctx, operator, hid, yes)
	ok(t, err)
	hid = ask("a1", picket.HelpRequest{Question: "?"})
	f.callTwice(t, func() error { _, err := f.Finish(f.ctx, idempotent("7"), hid, picket.RawJSON(`1`)); return err })
	_, err = f.Finish(f.ctx, operator, hid, picket.RawJSON(`1`))
	refused(t, err, picket.CodeTaskClosed)
	hid = ask("a1", picket.HelpRequest{Question: "?"})
	f.callTwice(t, func() error { _, err := f.CancelHandoff(f.ctx, idempotent("8"), hid, "r"); return err })
	_, err = f.CancelHandoff(f.ctx, operator, hid, "r")
	refused(t, err, picket.CodeTaskClosed)

	for _, policy := range []picket.OnDeadline{picket.OnDeadlineDeny, picket.OnDeadlineEscalate,
		picket.OnDeadlineWait} {
		ask("a1", picket.HelpRequest{Question: "?", DeadlineSeconds: ptr(1), OnDeadline: policy})
	}
	// of a damaged store
	ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:chores", redis.Z{Score: 1, Member: "handoff:" + noHelp}).Err())
	f.jumpStoreTime(t, time.Minute)
	ok(t, f.Tick(f.ctx))
	_, err = f.Handoffs(f.ctx, picket.HandoffQuery{})
	ok(t, err)
	_, err = f.Handoff(f.ctx, hid)
	ok(t, err)
	_, err = f.Handoff(f.ctx, noHelp)
	refused(t, err, picket.CodeNotFound)
	// of a damaged store
	ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:handoffs:open", redis.Z{Score: 1, Member: noHelp}).Err())
	_, err = f.Handoffs(f.ctx, picket.HandoffQuery{})
	ok(t, err)
	ok(t, f.raw.ZRem(f.ctx, "pk:{default}:handoffs:open", noHelp).Err())

	f.cancelAll(t)
	// Escalations: answered, retried.
	for _, decide := range []func(task picket.Task) error{
		func(task picket.Task) error {
			_, err := f.Answer(f.ctx, operator, task.Handoff.HandoffID, yes)
			return err
		},
		func(task picket.Task) error { _, err := f.Retry(f.ctx, operator, task.TaskID, "r"); return err },
	} {
		task, h := f.submitAndLease(t, picket.TaskSpec{})
		_, err := f.Fail(f.ctx, h, "no", false)
		ok(t, err)
		ok(t, decide(f.wantState(t, task.TaskID, picket.TaskHandoff)))
		f.cancelAll(t)
	}
}

func coverReviews(t *testing.T, f *fixture) {
	done := func() string {
		t.Helper()
		task, h := f.submitAndLease(t, picket.TaskSpec{})
		_, err := f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		ok(t, err)
		return task.TaskID
	}
	id := done()
	_, err := f.Reviews(f.ctx, picket.ReviewQuery{})
	ok(t, err)
	f.callTwice(t, func() error {
		_, err := f.Approve(f.ctx, idempotent("9"), id, picket.Decision{Note: "n"})
		return err
	})
	clash := idempotent("9")
	clash.Idempotency.Body = strings.Repeat("c", 64)
	_, err = f.Approve(f.ctx, clash, id, picket.Decision{Note: "n"})
	refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Approve(f.ctx, operator, id, picket.Decision{Note: "n"})
	refused(t, err, picket.CodeTaskClosed)
	_, err = f.Approve(f.ctx, operator, noTask, picket.Decision{Note: "n"})
	refused(t, err, picket.CodeNotFound)
	_, err = f.Retry(f.ctx, operator, id, "r")
	refused(t, err, picket.CodeTaskClosed)
	_, err = f.Retry(f.ctx, operator, noTask, "r")
	refused(t, err, picket.CodeNotFound)
	_, err = f.Retry(f.ctx, clash, id, "r")
	refused(t, err, picket.CodeIdempotencyConflict)
	id = done()
	f.fillLanes(t)
	_, _, err = f.Reject(f.ctx, operator, id, picket.Decision{Note: "n"}, &picket.TaskSpec{Title: "fix", Role: "new"})
	refused(t, err, picket.CodeTooManyLanes)
	f.removeFillerLanes(t)
	_, fix, err := f.Reject(f.ctx, operator, id, picket.Decision{Note: "n"}, &picket.TaskSpec{Title: "fix"})
	ok(t, err)
	_, err = f.Approve(f.ctx, operator, fix, picket.Decision{Note: "n"})
	refused(t, err, picket.CodeStateConflict)
	_, err = f.Retry(f.ctx, operator, fix, "r")
	refused(t, err, picket.CodeStateConflict)
	_, err = f.Cancel(f.ctx, operator, fix, "r")
	ok(t, err)
	f.fillLanes(t)
	_, err = f.Retry(f.ctx, operator, fix, "r")
	refused(t, err, picket.CodeTooManyLanes)
	f.removeFillerLanes(t)
	f.callTwice(t, func() error { _, err := f.Retry(f.ctx, idempotent("d"), fix, "r"); return err })
	_, err = f.Retry(f.ctx, operator, fix, "r")
	refused(t, err, picket.CodeStateConflict)
	f.cancelAll(t)
	_, _, err = f.Reject(f.ctx, operator, done(), picket.Decision{Note: "n"}, nil)
	ok(t, err)
	done() // left in review
	f.cancelAll(t)
}
