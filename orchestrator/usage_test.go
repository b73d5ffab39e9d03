package orchestrator_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func (f *fixture) wantUsage(t *testing.T, h picket.LeaseCredential, u picket.UsageReport, tokens int64,
	dollars string) picket.Usage {
	t.Helper()
	if u.Source == "" {
		u.Source = "claude"
	}
	got, err := f.ReportUsage(f.Ctx, h, u)
	kit.OK(t, err)
	if got.Charged != *kit.Worth(tokens, dollars) {
		t.Errorf("%+v charged %+v, want %d tokens and $%s", u, got.Charged, tokens, dollars)
	}
	return got
}

// Running totals are charged once, by session; what the LLM proxy has charged
// to the run is not charged again.
func TestUsageIsChargedByDifference(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(10_000, "1")})
		f.wantUsage(t, h, picket.UsageReport{Session: "a", Tokens: 100, USD: kit.USD("0.10")}, 100, "0.10")
		// the answer was lost
		f.wantUsage(t, h, picket.UsageReport{Session: "a", Tokens: 100, USD: kit.USD("0.10")}, 0, "0")
		f.wantUsage(t, h, picket.UsageReport{Session: "a", Tokens: 90, USD: kit.USD("0.15")}, 0, "0.05")
		f.wantUsage(t, h, picket.UsageReport{Session: "b", Tokens: 30, USD: kit.USD("0.01")}, 30, "0.01")
		f.wantUsage(t, h, picket.UsageReport{Source: "codex", Session: "a", Tokens: 1}, 1, "0")
		c := kit.PaidCall("0.30")
		c.Tool, c.Reserve.Tokens = "llm_anthropic", 500
		s := kit.DoneSettlement(f.MustReserve(t, h, c), "0.20")
		s.Cost.Tokens = 400
		f.MustSettle(t, s)
		f.wantUsage(t, h, picket.UsageReport{Session: "b", Tokens: 430, USD: kit.USD("0.21")}, 0, "0") // that was it
		f.wantUsage(t, h, picket.UsageReport{Session: "b", Tokens: 440, USD: kit.USD("0.22")}, 10, "0.01")
		f.wantEnvelope(t, task.TaskID, "1", "0.63", "0", "0.37")
		got := f.WantState(t, task.TaskID, picket.TaskLeased)
		if got.Spent.Tokens != 541 || got.CurrentRun.Spent != got.Spent {
			t.Errorf("task %+v, run %+v", got.Spent, got.CurrentRun.Spent)
		}

		// A session that a later run resumes goes on counting; a run's own does not.
		f.wantUsage(t, h, picket.UsageReport{Session: "s", Scope: "session", Tokens: 50}, 50, "0")
		_, err := f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitReleased})
		kit.OK(t, err)
		next := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		f.wantUsage(t, next, picket.UsageReport{Session: "s", Scope: "session", Tokens: 70}, 20, "0")
		f.wantUsage(t, next, picket.UsageReport{Session: "a", Tokens: 100}, 100, "0")
		f.wantNoViolations(t)
	})
}

// What a run was charged for its models and did not report is not charged again
// when the next run, which goes on with the session, reports the whole of it.
func TestASessionsModelsAreChargedOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		c := kit.PaidCall("0.20")
		c.Tool, c.Reserve.Tokens = "llm_messages", 100
		s := kit.DoneSettlement(f.MustReserve(t, h, c), "0.20")
		s.Cost.Tokens = 100
		f.MustSettle(t, s)
		_, err := f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitReleased})
		kit.OK(t, err)
		next := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		f.wantUsage(t, next, picket.UsageReport{Session: "s", Scope: "session", Tokens: 100, USD: kit.USD("0.20")}, 0,
			"0")
		f.wantUsage(t, next, picket.UsageReport{Session: "s", Scope: "session", Tokens: 130, USD: kit.USD("0.25")}, 30,
			"0.05")
		// superseded
		f.wantUsage(t, h, picket.UsageReport{Session: "s", Scope: "session", Tokens: 100, USD: kit.USD("0.20")}, 0, "0")
		f.wantEnvelope(t, task.TaskID, "1", "0.75", "0", "0.25")
		f.wantNoViolations(t)
	})
}

// It is evidence: it is accepted after the end and never refused for lack of money. What is beyond
// the grant locks the task's own envelope and is charged to nobody.
func TestUsageComesLateAndOverruns(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(100, "0.10"),
			Review: picket.ReviewByNone})
		got := f.wantUsage(t, h, picket.UsageReport{Tokens: 10, USD: kit.USD("0.15")}, 10, "0.10")
		if !got.Overrun || got.Available.USD != kit.USD("-0.05") || got.Unverified != *kit.Worth(0, "0.05") {
			t.Errorf("usage %+v", got)
		}
		if e := f.mustEnvelope(t, task.TaskID); !e.Locked || e.Unverified != *kit.Worth(0, "0.05") {
			t.Errorf("envelope %+v", e)
		}
		_, err := f.Reserve(f.Ctx, h, kit.PaidCall("0.01"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		_, err = f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		f.wantUsage(t, h, picket.UsageReport{Tokens: 12, USD: kit.USD("0.20")}, 2, "0")
		page, err := f.Ledger(f.Ctx, picket.LedgerQuery{TaskID: task.TaskID})
		kit.OK(t, err)
		var kinds []picket.LedgerKind
		for _, row := range page.Rows {
			kinds = append(kinds, row.Kind)
		}
		if want := []picket.LedgerKind{picket.LedgerUsage, picket.LedgerUnverified, picket.LedgerUsage,
			picket.LedgerUnverified}; !slices.Equal(kinds, want) {
			t.Fatalf("ledger %v, want %v", kinds, want)
		}
		if late, rest := page.Rows[2],
			page.Rows[3]; !late.Late || late.Tool != "claude" || !rest.Charged.IsZero() ||
			rest.Unverified != *kit.Worth(0, "0.05") || rest.Detail != "over_envelope" {
			t.Errorf("ledger %+v", page.Rows[2:])
		}
		if got := f.WantState(t, task.TaskID, picket.TaskCompleted); got.Spent.USD != kit.USD("0.10") {
			t.Errorf("spent %s", got.Spent.USD)
		}
		f.JumpStoreTime(t, 15*time.Minute+time.Second)
		_, err = f.ReportUsage(f.Ctx, h, picket.UsageReport{Source: "claude", Tokens: 13})
		kit.Refused(t, err, picket.CodeLeaseExpired)
		f.wantNoViolations(t)
	})
}

func TestUsageIsRefused(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		for _, u := range []picket.UsageReport{{}, {Source: "a b"}, {Source: "a", Session: "two words"},
			{Source: "a", Scope: "task"},
			{Source: "a", Tokens: -1}, {Source: "a", USD: -1}, {Source: "a", Tokens: 1 << 60}} {
			_, err := f.ReportUsage(f.Ctx, h, u)
			kit.Refused(t, err, picket.CodeValidation)
		}
		for i := range 1000 {
			kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:usage:"+h.RunID, fmt.Sprint("claude s", i), "1 1").Err())
		}
		f.wantUsage(t, h, picket.UsageReport{Session: "s7", Tokens: 2, USD: 1}, 1, "0")
		_, err := f.ReportUsage(f.Ctx, h, picket.UsageReport{Source: "claude", Session: "one-more"})
		kit.Refused(t, err, picket.CodeValidation)
	})
}

// What an agent says of itself never grows beyond what is counted exactly.
func TestUsageBeyondWhatIsCountedIsRefused(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(2147483647000, "3000000")})
		most := picket.UsageReport{Source: "claude", Session: "a", Tokens: 2147483646999,
			USD: kit.USD("3999999.999999999")}
		if got := f.wantUsage(t, h, most, most.Tokens, "3000000"); got.Unverified != *kit.Worth(0, "999999.999999999") {
			t.Errorf("usage %+v", got)
		}
		for _, session := range []string{"b", "c"} {
			most.Session = session
			_, err := f.ReportUsage(f.Ctx, h, most)
			kit.Refused(t, err, picket.CodeValidation)
		}
		f.wantUsage(t, h, picket.UsageReport{Session: "b", Tokens: 1}, 1, "0")
		f.wantNoViolations(t)
	})
}

// Reports of one run that book something come at a bounded rate, and one that
// was refused is made up for by the next running total.
func TestReportsOfUsageHaveARate(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.SubmitAndLease(t,
			picket.TaskSpec{BudgetEnvelope: kit.Worth(1_000_000, "1"), LeaseWindowSeconds: kit.Ptr(3600)})
		taken := int64(0)
		for i := range int64(400) {
			_, err := f.ReportUsage(f.Ctx, h, picket.UsageReport{Source: "claude", Tokens: i + 1})
			if err != nil {
				kit.Refused(t, err, picket.CodeRateLimited)
				break
			}
			taken++
		}
		if taken < 240 || taken > 300 {
			t.Errorf("%d reports were taken at once", taken)
		}
		f.JumpStoreTime(t, 5*time.Second)
		f.wantUsage(t, h, picket.UsageReport{Tokens: 1000}, 1000-taken, "0")
		f.wantNoViolations(t)
	})
}
