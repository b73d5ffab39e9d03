package orchestrator_test

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A wake that nobody has accepted gives its money to the prompt of a person, and so does a prompt that is overdue.
func TestWhatEndsGivesItsMoneyToThePrompt(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.limited(t, limitsOf("0.1", "0.1", "0.1", "0.1"), nil)
		id, n := f.wakeable(t)
		s := idleSession(id)
		s.Metered = true
		kit.OK(t, f.report("a1", n, s))
		done := make(chan picket.WakeReason, 1)
		go func() {
			d, err := f.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{})
			kit.OK(t, err)
			done <- d.Reason
		}()
		f.nextCommand(t, n)
		p, err := f.PromptSession(f.Ctx, kit.Operator, id, picket.PromptRequest{Text: "one"})
		kit.OK(t, err)
		if got := <-done; got != picket.WakeReasonSessionPromptActiveRace || p.Budget != kit.USD("0.1") {
			t.Errorf("the wake is %s, and the prompt has %s", got, p.Budget)
		}
		seconds := 10
		overdue := picket.PromptRequest{Text: "two", TimeoutSeconds: &seconds}
		kit.OK(t, f.result(n, p.PromptID, picket.PromptRefused, ""))
		p, err = f.PromptSession(f.Ctx, kit.Operator, id, overdue)
		kit.OK(t, err)
		before := p.Budget
		f.JumpStoreTime(t, 11*time.Second) // nobody has written down that it is over
		p, err = f.PromptSession(f.Ctx, kit.Operator, id, overdue)
		kit.OK(t, err)
		if p.Budget != before {
			t.Errorf("the next prompt has %s, and the one before had %s", p.Budget, before)
		}
		kit.CheckInvariants(t, f.Engine)
	})
}
