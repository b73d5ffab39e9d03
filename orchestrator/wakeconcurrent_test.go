package orchestrator_test

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Two servers that wake one session many times at once send one wake, and leave one prompt. It reserves money once,
// and gives it back when it ends.
func TestConcurrentWakesSendOne(t *testing.T) {
	where := rig.Real(t)
	f := openFixture(t, where)
	defer f.Close()
	second := f.OpenProcess(t, where, orchestrator.Config{Witness: t.TempDir()}).Engine("default")
	id, n := f.wakeable(t)
	const many = 200
	type outcome struct {
		d   picket.WakeDecision
		err error
	}
	done := make(chan outcome, many)
	for i := range many {
		e := f.Engine
		if i%2 == 1 {
			e = second
		}
		go func() {
			d, err := e.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{})
			done <- outcome{d, err}
		}()
	}
	c := f.nextCommand(t, n)
	kit.OK(t, f.result(n, c.CommandID, picket.PromptAccepted, ""))
	sent := 0
	for range many {
		out := <-done
		kit.OK(t, out.err)
		if out.d.Result == picket.WakeResultSent {
			sent++
		}
	}
	page, err := f.SessionPrompts(f.Ctx, id, 0, 50)
	kit.OK(t, err)
	if sent != 1 || len(page.Prompts) != 1 || !page.Prompts[0].Wake {
		t.Errorf("%d sent, prompts %+v", sent, page.Prompts)
	}
	left := func() budget.Money {
		s, err := f.PolicyStatus(f.Ctx, "ann", 0)
		kit.OK(t, err)
		return s.WakeBudget.Left
	}
	open := left()
	kit.OK(t, f.result(n, c.CommandID, picket.PromptAnswered, ""))
	if left()-open != 100_000_000 { // what one wake reserves
		t.Errorf("%d was left during the wake and %d after it", open, left())
	}
}
