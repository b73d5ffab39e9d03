package orchestrator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// twoReviewers are people with keys of their own.
func (f *fixture) twoReviewers(t *testing.T) (ada, ben picket.Caller) {
	t.Helper()
	who := func(name string) picket.Caller {
		k, err := f.CreateKey(f.Ctx, kit.Operator,
			picket.KeyRequest{Name: name, Scopes: []picket.Scope{picket.ScopeReviewer}})
		kit.OK(t, err)
		return picket.Caller{Actor: k.KeyID}
	}
	return who("Ada L."), who("Ben")
}

// wantLostDecision checks a refusal that says who decided what.
func wantLostDecision(t *testing.T, what string, err error, code picket.Code, by, decision, said string) {
	t.Helper()
	var no *picket.Error
	if !errors.As(err, &no) || no.Code != code || no.Remedy == "" {
		t.Fatalf("%s: got %v (%s), want %s", what, err, picket.CodeOf(err), code)
	}
	at, isTime := no.Facts["at"].(picket.Instant)
	if no.Facts["by"] != by || no.Facts["decision"] != decision || !isTime || at.IsZero() {
		t.Errorf("%s: facts %v, want by %s, decision %s and when", what, no.Facts, by, decision)
	}
	found := false
	for _, k := range []string{"answer", "note", "reason"} {
		found = found || no.Facts[k] == said
	}
	if !found || !strings.Contains(no.Message, said) || !strings.Contains(no.Message, at.String()) {
		t.Errorf("%s: it says %q and %v, want what was said: %q", what, no.Message, no.Facts, said)
	}
}

// The loser is told who decided first, what, and when, also after the task has gone on. The first
// person is answered as before when the request is repeated.
func TestTheSecondDecisionOfAHandoffLoses(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		ada, ben := f.twoReviewers(t)
		seconds := map[string]func(hid string) error{
			"answer": func(hid string) error {
				_, err := f.Answer(f.Ctx, ben, hid, picket.AnswerRequest{Answer: picket.RawJSON(`"no"`)})
				return err
			},
			"finish": func(hid string) error { _, err := f.Finish(f.Ctx, ben, hid, picket.RawJSON(`1`)); return err },
			"cancel": func(hid string) error { _, err := f.CancelHandoff(f.Ctx, ben, hid, "no"); return err },
			"claim": func(hid string) error {
				_, err := f.Claim(f.Ctx, ben, hid, picket.ClaimRequest{TakeOver: true})
				return err
			},
		}
		for name, c := range map[string]struct {
			act      func(by picket.Caller, hid string) error
			code     picket.Code
			decision string
			said     string
		}{
			"answer": {func(by picket.Caller, hid string) error {
				_, err := f.Answer(f.Ctx, by, hid,
					picket.AnswerRequest{Answer: picket.RawJSON(`"use=red 100% – \"now\"\n!"`)})
				return err
			}, picket.CodeStateConflict, "answer", "use=red 100% – \"now\"\n!"},
			"option": {func(by picket.Caller, hid string) error {
				_, err := f.Answer(f.Ctx, by, hid,
					picket.AnswerRequest{Option: kit.Ptr("b"), Answer: picket.RawJSON(`{"n": 1}`)})
				return err
			}, picket.CodeStateConflict, "answer", `b: {"n": 1}`},
			"input": {func(by picket.Caller, hid string) error {
				_, err := f.Answer(f.Ctx, by, hid, picket.AnswerRequest{Input: picket.RawJSON(`{"n": 1}`)})
				return err
			}, picket.CodeStateConflict, "answer", "edited the input"},
			"finish": {func(by picket.Caller, hid string) error {
				_, err := f.Finish(f.Ctx, by, hid, picket.RawJSON(`"`+strings.Repeat("ß", 600)+`"`))
				return err
			}, picket.CodeTaskClosed, "finish", strings.Repeat("ß", 500) + "…"},
			"cancel": {func(by picket.Caller, hid string) error {
				_, err := f.CancelHandoff(f.Ctx, by, hid, "not needed")
				return err
			},
				picket.CodeTaskClosed, "cancel", "not needed"},
		} {
			task := f.MustSubmit(t, picket.TaskSpec{})
			_, hid := f.askPerson(t, "a1", picket.HelpRequest{Question: "which?", Options: []string{"a", "b"}})
			first := ada
			first.Idempotency = picket.Idempotency{
				Key:  strings.Repeat("d", 60) + fmt.Sprintf("%4.4s", name),
				Body: strings.Repeat("b", 64),
			}
			kit.OK(t, c.act(first, hid))
			for second, act := range seconds {
				wantLostDecision(t, name+", then "+second, act(hid), c.code, ada.Actor, c.decision, c.said)
			}
			var no *picket.Error
			if err := seconds["answer"](hid); !errors.As(err, &no) || no.Facts["byName"] != "Ada L." ||
				!strings.HasPrefix(no.Message, "Ada L. ("+ada.Actor+") ") {
				t.Errorf("%s: it says %v", name, err)
			}
			kit.OK(t, c.act(first, hid))
			if got, err := f.Task(f.Ctx, task.TaskID); err != nil || got.Handoff.HandoffID != hid {
				t.Errorf("%s: %+v, %v", name, got.Handoff, err)
			}
			if c.code == picket.CodeTaskClosed {
				continue
			}
			_, err := f.Complete(f.Ctx, f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})),
				picket.Completion{Output: picket.RawJSON(`1`)})
			kit.OK(t, err)
			_, err = f.Approve(f.Ctx, ben, task.TaskID, picket.Decision{Note: "fine"})
			kit.OK(t, err)
			wantLostDecision(t, name+", and the task has ended", seconds["answer"](hid), picket.CodeTaskClosed,
				ada.Actor,
				c.decision, c.said)
		}
	})
}

func TestADeadlineAndARetryDecideToo(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		ada, ben := f.twoReviewers(t)
		f.MustSubmit(t, picket.TaskSpec{})
		_, hid := f.askPerson(t, "a1",
			picket.HelpRequest{Question: "?", DeadlineSeconds: kit.Ptr(1), OnDeadline: picket.OnDeadlineDeny})
		f.JumpStoreTime(t, time.Minute)
		kit.OK(t, f.Tick(f.Ctx))
		_, err := f.Finish(f.Ctx, ben, hid, picket.RawJSON(`1`))
		wantLostDecision(t, "deadline", err, picket.CodeStateConflict, "deadline", "answer", "denied by deadline")
		if !strings.HasPrefix(err.Error(), "its deadline answered it already at ") {
			t.Errorf("it says %v", err)
		}
		f.CancelAll(t)
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		_, err = f.Fail(f.Ctx, h, "no way", false)
		kit.OK(t, err)
		hid = f.WantState(t, task.TaskID, picket.TaskHandoff).Handoff.HandoffID
		_, err = f.Retry(f.Ctx, ada, task.TaskID, "once more")
		kit.OK(t, err)
		_, err = f.CancelHandoff(f.Ctx, ben, hid, "no")
		wantLostDecision(t, "retry", err, picket.CodeStateConflict, ada.Actor, "answer", "once more")
	})
}

func TestTheSecondDecisionOfAReviewLoses(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		ada, ben := f.twoReviewers(t)
		for name, c := range map[string]struct {
			act      func(id string) error
			decision string
			said     string
		}{
			"approve": {func(id string) error {
				_, err := f.Approve(f.Ctx, ada, id, picket.Decision{Note: "well done"})
				return err
			}, "approve", "well done"},
			"reject": {func(id string) error {
				_, _, err := f.Reject(f.Ctx, ada, id, picket.Decision{Note: "too red: " + strings.Repeat("é", 2000)},
					&picket.TaskSpec{Title: "blue", Role: "later"})
				return err
			}, "reject", "too red: " + strings.Repeat("é", 491) + "…"},
			"cancel": {func(id string) error { _, err := f.Cancel(f.Ctx, ada, id, "not needed"); return err }, "cancel",
				"not needed"},
		} {
			id := f.CompleteTasks(t, 1, picket.TaskSpec{})[0]
			kit.OK(t, c.act(id))
			for second, act := range map[string]func() error{
				"approve": func() error {
					_, err := f.Approve(f.Ctx, ben, id, picket.Decision{Note: "no"})
					return err
				},
				"reject": func() error {
					_, _, err := f.Reject(f.Ctx, ben, id, picket.Decision{Note: "no"}, &picket.TaskSpec{Title: "fix"})
					return err
				},
				"cancel": func() error { _, err := f.Cancel(f.Ctx, ben, id, "no"); return err },
				"expire": func() error { _, err := f.Expire(f.Ctx, ben, id, "no"); return err },
			} {
				err := act()
				wantLostDecision(t, name+", then "+second, err, picket.CodeTaskClosed, ada.Actor, c.decision, c.said)
				var no *picket.Error
				if errors.As(err, &no) && name == "reject" && no.Facts["fixTaskId"] == nil {
					t.Errorf("%s, then %s: no word of the fix: %v", name, second, no.Facts)
				}
				if !utf8.ValidString(err.Error()) {
					t.Errorf("%s, then %s: %q", name, second, err)
				}
			}
		}
		// A task that a person has finished was decided in its hand-off.
		task := f.MustSubmit(t, picket.TaskSpec{})
		_, hid := f.askPerson(t, "a1", picket.HelpRequest{Question: "?"})
		_, err := f.Finish(f.Ctx, ada, hid, picket.RawJSON(`1`))
		kit.OK(t, err)
		_, err = f.Approve(f.Ctx, ben, task.TaskID, picket.Decision{})
		var no *picket.Error
		if !errors.As(err, &no) || no.Facts["decision"] != "finish" || no.Facts["by"] != ada.Actor {
			t.Errorf("approve of what was finished: %v", err)
		}
	})
}

// What somebody has claimed says who and when, and how to take it over.
func TestAClaimSaysWhoseItIs(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		ada, ben := f.twoReviewers(t)
		hid := f.OpenHandoffs(t, 1)[0]
		_, err := f.Claim(f.Ctx, ada, hid, picket.ClaimRequest{})
		kit.OK(t, err)
		_, err = f.Claim(f.Ctx, ben, hid, picket.ClaimRequest{})
		var no *picket.Error
		if !errors.As(err, &no) || no.Code != picket.CodeStateConflict || no.Facts["state"] != "claimed" ||
			no.Facts["by"] != ada.Actor ||
			no.Facts["byName"] != "Ada L." || no.Facts["at"] == nil || no.Facts["handoffId"] != hid ||
			!strings.HasPrefix(no.Message, "Ada L. ("+ada.Actor+") has claimed it at ") ||
			!strings.Contains(no.Remedy, "--take-over") {
			t.Fatalf("it says %v: %+v", err, no)
		}
		_, err = f.Answer(f.Ctx, ben, hid, picket.AnswerRequest{Answer: picket.RawJSON(`"all the same"`)})
		kit.OK(t, err)
	})
}
