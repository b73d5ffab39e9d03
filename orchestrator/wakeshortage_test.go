package orchestrator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A wake for which nothing is left names the setting, what is left and what to do. If a limit is 0, no later day
// allows it.
func TestAWakeWithoutMoneyNamesTheSetting(t *testing.T) {
	for _, c := range []struct {
		what, setting string
		limits        orchestrator.SessionLimits
		day           *budget.Envelope
		never         bool
		message       string
	}{
		{"no wakes", "agents.ann.wake_budget", limitsOf("5", "0", "2", "0.1"), nil, true,
			"because agents.ann.wake_budget is 0"},
		{"no sessions", "wake.budget", limitsOf("0", "5", "2", "0.1"), nil, true, "because wake.budget is 0"},
		{"no tasks", "budget.house", limitsOf("5", "5", "2", "0.1"), kit.Worth(1000, "0"), true,
			"because budget.house is 0"},
		{"wakes are spent", "agents.ann.wake_budget", limitsOf("5", "0.1", "2", "0.1"), nil, false,
			"the wakes of ann have spent all that they may on "},
		{"sessions are spent", "wake.budget", limitsOf("0.1", "5", "2", "0.1"), nil, false,
			"all agent sessions have spent all that they may on "},
		{"the day is spent", "budget.house", limitsOf("5", "5", "2", "0.1"), kit.Worth(1000, "0.1"), false,
			"all tasks and sessions have spent all that they may on "},
	} {
		onBothStores(t, func(t *testing.T, fx *fixture) {
			fx.Store.SetBudgets(c.day, nil)
			f := fx.within(t, c.limits).withSession(t)
			f.mustWritePolicy(t, "ann", wakePolicyText)
			f.meter(t)
			if !c.never {
				f.spendAWake(t)
				f.JumpStoreTime(t, time.Minute)
				f.meter(t)
			}
			d := f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonBudgetExceeded)
			if (d.NextAllowedAt == nil) != c.never || d.Shortage == nil || d.Shortage.Setting != c.setting ||
				d.Shortage.Left != 0 || !strings.Contains(d.Shortage.Message, c.message) ||
				!strings.Contains(d.Shortage.Remedy, "raise "+c.setting) ||
				strings.Contains(d.Shortage.Remedy, "Wait until ") == c.never {
				t.Errorf("%s: %+v, next %v", c.what, d.Shortage, d.NextAllowedAt)
			}
			s, err := f.PolicyStatus(f.Ctx, "ann", 0)
			kit.OK(t, err)
			if b := s.WakeBudget; b.Setting != c.setting || (b.RenewedAt == nil) != c.never || b.Left != 0 {
				t.Errorf("%s: %+v", c.what, b)
			}
		})
	}
}

// spendAWake wakes ann, and spends all that the wake may spend.
func (f *sessionFixture) spendAWake(t *testing.T) {
	t.Helper()
	held := f.wakeWithCapability(t, f.n)
	f.settle(t, f.MustReserve(t, held, modelCall("0.1")), "0.1")
	kit.OK(t, f.result(held.PromptID, picket.PromptAnswered, 0, ""))
}

// The refusal of a prompt names the limit of 0, and does not tell anybody to wait for another day.
func TestAPromptUnderALimitOfZeroNamesTheSetting(t *testing.T) {
	for setting, limits := range map[string]orchestrator.SessionLimits{
		"agents.ann.prompts_budget": limitsOf("5", "5", "0", "0.1"),
		"wake.budget":               limitsOf("0", "5", "5", "0.1"),
	} {
		onBothStores(t, func(t *testing.T, fx *fixture) {
			f := fx.within(t, limits).withSession(t)
			_, err := f.PromptSession(f.Ctx, kit.Operator, f.id, picket.PromptRequest{Text: "no"})
			kit.Refused(t, err, picket.CodeBudgetExceeded)
			refusal, _ := picket.RefusalOf(err)
			if !strings.HasSuffix(refusal.Message, "because "+setting+" is 0") ||
				strings.Contains(refusal.Remedy, "Wait") {
				t.Errorf("%s: %s %s", setting, refusal.Message, refusal.Remedy)
			}
		})
	}
}
