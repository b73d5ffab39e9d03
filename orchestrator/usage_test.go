package orchestrator_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

func (f *fixture) wantUsage(t *testing.T, h picket.LeaseCredential, u picket.UsageReport, tokens int64,
	dollars string) picket.Usage {
	t.Helper()
	if u.Source == "" {
		u.Source = "claude"
	}
	got, err := f.ReportUsage(f.ctx, h, u)
	ok(t, err)
	if got.Charged != *worth(tokens, dollars) {
		t.Errorf("%+v charged %+v, want %d tokens and $%s", u, got.Charged, tokens, dollars)
	}
	return got
}

// Running totals are charged once, by session; what the LLM proxy has charged
// to the run is not charged again.
func TestUsageIsChargedByDifference(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(10_000, "1")})
		f.wantUsage(t, h, picket.UsageReport{Session: "a", Tokens: 100, USD: usd("0.10")}, 100, "0.10")
		// the answer was lost
		f.wantUsage(t, h, picket.UsageReport{Session: "a", Tokens: 100, USD: usd("0.10")}, 0, "0")
		f.wantUsage(t, h, picket.UsageReport{Session: "a", Tokens: 90, USD: usd("0.15")}, 0, "0.05")
		f.wantUsage(t, h, picket.UsageReport{Session: "b", Tokens: 30, USD: usd("0.01")}, 30, "0.01")
		f.wantUsage(t, h, picket.UsageReport{Source: "codex", Session: "a", Tokens: 1}, 1, "0")
		c := paidCall("0.30")
		c.Tool, c.Reserve.Tokens = "llm_anthropic", 500
		s := doneSettlement(f.mustReserve(t, h, c), "0.20")
		s.Cost.Tokens = 400
		f.mustSettle(t, s)
		f.wantUsage(t, h, picket.UsageReport{Session: "b", Tokens: 430, USD: usd("0.21")}, 0, "0") // that was it
		f.wantUsage(t, h, picket.UsageReport{Session: "b", Tokens: 440, USD: usd("0.22")}, 10, "0.01")
		f.wantEnvelope(t, task.TaskID, "1", "0.63", "0", "0.37")
		got := f.wantState(t, task.TaskID, picket.TaskLeased)
		if got.Spent.Tokens != 541 || got.CurrentRun.Spent != got.Spent {
			t.Errorf("task %+v, run %+v", got.Spent, got.CurrentRun.Spent)
		}

		// A session that a later run resumes goes on counting; a run's own does not.
		f.wantUsage(t, h, picket.UsageReport{Session: "s", Scope: "session", Tokens: 50}, 50, "0")
		_, err := f.Release(f.ctx, h, picket.Exit{Class: picket.ExitReleased})
		ok(t, err)
		next := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		f.wantUsage(t, next, picket.UsageReport{Session: "s", Scope: "session", Tokens: 70}, 20, "0")
		f.wantUsage(t, next, picket.UsageReport{Session: "a", Tokens: 100}, 100, "0")
		f.wantNoViolations(t)
	})
}

// What a run was charged for its models and did not report is not charged again
// when the next run, which goes on with the session, reports the whole of it.
func TestASessionsModelsAreChargedOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "1")})
		c := paidCall("0.20")
		c.Tool, c.Reserve.Tokens = "llm_messages", 100
		s := doneSettlement(f.mustReserve(t, h, c), "0.20")
		s.Cost.Tokens = 100
		f.mustSettle(t, s)
		_, err := f.Release(f.ctx, h, picket.Exit{Class: picket.ExitReleased})
		ok(t, err)
		next := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		f.wantUsage(t, next, picket.UsageReport{Session: "s", Scope: "session", Tokens: 100, USD: usd("0.20")}, 0, "0")
		f.wantUsage(t, next, picket.UsageReport{Session: "s", Scope: "session", Tokens: 130, USD: usd("0.25")}, 30,
			"0.05")
		// superseded
		f.wantUsage(t, h, picket.UsageReport{Session: "s", Scope: "session", Tokens: 100, USD: usd("0.20")}, 0, "0")
		f.wantEnvelope(t, task.TaskID, "1", "0.75", "0", "0.25")
		f.wantNoViolations(t)
	})
}

// It is evidence: taken after the end and never refused for want of money. What
// is beyond the grant locks the task's own envelope and is charged to nobody.
func TestUsageComesLateAndOverruns(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(100, "0.10"), Review: picket.ReviewByNone})
		got := f.wantUsage(t, h, picket.UsageReport{Tokens: 10, USD: usd("0.15")}, 10, "0.10")
		if !got.Overrun || got.Available.USD != usd("-0.05") || got.Unverified != *worth(0, "0.05") {
			t.Errorf("usage %+v", got)
		}
		if e := f.mustEnvelope(t, task.TaskID); !e.Locked || e.Unverified != *worth(0, "0.05") {
			t.Errorf("envelope %+v", e)
		}
		_, err := f.Reserve(f.ctx, h, paidCall("0.01"))
		refused(t, err, picket.CodeBudgetExceeded)
		_, err = f.Complete(f.ctx, h, picket.Completion{})
		ok(t, err)
		f.wantUsage(t, h, picket.UsageReport{Tokens: 12, USD: usd("0.20")}, 2, "0")
		page, err := f.Ledger(f.ctx, picket.LedgerQuery{TaskID: task.TaskID})
		ok(t, err)
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
			rest.Unverified != *worth(0, "0.05") || rest.Detail != "over_envelope" {
			t.Errorf("ledger %+v", page.Rows[2:])
		}
		if got := f.wantState(t, task.TaskID, picket.TaskCompleted); got.Spent.USD != usd("0.10") {
			t.Errorf("spent %s", got.Spent.USD)
		}
		f.jumpStoreTime(t, 15*time.Minute+time.Second)
		_, err = f.ReportUsage(f.ctx, h, picket.UsageReport{Source: "claude", Tokens: 13})
		refused(t, err, picket.CodeLeaseExpired)
		f.wantNoViolations(t)
	})
}

func TestUsageIsRefused(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.submitAndLease(t, picket.TaskSpec{})
		for _, u := range []picket.UsageReport{{}, {Source: "a b"}, {Source: "a", Session: "two words"},
			{Source: "a", Scope: "task"},
			{Source: "a", Tokens: -1}, {Source: "a", USD: -1}, {Source: "a", Tokens: 1 << 60}} {
			_, err := f.ReportUsage(f.ctx, h, u)
			refused(t, err, picket.CodeValidation)
		}
		for i := range 1000 {
			ok(t, f.raw.HSet(f.ctx, "pk:{default}:usage:"+h.RunID, fmt.Sprint("claude s", i), "1 1").Err())
		}
		f.wantUsage(t, h, picket.UsageReport{Session: "s7", Tokens: 2, USD: 1}, 1, "0")
		_, err := f.ReportUsage(f.ctx, h, picket.UsageReport{Source: "claude", Session: "one-more"})
		refused(t, err, picket.CodeValidation)
	})
}

// What an agent says of itself never grows beyond what is counted exactly.
func TestUsageBeyondWhatIsCountedIsRefused(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(2147483647000, "3000000")})
		most := picket.UsageReport{Source: "claude", Session: "a", Tokens: 2147483646999, USD: usd("3999999.999999999")}
		if got := f.wantUsage(t, h, most, most.Tokens, "3000000"); got.Unverified != *worth(0, "999999.999999999") {
			t.Errorf("usage %+v", got)
		}
		for _, session := range []string{"b", "c"} {
			most.Session = session
			_, err := f.ReportUsage(f.ctx, h, most)
			refused(t, err, picket.CodeValidation)
		}
		f.wantUsage(t, h, picket.UsageReport{Session: "b", Tokens: 1}, 1, "0")
		f.wantNoViolations(t)
	})
}

// Reports of one run that book something come at a bounded rate, and one that
// was refused is made up for by the next running total.
func TestReportsOfUsageHaveARate(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.submitAndLease(t,
			picket.TaskSpec{BudgetEnvelope: worth(1_000_000, "1"), LeaseWindowSeconds: ptr(3600)})
		taken := int64(0)
		for i := range int64(400) {
			_, err := f.ReportUsage(f.ctx, h, picket.UsageReport{Source: "claude", Tokens: i + 1})
			if err != nil {
				refused(t, err, picket.CodeRateLimited)
				break
			}
			taken++
		}
		if taken < 240 || taken > 300 {
			t.Errorf("%d reports were taken at once", taken)
		}
		f.jumpStoreTime(t, 5*time.Second)
		f.wantUsage(t, h, picket.UsageReport{Tokens: 1000}, 1000-taken, "0")
		f.wantNoViolations(t)
	})
}
