package orchestrator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func (f *fixture) askPerson(t *testing.T, agent string, req picket.HelpRequest) (picket.LeaseCredential, string) {
	t.Helper()
	h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: agent}))
	_, err := f.Report(f.Ctx, h, "",
		picket.Progress{Summary: "stuck", Attempted: []picket.Attempted{{Action: "think", Outcome: "nothing"}}})
	kit.OK(t, err)
	got, err := f.RequestHelp(f.Ctx, h, req)
	kit.OK(t, err)
	again, err := f.RequestHelp(f.Ctx, h, req)
	kit.OK(t, err)
	if again != got {
		t.Fatalf("a repeated request answers %+v, first %+v", again, got)
	}
	return h, got.HandoffID
}

func TestAnswerReachesTheNextRun(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		_, hid := f.askPerson(t, "a1",
			picket.HelpRequest{Question: `Which "colour"?`, Options: []string{"red", "grün"}})
		hs, err := f.Handoffs(f.Ctx, picket.HandoffQuery{})
		kit.OK(t, err)
		if len(hs.Handoffs) != 1 || hs.Total != 1 || hs.NextCursor != nil {
			t.Fatalf("hand-offs %+v", hs)
		}
		h := hs.Handoffs[0]
		if h.HandoffID != hid || h.Title != task.Title || h.Question != `Which "colour"?` || h.Options[1] != "grün" ||
			h.Tried[0].Action != "think" {
			t.Fatalf("hand-off %+v", h)
		}
		claimed, err := f.Claim(f.Ctx, kit.Operator, hid, picket.ClaimRequest{})
		kit.OK(t, err)
		if claimed.ClaimedBy != "key_test" {
			t.Fatalf("claimed %+v", claimed)
		}
		_, err = f.Claim(f.Ctx, picket.Caller{Actor: "key_other"}, hid, picket.ClaimRequest{})
		kit.Refused(t, err, picket.CodeStateConflict)
		taken, err := f.Claim(f.Ctx, picket.Caller{Actor: "key_other"}, hid, picket.ClaimRequest{TakeOver: true})
		kit.OK(t, err)
		if taken.ClaimedBy != "key_other" || taken.Title != task.Title || taken.ClaimedAt == 0 {
			t.Fatalf("taken over %+v", taken)
		}
		_, err = f.Answer(f.Ctx, kit.Operator, hid, picket.AnswerRequest{Option: kit.Ptr("blue")})
		kit.Refused(t, err, picket.CodeValidation)
		got, err := f.Answer(f.Ctx, kit.Operator, hid,
			picket.AnswerRequest{Option: kit.Ptr("grün"), Answer: picket.RawJSON(`{"n":12345678901234567890}`)})
		kit.OK(t, err)
		if got.State != picket.TaskQueued || got.Failures != 0 {
			t.Fatalf("answered %+v", got)
		}
		_, err = f.Answer(f.Ctx, kit.Operator, hid, picket.AnswerRequest{Answer: picket.RawJSON(`"late"`)})
		kit.Refused(t, err, picket.CodeStateConflict)
		// For a minute only the agent that asked gets it.
		none, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a2"})
		kit.OK(t, err)
		if len(none) != 0 {
			t.Fatal("another agent took the task within the minute")
		}
		l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		if len(l.Answers) != 1 || *l.Answers[0].Option != "grün" ||
			string(l.Answers[0].Answer) != `{"n":12345678901234567890}` ||
			l.Answers[0].Question != `Which "colour"?` || l.LastReport.Summary != "stuck" || l.TaskID != task.TaskID {
			t.Fatalf("lease %+v", l)
		}
	})
}

func TestAnswerPinFallsOffAfterAMinute(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		_, hid := f.askPerson(t, "a1", picket.HelpRequest{Question: "?"})
		_, err := f.Answer(f.Ctx, kit.Operator, hid, picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)})
		kit.OK(t, err)
		f.RunReaperFor(t, 61*time.Second)
		if l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a2"}); l.FencingToken != 2 {
			t.Fatalf("token %d", l.FencingToken)
		}
	})
}

// Nobody waits for an agent that cannot come back for the answer.
func TestAnswerIsNotKeptForAnAgentThatIsGone(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, picket.Registration{AgentID: "a1"})
		f.MustSubmit(t, picket.TaskSpec{})
		_, err := f.RequestHelp(f.Ctx, f.OpenLease(t, f.AcquireAsOwner(t, "a1")), picket.HelpRequest{Question: "?"})
		kit.OK(t, err)
		_, err = f.Deregister(f.Ctx, kit.AgentOwner, "a1", nil)
		kit.OK(t, err)
		open, err := f.Handoffs(f.Ctx, picket.HandoffQuery{})
		kit.OK(t, err)
		_, err = f.Answer(f.Ctx, kit.Operator, open.Handoffs[0].HandoffID,
			picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)})
		kit.OK(t, err)
		if l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a2"}); l.FencingToken != 2 || len(l.Answers) != 1 {
			t.Fatalf("token %d with %d answers", l.FencingToken, len(l.Answers))
		}
	})
}

func TestDeadlinePolicies(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		deny := f.MustSubmit(t, picket.TaskSpec{})
		f.askPerson(t, "a1", picket.HelpRequest{
			Question:        "deny?",
			DeadlineSeconds: kit.Ptr(30),
			OnDeadline:      picket.OnDeadlineDeny,
		})
		escalate := f.MustSubmit(t, picket.TaskSpec{})
		f.askPerson(t, "a1", picket.HelpRequest{
			Question:        "escalate?",
			DeadlineSeconds: kit.Ptr(30),
			OnDeadline:      picket.OnDeadlineEscalate,
		})
		wait := f.MustSubmit(t, picket.TaskSpec{})
		f.askPerson(t, "a1", picket.HelpRequest{Question: "wait?", DeadlineSeconds: kit.Ptr(30)})
		f.RunReaperFor(t, 31*time.Second)
		got := f.WantState(t, deny.TaskID, picket.TaskQueued)
		if len(got.Answers) != 1 || string(got.Answers[0].Answer) != `"denied by deadline"` {
			t.Fatalf("answers %+v", got.Answers)
		}
		if got := f.WantState(t, escalate.TaskID, picket.TaskHandoff); got.Priority != 6 ||
			got.Handoff.State != picket.HandoffOpen {
			t.Fatalf("escalated %+v", got)
		}
		if got := f.WantState(t, wait.TaskID, picket.TaskHandoff); got.Priority != 5 {
			t.Fatalf("waiting %+v", got)
		}
	})
}

func TestFinishAndCancelAHandoff(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		one := f.MustSubmit(t, picket.TaskSpec{})
		_, hid := f.askPerson(t, "a1", picket.HelpRequest{Question: "?"})
		got, err := f.Finish(f.Ctx, kit.Operator, hid, picket.RawJSON(`{"by":"hand"}`))
		kit.OK(t, err)
		if got.State != picket.TaskCompleted || string(got.Output) != `{"by":"hand"}` || got.TaskID != one.TaskID {
			t.Fatalf("finished %+v", got)
		}
		_, err = f.Finish(f.Ctx, kit.Operator, hid, picket.RawJSON(`1`))
		kit.Refused(t, err, picket.CodeTaskClosed)
		f.MustSubmit(t, picket.TaskSpec{})
		_, hid = f.askPerson(t, "a1", picket.HelpRequest{Question: "?"})
		got, err = f.CancelHandoff(f.Ctx, kit.Operator, hid, "no")
		kit.OK(t, err)
		if got.State != picket.TaskCancelled || got.Handoff.State != picket.HandoffCancelled || got.Reason != "no" {
			t.Fatalf("cancelled %+v", got)
		}
		_, err = f.CancelHandoff(f.Ctx, kit.Operator, hid, "no")
		kit.Refused(t, err, picket.CodeTaskClosed)
		_, err = f.Handoff(f.Ctx, "handoff_01ARZ3NDEKTSV4RRFFQ69G5FAV")
		kit.Refused(t, err, picket.CodeNotFound)
	})
}

func TestRejectCreatesTheFixInTheSameStep(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		_, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`"wrong"`)})
		kit.OK(t, err)
		once := picket.Caller{
			Actor:       "key_test",
			Idempotency: picket.Idempotency{Key: strings.Repeat("a", 64), Body: strings.Repeat("b", 64)},
		}
		got, fix, err := f.Reject(f.Ctx, once, task.TaskID, picket.Decision{Note: "too \"red\""},
			&picket.TaskSpec{Title: "make it blue"})
		kit.OK(t, err)
		again, fix2, err := f.Reject(f.Ctx, once, task.TaskID, picket.Decision{Note: "too \"red\""},
			&picket.TaskSpec{Title: "make it blue"})
		kit.OK(t, err)
		if fix == "" || fix2 != fix || again.State != got.State || got.State != picket.TaskRejected ||
			*got.Review.FixTaskID != fix {
			t.Fatalf("rejected %+v fix %q repeated %q", got, fix, fix2)
		}
		fixTask := f.WantState(t, fix, picket.TaskQueued)
		if *fixTask.Fixes != task.TaskID || fixTask.Title != "make it blue" {
			t.Fatalf("fix %+v", fixTask)
		}
		_, err = f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{})
		kit.Refused(t, err, picket.CodeTaskClosed)
		_, _, err = f.Reject(f.Ctx, kit.Operator, fix, picket.Decision{Note: "not yet"}, nil)
		kit.Refused(t, err, picket.CodeStateConflict)
	})
}

// A request can be repeated for a day; what retention has deleted meanwhile is
// not there any more, whatever the record of the request says.
func TestARepeatAfterRetention(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		verbs := map[string]func() error{}
		for _, name := range []string{"claim", "finish", "cancel"} {
			f.MustSubmit(t, picket.TaskSpec{})
			_, hid := f.askPerson(t, "a1", picket.HelpRequest{Question: "?"})
			verbs[name] = map[string]func() error{
				"claim": func() error {
					_, err := f.Claim(f.Ctx, kit.Idempotent(name), hid, picket.ClaimRequest{})
					return err
				},
				"finish": func() error {
					_, err := f.Finish(f.Ctx, kit.Idempotent(name), hid, picket.RawJSON(`1`))
					return err
				},
				"cancel": func() error { _, err := f.CancelHandoff(f.Ctx, kit.Idempotent(name), hid, ""); return err },
			}[name]
			kit.OK(t, verbs[name]())
			if name == "claim" {
				_, err := f.CancelHandoff(f.Ctx, kit.Operator, hid, "")
				kit.OK(t, err)
			}
		}
		id := f.CompleteTasks(t, 1, picket.TaskSpec{})[0]
		verbs["approve"] = func() error {
			_, err := f.Approve(f.Ctx, kit.Idempotent("approve"), id, picket.Decision{})
			return err
		}
		kit.OK(t, verbs["approve"]())
		spends := f.MustSubmit(t, picket.TaskSpec{}).TaskID
		verbs["top up"] = func() error {
			_, err := f.TopUp(f.Ctx, kit.Idempotent("top up"), spends, picket.TopUp{Tokens: 1, Reason: "more"})
			return err
		}
		kit.OK(t, verbs["top up"]())
		_, err := f.Cancel(f.Ctx, kit.Operator, spends, "")
		kit.OK(t, err)
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
	f.RunReaperFor(t, 2*time.Second)
	_, err := f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Second, Events: time.Hour, MaxEvents: 1e6}, 100)
	kit.OK(t, err)
}
