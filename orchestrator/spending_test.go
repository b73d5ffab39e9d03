package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// spent makes a call of a task and settles it.
func (f *fixture) spent(t *testing.T, h picket.LeaseCredential, model, dollars string) {
	t.Helper()
	c := kit.PaidCall(dollars)
	c.Model = model
	f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, c), dollars))
}

// leaseOfRole submits a task and leases it to an agent of its role.
func (f *fixture) leaseOfRole(t *testing.T, spec picket.TaskSpec) (picket.Task, picket.LeaseCredential) {
	t.Helper()
	task := f.MustSubmit(t, spec)
	return task, f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: spec.Role}))
}

// mustSpending is a report of all days there are.
func (f *fixture) mustSpending(t *testing.T, by ...string) picket.SpendingReport {
	t.Helper()
	report, err := f.Spending(f.Ctx, picket.SpendingQuery{By: by, Since: "400d"})
	kit.OK(t, err)
	var sum picket.Spending
	for _, row := range report.Rows {
		sum = sum.Add(row.Spending)
	}
	if sum != report.Total && len(report.Rows) < picket.MaxSpendingRows {
		t.Errorf("the rows by %v add up to %+v, the total is %+v", by, sum, report.Total)
	}
	return report
}

// wantSpending holds a report against "name,... dollars" of each row.
func (f *fixture) wantSpending(t *testing.T, by []string, want ...string) {
	t.Helper()
	var got []string
	for _, row := range f.mustSpending(t, by...).Rows {
		got = append(got, fmt.Sprint(row.Names(by), row.Spent.USD))
	}
	if !slices.Equal(got, want) {
		t.Errorf("by %v: %q, want %q", by, got, want)
	}
}

// What was spent is reported by role, model and label, and the sums are those of the envelopes,
// also when nothing is left of the tasks.
func TestSpendingByRoleModelAndLabel(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		all := kit.Worth(1_000_000, "10")
		one, h := f.leaseOfRole(t, picket.TaskSpec{Role: "coder", BudgetEnvelope: all,
			Labels: map[string]string{"team": "web", "ticket": "7"}})
		f.spent(t, h, "", "0.01")
		f.spent(t, h, "gpt-5", "0.20")
		for range 2 { // charged as reserved, then corrected down
			c := f.MustReserve(t, h, kit.PaidCall("0.40"))
			f.MustSettle(t, kit.SettlementAs(c, picket.CallUncertain))
			f.MustSettle(t, kit.DoneSettlement(c, "0.30"))
			f.MustSettle(t, kit.SettlementAs(f.MustReserve(t, h, kit.PaidCall("5")), picket.CallUndispatched))
		}
		_, err := f.TopUp(f.Ctx, kit.Operator, one.TaskID, picket.TopUp{USD: kit.USD("3")})
		kit.OK(t, err)
		_, err = f.ReportUsage(f.Ctx, h,
			picket.UsageReport{Source: "claude", Session: "s", Tokens: 7, USD: kit.USD("0.02")})
		kit.OK(t, err)
		f.CancelAll(t)
		_, h = f.leaseOfRole(t, picket.TaskSpec{Role: "tester", BudgetEnvelope: all,
			Labels: map[string]string{"team": "="}})
		f.spent(t, h, "gpt-5", "1")
		f.CancelAll(t)
		_, h = f.leaseOfRole(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(10, "0.50")})
		f.spent(t, h, "claude", "0.50")
		_, err = f.ReportUsage(f.Ctx, h, picket.UsageReport{Source: "claude", Session: "s", USD: kit.USD("0.75")})
		kit.OK(t, err) // of which nothing can be charged
		f.CancelAll(t)

		check := func() {
			t.Helper()
			f.wantSpending(t, []string{"role"}, "[tester] 1", "[coder] 0.83", "[] 0.5")
			f.wantSpending(t, []string{"model"}, "[gpt-5] 1.2", "[] 0.63", "[claude] 0.5")
			f.wantSpending(t, []string{"role", "model"}, "[tester gpt-5] 1", "[coder ] 0.63", "[ claude] 0.5",
				"[coder gpt-5] 0.2", "[ ] 0")
			f.wantSpending(t, []string{"label:team"}, "[=] 1", "[web] 0.83", "[] 0.5")
			f.wantSpending(t, []string{"label:ticket"}, "[] 1.5", "[7] 0.83")
			f.wantSpending(t, []string{"label:absent"}, "[] 2.33")
			report := f.mustSpending(t)
			want := picket.Spending{
				Calls:      6, // one of them is corrected, and none for what never left
				Spent:      *kit.Worth(7, "2.33"),
				Uncertain:  *kit.Worth(0, "0.8"),
				Unverified: *kit.Worth(0, "0.75"),
				Returned:   *kit.Worth(0, "0.2"),
			}
			if report.Total != want || len(report.Rows) != 1 || !report.Complete {
				t.Errorf("%d rows, complete %v, in all %+v, want %+v", len(report.Rows), report.Complete, report.Total, want)
			}
			f.wantSpendingOfStats(t, report)
		}
		check()
		f.wantNoViolations(t)
		kit.OK(t, f.Raw.HIncrBy(f.Ctx, kit.Meta, "now", (2*time.Hour).Milliseconds()).Err())
		for range 2 {
			_, err = f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Hour}, 100)
			kit.OK(t, err)
		}
		if rows, err := f.Ledger(f.Ctx, picket.LedgerQuery{}); err != nil || len(rows.Rows) != 0 {
			t.Fatalf("the ledger has %d rows, %v", len(rows.Rows), err)
		}
		check()
	})
}

// wantSpendingOfStats holds a report of all days against the sums of the namespace, which are
// counted when money moves.
func (f *fixture) wantSpendingOfStats(t *testing.T, report picket.SpendingReport) {
	t.Helper()
	of := f.mustStats(t).Money
	if net := of.Spent.Sub(of.Returned); report.Total.Spent != net || report.Total.Returned != of.Returned {
		t.Errorf("the report has %+v, the namespace has spent %+v and %+v of it was returned", report.Total, of.Spent,
			of.Returned)
	}
}

// The ledger does not lose a row that was not counted.
func TestRetentionCountsSpendingFirst(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.leaseOfRole(t, picket.TaskSpec{Role: "coder"})
		for range 450 { // more than are counted at once
			f.spent(t, h, "", "0.001")
		}
		f.CancelAll(t)
		kit.OK(t, f.Raw.HIncrBy(f.Ctx, kit.Meta, "now", (2*time.Hour).Milliseconds()).Err())
		for range 2 {
			_, err := f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Hour}, 10)
			kit.OK(t, err)
		}
		_, err := f.Task(f.Ctx, h.TaskID)
		kit.Refused(t, err, picket.CodeNotFound)
		f.wantSpending(t, []string{"role"}, "[coder] 0.45")
		f.wantSpendingOfStats(t, f.mustSpending(t))
	})
}

// Retention that looks at a task before its charges are counted leaves the task for later.
func TestTheLedgerKeepsWhatIsNotCounted(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.leaseOfRole(t, picket.TaskSpec{Role: "coder"})
		f.spent(t, h, "", "0.10")
		f.CancelAll(t)
		kit.OK(t, f.Raw.HIncrBy(f.Ctx, kit.Meta, "now", (2*time.Hour).Milliseconds()).Err())
		// As if the charge were booked after the count and before the deletion: nothing new is found.
		plain := f.Store
		kit.RewriteEach(plain, func(name, source string) string {
			if name == "count_spending" {
				return strings.Replace(source, "local rows = call(", "local rows = {} or call(", 1)
			}
			return source
		})
		_, err := f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Hour}, 10)
		kit.OK(t, err)
		rows, err := f.Ledger(f.Ctx, picket.LedgerQuery{})
		kit.OK(t, err)
		if len(rows.Rows) != 1 {
			t.Errorf("the ledger has %d rows, want 1", len(rows.Rows))
		}
		if _, err = f.Task(f.Ctx, h.TaskID); err != nil {
			t.Errorf("the task of a charge that is not counted: %v", err)
		}
	})
}

// Many roles, models and labels of a day are counted together, and nothing is lost.
func TestSpendingOfManyNames(t *testing.T) {
	rig.SkipShort(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.leaseOfRole(t, picket.TaskSpec{Role: "coder", BudgetEnvelope: kit.Worth(0, "100")})
		for n := range 310 { // an agent names models as it likes
			f.spent(t, h, fmt.Sprint("m", n), "0.01")
		}
		report := f.mustSpending(t, "role", "model")
		if n := len(report.Rows); n != 301 || report.Rows[0].Model != picket.OtherSpending ||
			report.Rows[0].Role != "coder" || report.Rows[0].Spent.USD != kit.USD("0.10") {
			t.Errorf("%d rows, first %+v", n, report.Rows[0])
		}
		f.CancelAll(t)
		for n := range 310 {
			_, h = f.leaseOfRole(t, picket.TaskSpec{Role: fmt.Sprint("r", n),
				Labels: map[string]string{"ticket": fmt.Sprint(n), fmt.Sprint("l", n): "x", fmt.Sprint("k", n): "x",
					fmt.Sprint("j", n): "x"}})
			f.spent(t, h, "", "0.01")
			f.CancelAll(t)
		}
		report = f.mustSpending(t, "role")
		if n := len(report.Rows); n != 301 || report.Total.Spent.USD != kit.USD("6.20") {
			t.Errorf("%d roles, in all %+v", n, report.Total)
		}
		report = f.mustSpending(t, "label:ticket")
		if report.Complete || report.Total.Spent.USD != kit.USD("6.20") {
			t.Errorf("complete %v, in all %+v", report.Complete, report.Total)
		}
		n, err := f.Raw.HLen(f.Ctx, "pk:{default}:spending-by-label:"+report.Until).Result()
		if err != nil || n > 5000 {
			t.Errorf("the labels of a day have %d fields, %v", n, err)
		}
		f.wantSpendingOfStats(t, report)
	})
}

// A day is one of UTC, and what is booked later counts when it is booked.
func TestSpendingByDay(t *testing.T) {
	rig.SkipShort(t)
	synctest.Test(t, func(t *testing.T) {
		store, stop := rig.Memory()
		defer stop()
		f := openFixture(t, store)
		defer f.Close()
		_, h := f.leaseOfRole(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "5")})
		midnight := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
		first := midnight.AddDate(0, 0, -1).Format(time.DateOnly)
		time.Sleep(time.Hour)
		c := f.MustReserve(t, h, kit.PaidCall("0.40"))
		f.MustSettle(t, kit.SettlementAs(c, picket.CallUncertain))
		time.Sleep(time.Until(midnight) - time.Millisecond)
		f.spent(t, h, "", "0.10")
		time.Sleep(time.Millisecond)
		f.spent(t, h, "", "0.20")
		f.MustSettle(t, kit.DoneSettlement(c, "0.15"))
		second := midnight.Format(time.DateOnly)
		f.wantSpending(t, []string{"day"}, "["+first+"] 0.5", "["+second+"] -0.05")
		report, err := f.Spending(f.Ctx, picket.SpendingQuery{Since: "1d"})
		kit.OK(t, err)
		if report.Since != second || report.Until != second || report.Total.Returned != *kit.Worth(0, "0.25") {
			t.Errorf("today: %+v", report)
		}
		report, err = f.Spending(f.Ctx, picket.SpendingQuery{Since: first, Until: first})
		kit.OK(t, err)
		if report.Total.Spent.USD != kit.USD("0.50") || report.Total.Calls != 2 {
			t.Errorf("yesterday: %+v", report)
		}
		// Totals are kept for 400 days of store time.
		for _, days := range []int64{399, 2} {
			kit.OK(t, f.Raw.HIncrBy(f.Ctx, kit.Meta, "now", days*24*time.Hour.Milliseconds()).Err())
			_, err := f.ApplyRetention(f.Ctx, picket.Retention{}, 10)
			kit.OK(t, err)
			want := budget.Money(0)
			if days == 399 {
				want = kit.USD("0.45")
			}
			if got := f.mustSpending(t).Total.Spent.USD; got != want {
				t.Errorf("after %d more days the report has %s, want %s", days, got, want)
			}
		}
		if left, err := f.Raw.Keys(f.Ctx, "pk:{default}:spending*").Result(); err != nil || len(left) != 0 {
			t.Errorf("of deleted days there is still %v, %v", left, err)
		}
	})
}

// What cannot be reported is refused with its field.
func TestSpendingThatIsRefused(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for _, q := range []picket.SpendingQuery{
			{By: []string{"agent"}}, {By: []string{"role", "role"}}, {By: []string{"label:"}},
			{By: []string{"label:a b"}},
			{By: []string{"label:a", "role"}}, {By: []string{"label:a", "label:b"}}, {Since: "0d"}, {Since: "401d"},
			{Since: "-1d"},
			{Since: "yesterday"}, {Until: "7d"}, {Until: "2026-02-30"}, {Since: "2026-02-02", Until: "2026-02-01"},
			{Since: "2020-01-01", Until: "2026-02-01"},
		} {
			_, err := f.Spending(f.Ctx, q)
			if kit.Refused(t, err, picket.CodeValidation); t.Failed() {
				t.Fatalf("%+v", q)
			}
		}
	})
}
