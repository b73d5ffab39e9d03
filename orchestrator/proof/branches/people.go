package branches

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func coverHandoffs(t *testing.T, f *fixture) {
	ask := func(agent string, req picket.HelpRequest) string {
		t.Helper()
		f.MustSubmit(t, picket.TaskSpec{Priority: kit.Ptr(9)})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: agent}))
		got, err := f.RequestHelp(f.Ctx, h, req)
		kit.OK(t, err)
		again, err := f.RequestHelp(f.Ctx, h, req)
		kit.OK(t, err)
		req.Question += "!"
		_, err = f.RequestHelp(f.Ctx, h, req)
		kit.Refused(t, err, picket.CodeLeaseReleased)
		return again.HandoffID + got.HandoffID[len(again.HandoffID):]
	}
	yes := picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)}
	hid := ask("a1", picket.HelpRequest{Question: "?", Options: []string{"red", "blue"}})
	f.CallTwice(t, func() error {
		_, err := f.Claim(f.Ctx, kit.Idempotent("5"), hid, picket.ClaimRequest{})
		return err
	})
	gone := kit.Idempotent("gone") // claimed, and deleted since
	kit.OK(t, f.Raw.Set(f.Ctx, "pk:{default}:req:"+gone.Idempotency.Key, gone.Idempotency.Body+" "+kit.NoHelp, 0).Err())
	_, err := f.Claim(f.Ctx, gone, kit.NoHelp, picket.ClaimRequest{})
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.Claim(f.Ctx, kit.Operator, hid, picket.ClaimRequest{}) // the same person
	kit.OK(t, err)
	_, err = f.Claim(f.Ctx, picket.Caller{Actor: "other"}, hid, picket.ClaimRequest{})
	kit.Refused(t, err, picket.CodeStateConflict)
	clash := kit.Idempotent("5")
	clash.Idempotency.Body = strings.Repeat("c", 64)
	for verb, act := range map[string]func(by picket.Caller, id string) error{
		"claim": func(by picket.Caller, id string) error {
			_, err := f.Claim(f.Ctx, by, id, picket.ClaimRequest{})
			return err
		},
		"answer": func(by picket.Caller, id string) error { _, err := f.Answer(f.Ctx, by, id, yes); return err },
		"finish": func(by picket.Caller, id string) error {
			_, err := f.Finish(f.Ctx, by, id, picket.RawJSON(`1`))
			return err
		},
		"cancel": func(by picket.Caller, id string) error { _, err := f.CancelHandoff(f.Ctx, by, id, "r"); return err },
	} {
		if err := act(clash, hid); picket.CodeOf(err) != picket.CodeIdempotencyConflict {
			t.Fatalf("%s with another body: %v", verb, err)
		}
		if err := act(kit.Operator, kit.NoHelp); picket.CodeOf(err) != picket.CodeNotFound {
			t.Fatalf("%s of nothing: %v", verb, err)
		}
	}
	_, err = f.Answer(f.Ctx, kit.Operator, hid, picket.AnswerRequest{Option: kit.Ptr("green")})
	kit.Refused(t, err, picket.CodeValidation)
	f.CallTwice(t, func() error {
		_, err := f.Answer(f.Ctx, kit.Idempotent("6"), hid, picket.AnswerRequest{Option: kit.Ptr("blue")})
		return err
	})
	for _, act := range []func() error{
		func() error { _, err := f.Answer(f.Ctx, kit.Operator, hid, yes); return err },
		func() error { _, err := f.CancelHandoff(f.Ctx, kit.Operator, hid, "r"); return err },
	} {
		kit.Refused(t, act(), picket.CodeStateConflict)
	}
	f.JumpStoreTime(t, 2*time.Minute) // the pin ends
	kit.OK(t, f.Tick(f.Ctx))
	hid = ask("", picket.HelpRequest{Question: "?"}) // asked by nobody in particular: no pin
	_, err = f.Answer(f.Ctx, kit.Operator, hid, yes)
	kit.OK(t, err)
	hid = ask("a1", picket.HelpRequest{Question: "?"})
	f.CallTwice(t, func() error {
		_, err := f.Finish(f.Ctx, kit.Idempotent("7"), hid,
			picket.RawJSON(`1`))
		return err
	})
	_, err = f.Finish(f.Ctx, kit.Operator, hid, picket.RawJSON(`1`))
	kit.Refused(t, err, picket.CodeTaskClosed)
	hid = ask("a1", picket.HelpRequest{Question: "?"})
	f.CallTwice(t, func() error { _, err := f.CancelHandoff(f.Ctx, kit.Idempotent("8"), hid, "r"); return err })
	_, err = f.CancelHandoff(f.Ctx, kit.Operator, hid, "r")
	kit.Refused(t, err, picket.CodeTaskClosed)

	for _, policy := range []picket.OnDeadline{picket.OnDeadlineDeny, picket.OnDeadlineEscalate,
		picket.OnDeadlineWait} {
		ask("a1", picket.HelpRequest{Question: "?", DeadlineSeconds: kit.Ptr(1), OnDeadline: policy})
	}
	// of a damaged store
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:chores", redis.Z{Score: 1, Member: "handoff:" + kit.NoHelp}).Err())
	f.JumpStoreTime(t, time.Minute)
	kit.OK(t, f.Tick(f.Ctx))
	_, err = f.Handoffs(f.Ctx, picket.HandoffQuery{})
	kit.OK(t, err)
	_, err = f.Handoff(f.Ctx, hid)
	kit.OK(t, err)
	_, err = f.Handoff(f.Ctx, kit.NoHelp)
	kit.Refused(t, err, picket.CodeNotFound)
	// of a damaged store
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:handoffs:open", redis.Z{Score: 1, Member: kit.NoHelp}).Err())
	_, err = f.Handoffs(f.Ctx, picket.HandoffQuery{})
	kit.OK(t, err)
	kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:handoffs:open", kit.NoHelp).Err())

	f.CancelAll(t)
	// Escalations: answered, retried.
	for _, decide := range []func(task picket.Task) error{
		func(task picket.Task) error {
			_, err := f.Answer(f.Ctx, kit.Operator, task.Handoff.HandoffID, yes)
			return err
		},
		func(task picket.Task) error { _, err := f.Retry(f.Ctx, kit.Operator, task.TaskID, "r"); return err },
	} {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		_, err := f.Fail(f.Ctx, h, "no", false)
		kit.OK(t, err)
		kit.OK(t, decide(f.WantState(t, task.TaskID, picket.TaskHandoff)))
		f.CancelAll(t)
	}
}

func coverReviews(t *testing.T, f *fixture) {
	done := func() string {
		t.Helper()
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		_, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(t, err)
		return task.TaskID
	}
	id := done()
	_, err := f.Reviews(f.Ctx, picket.ReviewQuery{})
	kit.OK(t, err)
	f.CallTwice(t, func() error {
		_, err := f.Approve(f.Ctx, kit.Idempotent("9"), id, picket.Decision{Note: "n"})
		return err
	})
	clash := kit.Idempotent("9")
	clash.Idempotency.Body = strings.Repeat("c", 64)
	_, err = f.Approve(f.Ctx, clash, id, picket.Decision{Note: "n"})
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Approve(f.Ctx, kit.Operator, id, picket.Decision{Note: "n"})
	kit.Refused(t, err, picket.CodeTaskClosed)
	_, err = f.Approve(f.Ctx, kit.Operator, kit.NoTask, picket.Decision{Note: "n"})
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.Retry(f.Ctx, kit.Operator, id, "r")
	kit.Refused(t, err, picket.CodeTaskClosed)
	_, err = f.Retry(f.Ctx, kit.Operator, kit.NoTask, "r")
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.Retry(f.Ctx, clash, id, "r")
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	id = done()
	f.fillLanes(t)
	_, _, err = f.Reject(f.Ctx, kit.Operator, id, picket.Decision{Note: "n"},
		&picket.TaskSpec{Title: "fix", Role: "new"})
	kit.Refused(t, err, picket.CodeTooManyLanes)
	f.removeFillerLanes(t)
	_, fix, err := f.Reject(f.Ctx, kit.Operator, id, picket.Decision{Note: "n"}, &picket.TaskSpec{Title: "fix"})
	kit.OK(t, err)
	_, err = f.Approve(f.Ctx, kit.Operator, fix, picket.Decision{Note: "n"})
	kit.Refused(t, err, picket.CodeStateConflict)
	_, err = f.Retry(f.Ctx, kit.Operator, fix, "r")
	kit.Refused(t, err, picket.CodeStateConflict)
	_, err = f.Cancel(f.Ctx, kit.Operator, fix, "r")
	kit.OK(t, err)
	f.fillLanes(t)
	_, err = f.Retry(f.Ctx, kit.Operator, fix, "r")
	kit.Refused(t, err, picket.CodeTooManyLanes)
	f.removeFillerLanes(t)
	f.CallTwice(t, func() error { _, err := f.Retry(f.Ctx, kit.Idempotent("d"), fix, "r"); return err })
	_, err = f.Retry(f.Ctx, kit.Operator, fix, "r")
	kit.Refused(t, err, picket.CodeStateConflict)
	f.CancelAll(t)
	_, _, err = f.Reject(f.Ctx, kit.Operator, done(), picket.Decision{Note: "n"}, nil)
	kit.OK(t, err)
	done() // left in review
	f.CancelAll(t)
}
