package orchestrator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

func (f *fixture) askPerson(t *testing.T, agent string, req picket.HelpRequest) (picket.LeaseCredential, string) {
	t.Helper()
	h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: agent}))
	_, err := f.Report(f.ctx, h, "",
		picket.Progress{Summary: "stuck", Attempted: []picket.Attempted{{Action: "think", Outcome: "nothing"}}})
	ok(t, err)
	got, err := f.RequestHelp(f.ctx, h, req)
	ok(t, err)
	again, err := f.RequestHelp(f.ctx, h, req)
	ok(t, err)
	if again != got {
		t.Fatalf("a repeated request answers %+v, first %+v", again, got)
	}
	return h, got.HandoffID
}

func TestAnswerReachesTheNextRun(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.mustSubmit(t, picket.TaskSpec{})
		_, hid := f.askPerson(t, "a1",
			picket.HelpRequest{Question: `Which "colour"?`, Options: []string{"red", "grün"}})
		hs, err := f.Handoffs(f.ctx, picket.HandoffQuery{})
		ok(t, err)
		if len(hs.Handoffs) != 1 || hs.Total != 1 || hs.NextCursor != nil {
			t.Fatalf("hand-offs %+v", hs)
		}
		h := hs.Handoffs[0]
		if h.HandoffID != hid || h.Title != task.Title || h.Question != `Which "colour"?` || h.Options[1] != "grün" ||
			h.Tried[0].Action != "think" {
			t.Fatalf("hand-off %+v", h)
		}
		claimed, err := f.Claim(f.ctx, operator, hid, false)
		ok(t, err)
		if claimed.ClaimedBy != "key_test" {
			t.Fatalf("claimed %+v", claimed)
		}
		_, err = f.Claim(f.ctx, picket.Caller{Actor: "key_other"}, hid, false)
		refused(t, err, picket.CodeStateConflict)
		taken, err := f.Claim(f.ctx, picket.Caller{Actor: "key_other"}, hid, true)
		ok(t, err)
		if taken.ClaimedBy != "key_other" || taken.Title != task.Title || taken.ClaimedAt == 0 {
			t.Fatalf("taken over %+v", taken)
		}
		_, err = f.Answer(f.ctx, operator, hid, picket.AnswerRequest{Option: ptr("blue")})
		refused(t, err, picket.CodeValidation)
		got, err := f.Answer(f.ctx, operator, hid,
			picket.AnswerRequest{Option: ptr("grün"), Answer: picket.RawJSON(`{"n":12345678901234567890}`)})
		ok(t, err)
		if got.State != picket.TaskQueued || got.Failures != 0 {
			t.Fatalf("answered %+v", got)
		}
		_, err = f.Answer(f.ctx, operator, hid, picket.AnswerRequest{Answer: picket.RawJSON(`"late"`)})
		refused(t, err, picket.CodeStateConflict)
		// For a minute only the agent that asked gets it.
		none, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{AgentID: "a2"})
		ok(t, err)
		if len(none) != 0 {
			t.Fatal("another agent took the task within the minute")
		}
		l := f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		if len(l.Answers) != 1 || *l.Answers[0].Option != "grün" ||
			string(l.Answers[0].Answer) != `{"n":12345678901234567890}` ||
			l.Answers[0].Question != `Which "colour"?` || l.LastReport.Summary != "stuck" || l.TaskID != task.TaskID {
			t.Fatalf("lease %+v", l)
		}
	})
}

func TestAnswerPinFallsOffAfterAMinute(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{})
		_, hid := f.askPerson(t, "a1", picket.HelpRequest{Question: "?"})
		_, err := f.Answer(f.ctx, operator, hid, picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)})
		ok(t, err)
		f.runReaperFor(t, 61*time.Second)
		if l := f.acquireOne(t, picket.AcquireRequest{AgentID: "a2"}); l.FencingToken != 2 {
			t.Fatalf("token %d", l.FencingToken)
		}
	})
}

// Nobody waits for an agent that cannot come back for the answer.
func TestAnswerIsNotKeptForAnAgentThatIsGone(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustRegister(t, picket.Registration{AgentID: "a1"})
		f.mustSubmit(t, picket.TaskSpec{})
		_, err := f.RequestHelp(f.ctx, f.openLease(t, f.acquireAsOwner(t, "a1")), picket.HelpRequest{Question: "?"})
		ok(t, err)
		_, err = f.Deregister(f.ctx, agentOwner, "a1", nil)
		ok(t, err)
		open, err := f.Handoffs(f.ctx, picket.HandoffQuery{})
		ok(t, err)
		_, err = f.Answer(f.ctx, operator, open.Handoffs[0].HandoffID,
			picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)})
		ok(t, err)
		if l := f.acquireOne(t, picket.AcquireRequest{AgentID: "a2"}); l.FencingToken != 2 || len(l.Answers) != 1 {
			t.Fatalf("token %d with %d answers", l.FencingToken, len(l.Answers))
		}
	})
}

func TestDeadlinePolicies(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		deny := f.mustSubmit(t, picket.TaskSpec{})
		f.askPerson(t, "a1", picket.HelpRequest{
			Question:        "deny?",
			DeadlineSeconds: ptr(30),
			OnDeadline:      picket.OnDeadlineDeny,
		})
		escalate := f.mustSubmit(t, picket.TaskSpec{})
		f.askPerson(t, "a1", picket.HelpRequest{
			Question:        "escalate?",
			DeadlineSeconds: ptr(30),
			OnDeadline:      picket.OnDeadlineEscalate,
		})
		wait := f.mustSubmit(t, picket.TaskSpec{})
		f.askPerson(t, "a1", picket.HelpRequest{Question: "wait?", DeadlineSeconds: ptr(30)})
		f.runReaperFor(t, 31*time.Second)
		got := f.wantState(t, deny.TaskID, picket.TaskQueued)
		if len(got.Answers) != 1 || string(got.Answers[0].Answer) != `"denied by deadline"` {
			t.Fatalf("answers %+v", got.Answers)
		}
		if got := f.wantState(t, escalate.TaskID, picket.TaskHandoff); got.Priority != 6 ||
			got.Handoff.State != picket.HandoffOpen {
			t.Fatalf("escalated %+v", got)
		}
		if got := f.wantState(t, wait.TaskID, picket.TaskHandoff); got.Priority != 5 {
			t.Fatalf("waiting %+v", got)
		}
	})
}

func TestFinishAndCancelAHandoff(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		one := f.mustSubmit(t, picket.TaskSpec{})
		_, hid := f.askPerson(t, "a1", picket.HelpRequest{Question: "?"})
		got, err := f.Finish(f.ctx, operator, hid, picket.RawJSON(`{"by":"hand"}`))
		ok(t, err)
		if got.State != picket.TaskCompleted || string(got.Output) != `{"by":"hand"}` || got.TaskID != one.TaskID {
			t.Fatalf("finished %+v", got)
		}
		_, err = f.Finish(f.ctx, operator, hid, picket.RawJSON(`1`))
		refused(t, err, picket.CodeTaskClosed)
		f.mustSubmit(t, picket.TaskSpec{})
		_, hid = f.askPerson(t, "a1", picket.HelpRequest{Question: "?"})
		got, err = f.CancelHandoff(f.ctx, operator, hid, "no")
		ok(t, err)
		if got.State != picket.TaskCancelled || got.Handoff.State != picket.HandoffCancelled || got.Reason != "no" {
			t.Fatalf("cancelled %+v", got)
		}
		_, err = f.CancelHandoff(f.ctx, operator, hid, "no")
		refused(t, err, picket.CodeTaskClosed)
		_, err = f.Handoff(f.ctx, "handoff_01ARZ3NDEKTSV4RRFFQ69G5FAV")
		refused(t, err, picket.CodeNotFound)
	})
}

func TestRejectCreatesTheFixInTheSameStep(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.mustSubmit(t, picket.TaskSpec{})
		h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		_, err := f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`"wrong"`)})
		ok(t, err)
		once := picket.Caller{
			Actor:       "key_test",
			Idempotency: picket.Idempotency{Key: strings.Repeat("a", 64), Body: strings.Repeat("b", 64)},
		}
		got, fix, err := f.Reject(f.ctx, once, task.TaskID, picket.Decision{Note: "too \"red\""},
			&picket.TaskSpec{Title: "make it blue"})
		ok(t, err)
		again, fix2, err := f.Reject(f.ctx, once, task.TaskID, picket.Decision{Note: "too \"red\""},
			&picket.TaskSpec{Title: "make it blue"})
		ok(t, err)
		if fix == "" || fix2 != fix || again.State != got.State || got.State != picket.TaskRejected ||
			*got.Review.FixTaskID != fix {
			t.Fatalf("rejected %+v fix %q repeated %q", got, fix, fix2)
		}
		fixTask := f.wantState(t, fix, picket.TaskQueued)
		if *fixTask.Fixes != task.TaskID || fixTask.Title != "make it blue" {
			t.Fatalf("fix %+v", fixTask)
		}
		_, err = f.Approve(f.ctx, operator, task.TaskID, picket.Decision{})
		refused(t, err, picket.CodeTaskClosed)
		_, _, err = f.Reject(f.ctx, operator, fix, picket.Decision{Note: "not yet"}, nil)
		refused(t, err, picket.CodeStateConflict)
	})
}

// A request can be repeated for a day; what retention has deleted meanwhile is
// not there any more, whatever the record of the request says.
func TestARepeatAfterRetention(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		verbs := map[string]func() error{}
		for _, name := range []string{"claim", "finish", "cancel"} {
			f.mustSubmit(t, picket.TaskSpec{})
			_, hid := f.askPerson(t, "a1", picket.HelpRequest{Question: "?"})
			verbs[name] = map[string]func() error{
				"claim": func() error { _, err := f.Claim(f.ctx, idempotent(name), hid, false); return err },
				"finish": func() error {
					_, err := f.Finish(f.ctx, idempotent(name), hid, picket.RawJSON(`1`))
					return err
				},
				"cancel": func() error { _, err := f.CancelHandoff(f.ctx, idempotent(name), hid, ""); return err },
			}[name]
			ok(t, verbs[name]())
			if name == "claim" {
				_, err := f.CancelHandoff(f.ctx, operator, hid, "")
				ok(t, err)
			}
		}
		id := f.completeTasks(t, 1, picket.TaskSpec{})[0]
		verbs["approve"] = func() error {
			_, err := f.Approve(f.ctx, idempotent("approve"), id, picket.Decision{})
			return err
		}
		ok(t, verbs["approve"]())
		spends := f.mustSubmit(t, picket.TaskSpec{}).TaskID
		verbs["top up"] = func() error {
			_, err := f.TopUp(f.ctx, idempotent("top up"), spends, picket.TopUp{Tokens: 1, Reason: "more"})
			return err
		}
		ok(t, verbs["top up"]())
		_, err := f.Cancel(f.ctx, operator, spends, "")
		ok(t, err)
		f.deleteEnded(t)
		for name, again := range verbs {
			if code := picket.CodeOf(again()); code != picket.CodeNotFound {
				t.Errorf("%s again: %s", name, code)
			}
		}
	})
}

// deleteEnded deletes what has ended.
func (f *fixture) deleteEnded(t *testing.T) {
	t.Helper()
	f.runReaperFor(t, 2*time.Second)
	_, err := f.ApplyRetention(f.ctx, picket.Retention{Tasks: time.Second, Events: time.Hour, MaxEvents: 1e6}, 100)
	ok(t, err)
}
