package orchestrator_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// working has a prompt accepted, and returns the credential of the session that works on it.
func (f *sessionFixture) working(t *testing.T, promptID string) picket.LeaseCredential {
	t.Helper()
	held := picket.LeaseCredential{Namespace: "default", PromptID: promptID, Secret: strings.Repeat("c", 64)}
	kit.OK(t, kit.SendResult(f.Ctx, f, kit.Operator, "a1", promptID, picket.CommandResult{Incarnation: f.n,
		State: picket.PromptAccepted, CapabilityHash: held.Secret}))
	return held
}

// modelCall is a call of a model that may cost dollars and 100 tokens.
func modelCall(dollars string) picket.CallRequest {
	c := kit.PaidCall(dollars)
	c.Tool, c.Model, c.Reserve.Tokens = "llm_anthropic", "m", 100
	return c
}

// settle settles a call at dollars and 40 tokens.
func (f *sessionFixture) settle(t *testing.T, r picket.Reservation, dollars string) {
	t.Helper()
	s := kit.DoneSettlement(r, dollars)
	s.Cost.Tokens = 40
	for range 2 { // a reply that was lost
		if got := f.MustSettle(t, s); got.Cost != s.Cost {
			t.Errorf("charged %v, want %v", got.Cost, s.Cost)
		}
	}
}

func (f *sessionFixture) wantMoney(t *testing.T, promptID, reserved, spent string) {
	t.Helper()
	p, err := f.SessionPrompt(f.Ctx, f.id, promptID, 0, 0)
	kit.OK(t, err)
	if p.Budget != kit.USD(reserved) || p.Spent.USD != kit.USD(spent) {
		t.Errorf("%s is reserved and %s spent, want %s and %s", p.Budget, p.Spent.USD, reserved, spent)
	}
	kit.CheckInvariants(t, f.Engine)
}

// A prompt reserves what it may spend, its calls are paid from that, and its end gives back the rest. A call that
// is settled after that is charged once.
func TestAPromptSpendsWhatItReserved(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		id := f.prompt(t, "one")
		f.wantMoney(t, id, "0.1", "0")
		held := f.working(t, id)
		call := modelCall("0.06")
		one := f.MustReserve(t, held, call)
		if again := f.MustReserve(t, held, call); again != one {
			t.Errorf("the same call is %+v, and was %+v", again, one)
		}
		call.Nonce = "another"
		_, err := f.Reserve(f.Ctx, held, call)
		kit.Refused(t, err, picket.CodeCallRunning)
		_, err = f.Reserve(f.Ctx, held, modelCall("0.05"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		refusal, _ := errors.AsType[*picket.Error](err)
		said := refusal.Remedy + fmt.Sprint(refusal.Facts)
		if !strings.Contains(said, "prompt_budget") || strings.Contains(said, "top-up") {
			t.Errorf("the refusal says %v", err)
		}
		f.settle(t, one, "0.02")
		f.wantMoney(t, id, "0.1", "0.02")
		funds, err := f.Funds(f.Ctx, held)
		kit.OK(t, err)
		if funds.Available.USD != kit.USD("0.08") {
			t.Errorf("%+v", funds)
		}
		_, err = f.Pause(f.Ctx, kit.Operator, false, "")
		kit.OK(t, err)
		_, err = f.Reserve(f.Ctx, held, modelCall("0.01"))
		kit.Refused(t, err, picket.CodePaused)
		_, err = f.Resume(f.Ctx, kit.Operator, "")
		kit.OK(t, err)
		late := f.MustReserve(t, held, modelCall("0.05"))
		kit.OK(t, f.result(id, picket.PromptAnswered, 0, "word"))
		_, err = f.Reserve(f.Ctx, held, modelCall("0.01"))
		kit.Refused(t, err, picket.CodeSessionCapability)
		f.wantMoney(t, id, "0", "0.02")
		f.settle(t, late, "0.03")
		f.wantMoney(t, id, "0", "0.05")
		page, err := f.Ledger(f.Ctx, picket.LedgerQuery{TaskID: id})
		kit.OK(t, err)
		if len(page.Rows) != 2 || page.Rows[1].Charged.USD != kit.USD("0.03") {
			t.Errorf("%+v", page.Rows)
		}
		spent := f.spentToday(t)
		if spent.Calls != 2 || spent.Spent != (budget.Envelope{Tokens: 80, USD: kit.USD("0.05")}) {
			t.Errorf("the day has %+v", spent)
		}
	})
}

// spentToday is what the totals of the day have.
func (f *sessionFixture) spentToday(t *testing.T) picket.Spending {
	t.Helper()
	_, err := f.CountSpending(f.Ctx)
	kit.OK(t, err)
	report, err := f.Spending(f.Ctx, picket.SpendingQuery{By: []string{picket.SpendingByRole, picket.SpendingByModel}})
	kit.OK(t, err)
	for _, row := range report.Rows {
		if row.Role != "coder" || row.Model != "m" {
			t.Errorf("row %+v", row)
		}
	}
	return report.Total
}

// limited is another process on the same store, with limits of sessions.
func (f *fixture) limited(t *testing.T, limits orchestrator.SessionLimits,
	change func(*orchestrator.Config)) *fixture {
	t.Helper()
	cfg := orchestrator.Config{Witness: t.TempDir(), SessionLimits: &limits}
	if change != nil {
		change(&cfg)
	}
	second := f.OpenProcess(t, f.RigStore, cfg)
	other := *f.Fixture
	other.Engine, other.Store = second.Engine("default"), second
	return &fixture{&other}
}

// within sets limits of sessions.
func (f *fixture) within(t *testing.T, limits orchestrator.SessionLimits) *fixture {
	t.Helper()
	kit.OK(t, f.Store.SetSessionLimits(limits))
	return f
}

// limitsOf are limits in dollars: of all, of wakes and of prompts of a day, and of one.
func limitsOf(all, wakes, prompts, each string) orchestrator.SessionLimits {
	return orchestrator.SessionLimits{Namespace: kit.USD(all), Others: orchestrator.SessionNameLimits{
		Wakes: kit.USD(wakes), Prompts: kit.USD(prompts), Each: kit.USD(each)}}
}

// dump is the whole store, without its clock.
func (f *sessionFixture) dump(t *testing.T) string {
	t.Helper()
	text, err := kit.Dump(f.Ctx, f.Raw, nil)
	kit.OK(t, err)
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "pk:{default}:meta ") // it has the time of the last step
	})
	return strings.Join(lines, "\n")
}

func (f *sessionFixture) meter(t *testing.T) {
	t.Helper()
	s := idleSession(f.id)
	s.Metered = true
	kit.OK(t, f.report("a1", f.n, s))
}

// A prompt is refused when nothing is left of a day, with the setting that limits it, and nothing is written. What
// a prompt gives back is there for the next one.
func TestPromptsStopWhenTheirNameHasSpentTheDay(t *testing.T) {
	testSpentDay(t, limitsOf("9", "9", "0.15", "0.1"), nil, "agents.ann.prompts_budget")
}

func TestPromptsStopWhenAllSessionsHaveSpentTheDay(t *testing.T) {
	testSpentDay(t, limitsOf("0.15", "9", "9", "0.1"), nil, "wake.budget")
}

func TestPromptsStopWhenTheDayIsSpent(t *testing.T) {
	testSpentDay(t, limitsOf("9", "9", "9", "0.1"), kit.Worth(1000, "0.15"), "budget.house")
}

func testSpentDay(t *testing.T, limits orchestrator.SessionLimits, day *budget.Envelope, setting string) {
	t.Helper()
	onBothStores(t, func(t *testing.T, fx *fixture) {
		fx.Store.SetBudgets(day, nil)
		f := fx.within(t, limits).withSession(t)
		f.meter(t)
		one, two := f.prompt(t, "one"), f.prompt(t, "two")
		f.wantMoney(t, two, "0.05", "0") // all that is left
		f.wantNoPrompt(t, setting)
		call := f.MustReserve(t, f.working(t, one), modelCall("0.1"))
		f.settle(t, call, "0.1")
		kit.OK(t, f.result(one, picket.PromptAnswered, 0, ""))
		f.wantNoPrompt(t, setting)
		kit.OK(t, f.result(two, picket.PromptRefused, 0, ""))
		three := f.prompt(t, "three")
		f.wantMoney(t, three, "0.05", "0")
		f.settle(t, f.MustReserve(t, f.working(t, three), modelCall("0.05")), "0.05")
		kit.OK(t, f.result(three, picket.PromptAnswered, 0, ""))
		f.wantNoPrompt(t, setting)
		kit.OK(t, f.report("a1", f.n, idleSession(f.id))) // not metered, and the day is spent all the same
		f.wantNoPrompt(t, setting)
	})
}

// wantNoPrompt checks that a prompt is refused for lack of money, and that nothing is written.
func (f *sessionFixture) wantNoPrompt(t *testing.T, setting string) {
	t.Helper()
	before := f.dump(t)
	_, err := f.PromptSession(f.Ctx, kit.Operator, f.id, picket.PromptRequest{Text: "no"})
	kit.Refused(t, err, picket.CodeBudgetExceeded)
	if after := f.dump(t); after != before {
		t.Errorf("a refusal has written: %q, and before: %q", after, before)
	}
	refusal, ok := errors.AsType[*picket.Error](err)
	if !ok || !strings.Contains(refusal.Message+refusal.Remedy, setting) {
		t.Errorf("the refusal is %v, and does not name %s", err, setting)
	}
	if ok && strings.Contains(refusal.Remedy, "top-up") && !strings.Contains(refusal.Remedy, "--usd 0.10") {
		t.Errorf("the remedy does not say how much is missing: %s", refusal.Remedy)
	}
}

// A session that is not metered is prompted although others have reserved all, and its calls have nothing.
func TestReservationsDoNotKeepAnUnmeteredSessionWaiting(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.within(t, limitsOf("9", "0.1", "0.1", "0.1")).withSession(t)
		one, two := f.prompt(t, "one"), f.prompt(t, "two")
		f.wantMoney(t, one, "0.1", "0")
		f.wantMoney(t, two, "0", "0")
		kit.OK(t, f.result(one, picket.PromptRefused, 0, ""))
		_, err := f.Reserve(f.Ctx, f.working(t, two), modelCall("0.01"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
	})
}

// A call that nobody settles is charged in full, and corrected if the truth comes.
func TestACallOfASessionThatIsLostIsCharged(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		id := f.prompt(t, "one")
		call := f.MustReserve(t, f.working(t, id), modelCall("0.06"))
		kit.OK(t, f.result(id, picket.PromptAnswered, 0, "")) // the deadline of the prompt may pass as well
		f.JumpStoreTime(t, 80*time.Second)
		n, err := f.SettleOverdueCalls(f.Ctx, 10)
		kit.OK(t, err)
		if n != 1 {
			t.Errorf("%d calls were overdue", n)
		}
		f.wantMoney(t, id, "0", "0.06")
		f.settle(t, call, "0.02")
		f.wantMoney(t, id, "0", "0.02")
		if spent := f.spentToday(t); spent.Spent.USD != kit.USD("0.02") || spent.Returned.USD != kit.USD("0.04") {
			t.Errorf("the day has %+v", spent)
		}
	})
}

// A capability of an earlier registration, of another prompt or of one whose deadline has passed pays for nothing.
func TestOldCapabilitiesSpendNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		held := f.working(t, f.prompt(t, "one"))
		before := f.dump(t)
		other := held
		other.Secret = strings.Repeat("d", 64)
		_, err := f.Reserve(f.Ctx, other, modelCall("0.01"))
		kit.Refused(t, err, picket.CodeSessionCapability)
		if f.dump(t) != before {
			t.Error("a refusal has written")
		}
		f.JumpStoreTime(t, 11*time.Minute)
		_, err = f.Reserve(f.Ctx, held, modelCall("0.01"))
		kit.Refused(t, err, picket.CodeSessionCapability)
	})
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		id := f.prompt(t, "one")
		held := f.working(t, id)
		_, err := f.Deregister(f.Ctx, kit.Operator, "a1", nil)
		kit.OK(t, err)
		f.sessionAgent(t, "a1") // the next registration
		_, err = f.Reserve(f.Ctx, held, modelCall("0.01"))
		kit.Refused(t, err, picket.CodeSessionCapability)
		kit.CheckInvariants(t, f.Engine)
	})
}

// Two servers and many prompts at once never reserve more than a day has.
func TestConcurrentPromptsNeverExceedTheDay(t *testing.T) {
	s := rig.Real(t)
	fx := openFixture(t, s)
	defer fx.Close()
	limits := limitsOf("0.35", "1", "9", "0.1")
	one, two := fx.limited(t, limits, nil), fx.limited(t, limits, nil)
	f := one.withSession(t)
	f.meter(t)
	var all sync.WaitGroup
	for i := range 12 {
		e := []*orchestrator.Engine{one.Engine, two.Engine}[i%2]
		all.Go(func() {
			_, err := e.PromptSession(f.Ctx, kit.Operator, f.id, picket.PromptRequest{Text: fmt.Sprint(i)})
			if err != nil {
				kit.Refused(t, err, picket.CodeBudgetExceeded)
			}
		})
	}
	all.Wait()
	page, err := f.SessionPrompts(f.Ctx, f.id, 0, 50)
	kit.OK(t, err)
	sum := budget.Money(0)
	for _, p := range page.Prompts {
		sum += p.Budget
	}
	if sum != kit.USD("0.35") || len(page.Prompts) != 4 {
		t.Errorf("%d prompts have reserved %s", len(page.Prompts), sum)
	}
	kit.CheckInvariants(t, f.Engine)
}

// A fleet that is woken although it is idle spends no more than its wakes may on each day of a weekend.
func TestTheWakeBudgetStopsAWeekendOfWakes(t *testing.T) {
	rig.SkipShort(t)
	onTheVirtualClock(t, func(t *testing.T, f *fixture) {
		fleet := f.newWeekendFleet(t, 1, 10)
		for _, list := range fleet.sessions {
			for i := range list {
				list[i].Metered = true
			}
		}
		whenIdle := heartbeat.Defaults()
		whenIdle.WhenIdle = true
		scheduler := f.limited(t, limitsOf("5", "0.5", "2", "0.1"),
			func(cfg *orchestrator.Config) { cfg.Wake = whenIdle })
		fleet.cost = "0.04"
		wakes := fleet.spend(t, scheduler.Engine)
		report, err := f.Spending(f.Ctx, picket.SpendingQuery{Since: "7d"})
		kit.OK(t, err)
		if len(report.Rows) < 3 || wakes < 36 {
			t.Errorf("%d wakes on %d days", wakes, len(report.Rows))
		}
		for _, day := range report.Rows {
			if day.Spent.USD > kit.USD("0.5") || day.Spent.USD < kit.USD("0.4") {
				t.Errorf("%s has spent %s", day.Day, day.Spent.USD)
			}
		}
	})
}

// A daily limit that is set later counts what sessions have spent before, in dollars and in tokens.
func TestALaterDailyLimitCountsTheSessions(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		id := f.prompt(t, "one")
		held := f.working(t, id)
		f.settle(t, f.MustReserve(t, held, modelCall("0.06")), "0.06")
		f.Store.SetBudgets(kit.Worth(1000, "0.2"), nil)
		f.prompt(t, "two")
		day, err := f.Envelope(f.Ctx, "house")
		kit.OK(t, err)
		if day.Available.USD != 0 || day.SpentInAll == nil || day.SpentInAll.USD != kit.USD("0.06") {
			t.Errorf("the day is %+v", day.Account)
		}
		many := modelCall("0.01")
		many.Reserve.Tokens = 5000
		_, err = f.Reserve(f.Ctx, held, many)
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		f.wantMoney(t, id, "0.1", "0.06")
	})
}

// A wake that was decided before the money was gone is decided again.
func TestAWakeIsNotSentWithoutMoney(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		none := strings.NewReplacer("5000000000", "0", "500000000", "0").Replace(kit.SessionLimitsArgument)
		facts, err := f.Records().Run(f.Ctx, "wake_facts", "ann", id, none, "")
		kit.OK(t, err)
		args := slices.Repeat([]any{"1"}, 24)
		args[0], args[1], args[2], args[4], args[21] = "ann", id, "", "prompt_01JZZZZZZZZZZZZZZZZZZZZZZZ", 9
		args[22], args[23] = none, ""
		list, _ := facts.([]any)
		args[13] = list[slices.Index(list, any("stamp"))+1]
		before := f.pendingWakes(t, n)
		_, err = f.Records().Run(f.Ctx, "record_wake", args...)
		kit.OK(t, err)
		if got := f.pendingWakes(t, n); len(before)+len(got) != 0 {
			t.Errorf("commands %+v", got)
		}
		broke := f.within(t, limitsOf("5", "0", "2", "0.1"))
		d := broke.wantWake(t, picket.WakeRequest{}, picket.WakeReasonBudgetExceeded)
		if !strings.HasPrefix(d.Envelope, "wake:ann:") {
			t.Errorf("%+v", d)
		}
		s, err := broke.PolicyStatus(f.Ctx, "ann", 0)
		kit.OK(t, err)
		if s.WakeBudget.Envelope != d.Envelope || s.WakeBudget.Left != 0 {
			t.Errorf("%+v", s.WakeBudget)
		}
	})
}

// The calls of a prompt that goes on after midnight use no more tokens than its own day has left.
func TestAPromptUsesTheTokensOfItsOwnDay(t *testing.T) {
	t.Run("Virtual", func(t *testing.T) { onTheVirtualClock(t, promptUsesTheTokensOfItsOwnDay) })
}

func promptUsesTheTokensOfItsOwnDay(t *testing.T, fx *fixture) {
	time.Sleep(24*time.Hour - 30*time.Second)
	f := fx.limited(t, orchestrator.DefaultSessionLimits(), func(cfg *orchestrator.Config) {
		cfg.DailyLimit = kit.Worth(1000, "9")
	}).withSession(t)
	id := f.prompt(t, "one")
	held := f.working(t, id)
	time.Sleep(time.Minute)
	call := modelCall("0.001")
	call.Reserve.Tokens = 400
	for range 2 {
		call.CallID += "c"
		f.MustReserve(t, held, call)
	}
	call.CallID += "c"
	_, err := f.Reserve(f.Ctx, held, call)
	kit.Refused(t, err, picket.CodeBudgetExceeded)
	kit.CheckInvariants(t, f.Engine)
}

// An adapter that sends heartbeats and reports no sessions does not keep the money of prompts that are overdue.
func TestAnOverduePromptGivesItsMoneyBack(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.limited(t, limitsOf("9", "9", "0.1", "0.1"), nil).withSession(t)
		f.meter(t)
		f.working(t, f.prompt(t, "one"))
		for range 14 {
			f.JumpStoreTime(t, 50*time.Second)
			_, err := f.Heartbeat(f.Ctx, kit.Operator, "a1", picket.Heartbeat{Status: picket.AgentActive,
				ClientTimestamp: picket.InstantOf(time.Now()), Incarnation: f.n})
			kit.OK(t, err)
			f.judge(t)
		}
		other := &sessionFixture{f.fixture, f.sessionAgent(t, "a2"), newSessionID()}
		kit.OK(t, f.report("a2", other.n, picket.SessionReport{SessionID: other.id, Kind: picket.SessionResumable,
			Preset: "claude", State: picket.SessionIdle, Metered: true}))
		other.prompt(t, "two")
	})
}

// A call that used more tokens than it had reserved does not lock its prompt: a day alone limits tokens.
func TestTokensDoNotLockAPrompt(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		id := f.prompt(t, "one")
		held := f.working(t, id)
		s := kit.DoneSettlement(f.MustReserve(t, held, modelCall("0.02")), "0.02")
		s.Cost.Tokens = 250
		f.MustSettle(t, s)
		f.settle(t, f.MustReserve(t, held, modelCall("0.03")), "0.03")
		f.wantMoney(t, id, "0.1", "0.05")
		_, err := f.Reserve(f.Ctx, held, modelCall("0.06"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
	})
}
