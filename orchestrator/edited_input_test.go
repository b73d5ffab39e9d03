package orchestrator_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// What a person has made of the input is what every later run is given, however
// it gets its task; the task itself keeps what was submitted.
func TestAnEditedInputReachesAllLaterRuns(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		const submitted, once, last = `{"n":1}`, `{"n":12345678901234567890}`, `"in words"`
		task := f.MustSubmit(t, picket.TaskSpec{Input: picket.RawJSON(submitted)})
		asks := func() string {
			l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
			got, err := f.RequestHelp(f.Ctx, f.OpenLease(t, l),
				picket.HelpRequest{Question: "?", Kind: picket.HandoffApproval})
			kit.OK(t, err)
			return got.HandoffID
		}
		answer := func(hid string, req picket.AnswerRequest) {
			t.Helper()
			got, err := f.Answer(f.Ctx, kit.Operator, hid, req)
			kit.OK(t, err)
			if string(got.Input) != submitted {
				t.Errorf("the task shows %s", got.Input)
			}
		}
		given := func(l picket.Lease, want string) picket.LeaseCredential {
			t.Helper()
			h := f.OpenLease(t, l)
			shown, err := f.HeldTask(f.Ctx, h, "")
			kit.OK(t, err)
			if string(l.Task.Input) != want || string(shown.Input) != want {
				t.Errorf("the run was given %s, and is shown %s, want %s", l.Task.Input, shown.Input, want)
			}
			return h
		}
		answer(asks(), picket.AnswerRequest{Input: picket.RawJSON(once)})
		l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		if a := l.Answers[0]; string(a.Input) != once || !a.InputEdited || string(a.Answer) != "null" ||
			a.Option != nil {
			t.Errorf("answers %+v", l.Answers)
		}
		_, err := f.RequestHelp(f.Ctx, given(l, once), picket.HelpRequest{Question: "?"})
		kit.OK(t, err)
		answer("handoff_"+strings.TrimPrefix(l.RunID, "run_"),
			picket.AnswerRequest{Answer: picket.RawJSON(`"go on"`), Input: picket.RawJSON("null")})
		l = f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		// an answer without an input leaves it
		_, err = f.RequestHelp(f.Ctx, given(l, once), picket.HelpRequest{Question: "?"})
		kit.OK(t, err)
		answer("handoff_"+strings.TrimPrefix(l.RunID, "run_"),
			picket.AnswerRequest{Answer: picket.RawJSON(`"go on"`), Input: picket.RawJSON(last)})

		// By advance, too.
		other, h := f.SubmitAndLease(t, picket.TaskSpec{Priority: kit.Ptr(9)})
		adv, err := f.Advance(f.Ctx, h, kit.Operator,
			picket.AdvanceRequest{Output: picket.RawJSON(`1`), Acquire: picket.AcquireRequest{AgentID: "a1"}})
		kit.OK(t, err)
		if len(adv.Leases) != 1 || adv.Leases[0].TaskID != task.TaskID {
			t.Fatalf("advanced from %s to %+v", other.TaskID, adv)
		}
		h = given(adv.Leases[0], last)
		_, err = f.Fail(f.Ctx, h, "no", false)
		kit.OK(t, err)
		got := f.WantState(t, task.TaskID, picket.TaskHandoff)
		if string(got.Input) != submitted || len(got.Answers) != 3 || string(got.Answers[2].Input) != last ||
			string(got.Answers[1].Input) != "null" {
			t.Errorf("the task shows %s and %+v", got.Input, got.Answers)
		}
		// A repeat of the task is a task of its own: it is submitted with what the runs had.
		_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "")
		kit.OK(t, err)
		again, err := f.Retry(f.Ctx, kit.Operator, task.TaskID, "")
		kit.OK(t, err)
		if string(again.Input) != last {
			t.Errorf("the repeat has %s", again.Input)
		}
		given(f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}), last)
	})
}

// The task that repairs a subtask gets the input as a person edited it.
func TestARepairHasTheEditedInput(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{})
		d := p.mustDelegate(t, "", picket.Subtask{Title: "draft", Input: picket.RawJSON(`"a poem"`)})
		c := p.acquireTask(t, d.TaskID)
		got, err := f.RequestHelp(f.Ctx, c.held, picket.HelpRequest{Question: "?"})
		kit.OK(t, err)
		_, err = f.Answer(f.Ctx, kit.Operator, got.HandoffID,
			picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`), Input: picket.RawJSON(`"a sonnet"`)})
		kit.OK(t, err)
		p.acquireTask(t, d.TaskID).mustComplete(t, picket.Completion{})
		s, err := f.ReviewSubtask(f.Ctx, p.held, "",
			picket.SubtaskReview{TaskID: d.TaskID, Decision: "reject", Note: "it must rhyme"})
		kit.OK(t, err)
		fix := p.acquireTask(t, *s.Review.FixTaskID)
		if in := fix.lease.Task.Input; string(in) != `"a sonnet"` {
			t.Errorf("the repair has the input %s", in)
		}
	})
}

// An input can be edited to null, which is not the same as leaving it out.
func TestAnInputIsEditedToNull(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{Input: picket.RawJSON(`1`)})
		_, hid := f.askPerson(t, "a1", picket.HelpRequest{Question: "?"})
		_, err := f.Answer(f.Ctx, kit.Operator, hid, picket.AnswerRequest{ClearInput: true, Input: picket.RawJSON(`2`)})
		kit.Refused(t, err, picket.CodeValidation)
		_, err = f.Answer(f.Ctx, kit.Operator, hid, picket.AnswerRequest{ClearInput: true})
		kit.OK(t, err)
		l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		shown, err := f.HeldTask(f.Ctx, f.OpenLease(t, l), "")
		kit.OK(t, err)
		if a := l.Answers[0]; string(l.Task.Input) != "null" || string(shown.Input) != "null" ||
			string(a.Input) != "null" || !a.InputEdited {
			t.Errorf("the run was given %s, is shown %s, and told %+v", l.Task.Input, shown.Input, a)
		}
		if got := f.WantState(t, task.TaskID, picket.TaskLeased); string(got.Input) != "1" ||
			string(got.CurrentInput()) != "null" {
			t.Errorf("the task shows %s, its next run is given %s", got.Input, got.CurrentInput())
		}
		_, err = f.RequestHelp(f.Ctx, f.OpenLease(t, l), picket.HelpRequest{Question: "?"})
		kit.OK(t, err)
		_, err = f.Answer(f.Ctx, kit.Operator, "handoff_"+strings.TrimPrefix(l.RunID, "run_"),
			picket.AnswerRequest{Answer: picket.RawJSON(`"go on"`)})
		kit.OK(t, err)
		l = f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		if a := l.Answers[1]; string(l.Task.Input) != "null" || a.InputEdited {
			t.Errorf("after an answer that leaves it: %s, %+v", l.Task.Input, a)
		}
	})
}

// The log tells what an input was and is, as far as a line of a log can.
func TestAnEditOfTheInputIsTold(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{Input: picket.RawJSON(`{"n":"\u00e4"}`)})
		long := `"` + strings.Repeat("ä", 300) + `"`
		for _, c := range []struct {
			req    picket.AnswerRequest
			edited bool
			change string
		}{
			{picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)}, false,
				`"before":{"state":"handoff"},"after":{"state":"queued"}`},
			{picket.AnswerRequest{Input: picket.RawJSON(long)}, true,
				`"before":{"state":"handoff","input":"{\"n\":\"\\u00e4\"}"},"after":{"state":"queued","input":"\"` +
					strings.Repeat("ä", 249) + `…"}`},
			{picket.AnswerRequest{ClearInput: true}, true,
				`"before":{"state":"handoff","input":"\"` + strings.Repeat("ä", 249) +
					`…"},"after":{"state":"queued","input":"null"}`},
		} {
			_, hid := f.askPerson(t, "a1", picket.HelpRequest{Question: "?"})
			_, err := f.Answer(f.Ctx, kit.Operator, hid, c.req)
			kit.OK(t, err)
			page, err := f.Events(f.Ctx, picket.EventQuery{Types: []string{picket.EventTaskAnswered}})
			kit.OK(t, err)
			told := string(page.Events[len(page.Events)-1].Data)
			if !strings.Contains(told, c.change) || strings.Contains(told, `"inputEdited":true`) != c.edited {
				t.Errorf("an answer with the input %s is told as %s, want %s", c.req.Input, told, c.change)
			}
		}
		f.MustSubmit(t, picket.TaskSpec{Priority: kit.Ptr(9)})
		_, hid := f.askPerson(t, "a2", picket.HelpRequest{Question: "?"})
		_, err := f.Answer(f.Ctx, kit.Operator, hid, picket.AnswerRequest{Input: picket.RawJSON(`1`)})
		kit.OK(t, err)
		page, err := f.Events(f.Ctx, picket.EventQuery{Types: []string{picket.EventTaskAnswered}})
		kit.OK(t, err)
		if told := string(page.Events[3].Data); !strings.Contains(told,
			`"before":{"state":"handoff","input":"null"},"after":{"state":"queued","input":"1"}`) {
			t.Errorf("of a task without an input: %s", told)
		}
	})
}

func TestAnEditedInputIsBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		hid := f.OpenHandoffs(t, 1)[0]
		_, err := f.Answer(f.Ctx, kit.Operator, hid,
			picket.AnswerRequest{Input: picket.RawJSON(`"` + strings.Repeat("a", picket.MaxPayload) + `"`)})
		kit.Refused(t, err, picket.CodeTooLarge)
		_, err = f.Answer(f.Ctx, kit.Operator, hid, picket.AnswerRequest{Input: picket.RawJSON(`null`)})
		kit.Refused(t, err, picket.CodeValidation)
		_, err = f.Answer(f.Ctx, kit.Operator, hid,
			picket.AnswerRequest{Input: picket.RawJSON(`"` + strings.Repeat("a", picket.MaxPayload-2) + `"`)})
		kit.OK(t, err)
	})
}
