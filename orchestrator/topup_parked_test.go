package orchestrator_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// addParked parks a task whose last call was refused: $0.30 of $0.10.
func (f *fixture) addParked(t *testing.T, kind picket.HandoffKind) (task, handoff string) {
	t.Helper()
	made, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(10, "0.10")})
	_, err := f.Reserve(f.Ctx, h, kit.PaidCall("0.30"))
	kit.Refused(t, err, picket.CodeBudgetExceeded)
	asked, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "May I have more?", Kind: kind})
	kit.OK(t, err)
	return made.TaskID, asked.HandoffID
}

// wantParked checks what a top-up made of a hand-off, and the state of its task.
func (f *fixture) wantParked(t *testing.T, got picket.TopUpResult, handoff string, outcome picket.TopUpOutcome,
	state picket.TaskState) {
	t.Helper()
	if got.Handoff == nil || got.Handoff.HandoffID != handoff || got.Handoff.Outcome != outcome {
		t.Errorf("the top-up made of %s: %+v, want %s", handoff, got.Handoff, outcome)
	}
	task, err := f.Task(f.Ctx, got.ID)
	kit.OK(t, err)
	if task.State != state {
		t.Errorf("the task is %s, want %s", task.State, state)
	}
}

// A top-up of a task that asks for money answers it in the same step, once,
// and the next run is told.
func TestATopUpAnswersTheHandoff(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, handoff := f.addParked(t, picket.HandoffBudget)
		more := picket.TopUp{USD: kit.USD("0.20"), Reason: "approved by finance"}
		for range 2 { // the second time its reply was lost
			got, err := f.TopUp(f.Ctx, kit.Idempotent("a"), task, more)
			kit.OK(t, err)
			f.wantParked(t, got, handoff, picket.TopUpAnswered, picket.TaskQueued)
		}
		f.wantEnvelope(t, task, "0.30", "0.30", "0", "0")
		if n := f.countEvents(t, picket.EventTaskAnswered); n != 1 {
			t.Errorf("%d answers", n)
		}
		shown, err := f.Handoff(f.Ctx, handoff)
		kit.OK(t, err)
		if shown.State != picket.HandoffAnswered || shown.Answer == nil ||
			string(shown.Answer.Answer) != `"topped up by $0.20"` || shown.Answer.By != kit.Idempotent("a").Actor {
			t.Errorf("the hand-off is %s, answered %+v", shown.State, shown.Answer)
		}
		l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		if l.TaskID != task || len(l.Answers) != 1 || strings.Contains(string(l.Answers[0].Answer), "finance") {
			t.Errorf("the next run gets %+v", l.Answers)
		}
		f.MustReserve(t, f.OpenLease(t, l), kit.PaidCall("0.30"))
		got, err := f.TopUp(f.Ctx, kit.Idempotent("b"), task, more)
		kit.OK(t, err)
		if got.Handoff != nil {
			t.Errorf("a task that runs has the hand-off %+v", got.Handoff)
		}
		f.wantNoViolations(t)
	})
}

// It stays parked where the call would be refused again, where the operator only
// adds, where it asks for something else, and where another envelope is topped up.
func TestATopUpThatAnswersNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, handoff := f.addParked(t, picket.HandoffBudget)
		got, err := f.TopUp(f.Ctx, kit.Operator, task, picket.TopUp{USD: kit.USD("0.15"), Tokens: 1})
		kit.OK(t, err)
		f.wantParked(t, got, handoff, picket.TopUpTooSmall, picket.TaskHandoff)
		if got.Handoff != nil && got.Handoff.Lacking != *kit.Worth(0, "0.05") {
			t.Errorf("lacking is %+v", got.Handoff.Lacking)
		}
		got, err = f.TopUp(f.Ctx, kit.Operator, task, picket.TopUp{USD: kit.USD("0.05"), KeepParked: true})
		kit.OK(t, err)
		f.wantParked(t, got, handoff, picket.TopUpKeptParked, picket.TaskHandoff)
		got, err = f.TopUp(f.Ctx, kit.Operator, task, picket.TopUp{Tokens: 1}) // now there is enough
		kit.OK(t, err)
		f.wantParked(t, got, handoff, picket.TopUpAnswered, picket.TaskQueued)
		f.CancelAll(t)

		for _, kind := range []picket.HandoffKind{picket.HandoffQuestion, picket.HandoffApproval} {
			task, handoff = f.addParked(t, kind)
			got, err = f.TopUp(f.Ctx, kit.Operator, task, picket.TopUp{USD: kit.USD("1")})
			kit.OK(t, err)
			f.wantParked(t, got, handoff, picket.TopUpOtherReason, picket.TaskHandoff)
		}
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		_, err = f.Fail(f.Ctx, h, "cannot", false)
		kit.OK(t, err)
		got, err = f.TopUp(f.Ctx, kit.Operator, h.TaskID, picket.TopUp{USD: kit.USD("1")})
		kit.OK(t, err)
		if got.Handoff == nil || got.Handoff.Kind != picket.HandoffEscalation ||
			got.Handoff.Outcome != picket.TopUpOtherReason {
			t.Errorf("an escalation: %+v", got.Handoff)
		}
		f.wantNoViolations(t)
	})
}

// A refusal counts until as much was admitted. What the run asks for later is another amount.
func TestATopUpForgetsWhatWasAdmitted(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		made, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(10, "0.10")})
		_, err := f.Reserve(f.Ctx, h, kit.PaidCall("0.30"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		_, err = f.TopUp(f.Ctx, kit.Operator, made.TaskID, picket.TopUp{USD: kit.USD("0.20")})
		kit.OK(t, err)
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.30")), "0.30"))
		asked, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "more?", Kind: picket.HandoffBudget})
		kit.OK(t, err)
		got, err := f.TopUp(f.Ctx, kit.Operator, made.TaskID, picket.TopUp{USD: kit.USD("0.05")})
		kit.OK(t, err)
		f.wantParked(t, got, asked.HandoffID, picket.TopUpAnswered, picket.TaskQueued)
	})
}

// What an overrun took is made good before the task goes on.
func TestATopUpOfALockedEnvelopeAnswersNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(10, "0.10")})
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.10")), "0.50"))
		asked, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "more?", Kind: picket.HandoffBudget})
		kit.OK(t, err)
		got, err := f.TopUp(f.Ctx, kit.Operator, task.TaskID, picket.TopUp{USD: kit.USD("0.30")})
		kit.OK(t, err)
		f.wantParked(t, got, asked.HandoffID, picket.TopUpTooSmall, picket.TaskHandoff)
		got, err = f.TopUp(f.Ctx, kit.Operator, task.TaskID, picket.TopUp{USD: kit.USD("0.10")})
		kit.OK(t, err)
		f.wantParked(t, got, asked.HandoffID, picket.TopUpAnswered, picket.TaskQueued)
	})
}

// Of two operators who act on the same hand-off, one adds and answers. The other is told who
// has, and adds nothing.
func TestTwoOperatorsTopUpAHandoff(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, handoff := f.addParked(t, picket.HandoffBudget)
		operators, errs := []string{"key_a", "key_b"}, make([]error, 2)
		var both sync.WaitGroup
		for i, who := range operators {
			both.Go(func() {
				by := kit.Idempotent("of " + who)
				by.Actor = who
				_, errs[i] = f.TopUp(f.Ctx, by, task, picket.TopUp{USD: kit.USD("0.20"), HandoffID: handoff})
			})
		}
		both.Wait()
		winner := 0
		if errs[0] != nil {
			winner = 1
		}
		kit.OK(t, errs[winner])
		no, _ := picket.RefusalOf(errs[1-winner])
		if no == nil || no.Code != picket.CodeStateConflict || no.Facts["by"] != operators[winner] {
			t.Errorf("the second operator is told %v", errs[1-winner])
		}
		f.wantEnvelope(t, task, "0.30", "0.30", "0", "0")

		f.CancelAll(t)

		// A hand-off that a person has answered is not topped up either, nor one of another task.
		task, handoff = f.addParked(t, picket.HandoffBudget)
		_, err := f.TopUp(f.Ctx, kit.Operator, f.MustSubmit(t, picket.TaskSpec{}).TaskID,
			picket.TopUp{USD: kit.USD("0.20"), HandoffID: handoff})
		kit.Refused(t, err, picket.CodeValidation)
		_, err = f.TopUp(f.Ctx, kit.Operator, task, picket.TopUp{USD: kit.USD("0.20"), HandoffID: "x"})
		kit.Refused(t, err, picket.CodeValidation)
		_, err = f.Answer(f.Ctx, kit.Operator, handoff, picket.AnswerRequest{Answer: picket.RawJSON(`"no"`)})
		kit.OK(t, err)
		_, err = f.TopUp(f.Ctx, kit.Operator, task, picket.TopUp{USD: kit.USD("0.20"), HandoffID: handoff})
		kit.Refused(t, err, picket.CodeStateConflict)
		f.wantEnvelope(t, task, "0.10", "0.10", "0", "0")
		_, err = f.Cancel(f.Ctx, kit.Operator, task, "no")
		kit.OK(t, err)
		_, err = f.TopUp(f.Ctx, kit.Operator, task, picket.TopUp{USD: kit.USD("0.20"), HandoffID: handoff})
		kit.Refused(t, err, picket.CodeTaskClosed)
	})
}
