package orchestrator_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// wantUncharged reports usage that has to be recorded and charged to nobody: no
// envelope of the store may differ afterwards.
func (f *fixture) wantUncharged(t *testing.T, h picket.LeaseCredential, u picket.UsageReport, tokens int64,
	dollars, reason string) {
	t.Helper()
	before := f.envelopeRecords(t)
	if got := f.wantUsage(t, h, u, 0, "0"); got.Unverified != *kit.Worth(tokens, dollars) {
		t.Errorf("%+v: unverified %+v, want %d tokens and $%s", u, got.Unverified, tokens, dollars)
	}
	if after := f.envelopeRecords(t); !maps.Equal(before, after) {
		t.Errorf("%+v changed an envelope:\n%v\n%v", u, before, after)
	}
	page, err := f.Ledger(f.Ctx, picket.LedgerQuery{TaskID: h.TaskID, NewestFirst: true, Limit: 1})
	kit.OK(t, err)
	if row := page.Rows[0]; row.Kind != picket.LedgerUnverified || row.RunID != h.RunID ||
		row.Unverified != *kit.Worth(tokens, dollars) ||
		!row.Charged.IsZero() || row.Detail != reason {
		t.Errorf("ledger %+v", row)
	}
}

// envelopeRecords are the records of all envelopes, as they are stored.
func (f *fixture) envelopeRecords(t *testing.T) map[string]string {
	t.Helper()
	keys, err := f.Raw.Keys(f.Ctx, "pk:{default}:env:*").Result()
	kit.OK(t, err)
	all := map[string]string{}
	for _, key := range keys {
		fields, err := f.Raw.HGetAll(f.Ctx, key).Result()
		kit.OK(t, err)
		all[key] = fmt.Sprint(fields)
	}
	return all
}

// A superseded run that reports usage takes nothing from the present holder: no
// money, and no part of the total of a session that both of them name.
func TestASupersededRunChargesNobody(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, kit.Worth(1_000_000, "100"))
		_, old := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		f.wantUsage(t, old, picket.UsageReport{Session: "s", Scope: "session", Tokens: 10, USD: kit.USD("0.10")}, 10,
			"0.10")
		_, err := f.Release(f.Ctx, old, picket.Exit{Class: picket.ExitReleased})
		kit.OK(t, err)
		holder := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		f.wantUncharged(t, old, picket.UsageReport{USD: kit.USD("5")}, 0, "5", "superseded")
		f.wantUncharged(t, old, picket.UsageReport{Session: "s", Scope: "session", Tokens: 300, USD: kit.USD("0.70")},
			290,
			"0.60", "superseded")
		f.wantUsage(t, holder, picket.UsageReport{Session: "s", Scope: "session", Tokens: 200, USD: kit.USD("0.50")},
			190,
			"0.40")
		f.MustReserve(t, holder, kit.PaidCall("0.50"))
		if n := f.countEvents(t, picket.EventBudgetUnverified); n != 2 {
			t.Errorf("%d events, want 2", n)
		}
		stats, err := f.Stats(f.Ctx)
		kit.OK(t, err)
		if stats.Money.Unverified != *kit.Worth(290, "5.60") {
			t.Errorf("unverified in all %+v", stats.Money.Unverified)
		}
		f.wantNoViolations(t)
	})
}

// An ended subtask is charged to its parent up to what it was granted, and not
// a nano-dollar more: the parent is not locked.
func TestAnEndedSubtaskDoesNotLockItsParent(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		root, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		d, err := f.Delegate(f.Ctx, h, "one",
			picket.Subtask{
				Title:          "part",
				BudgetEnvelope: kit.Worth(10, "0.30"),
				Review:         picket.ReviewByNone,
				Priority:       kit.Ptr(9),
			})
		kit.OK(t, err)
		sub := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		_, err = f.Complete(f.Ctx, sub, picket.Completion{})
		kit.OK(t, err)
		// an honest agent, after mark_complete
		got := f.wantUsage(t, sub, picket.UsageReport{Session: "a", USD: kit.USD("0.20")}, 0, "0.20")
		if got.Available.USD != kit.USD("0.80") {
			t.Errorf("usage %+v", got)
		}
		if got = f.wantUsage(t, sub, picket.UsageReport{Session: "b", USD: kit.USD("3")}, 0,
			"0.10"); got.Unverified.USD != kit.USD("2.90") || got.Overrun {
			t.Errorf("usage %+v", got)
		}
		f.wantUsage(t, sub, picket.UsageReport{Session: "c", USD: kit.USD("3")}, 0, "0")
		f.wantEnvelope(t, d.TaskID, "0.30", "0", "0", "0.30")
		f.wantEnvelope(t, root.TaskID, "1", "0.70", "0", "0")
		f.MustReserve(t, h, kit.PaidCall("0.70"))
		f.wantNoViolations(t)
	})
}

// One dollar that several subtasks had one after the other is charged once: an
// open parent is never overdrawn, and a day pays what the root was granted.
func TestSubtasksThatSharedADollarChargeItOnce(t *testing.T) {
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprintf("root closed %v", closed), func(t *testing.T) {
			onBothStores(t, func(t *testing.T, plain *fixture) {
				f := plain.openWithDailyLimit(t, kit.Worth(1_000_000, "100"))
				root, h := f.SubmitAndLease(t,
					picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1"), Review: picket.ReviewByNone})
				var subs []picket.LeaseCredential
				for i := range 4 {
					_, err := f.Delegate(f.Ctx, h, fmt.Sprint(i),
						picket.Subtask{
							Title:          "part",
							BudgetEnvelope: kit.Worth(10, "0.90"),
							Review:         picket.ReviewByNone,
							Priority:       kit.Ptr(9),
						})
					kit.OK(t, err)
					sub := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
					_, err = f.Complete(f.Ctx, sub, picket.Completion{})
					kit.OK(t, err)
					subs = append(subs, sub)
				}
				if closed {
					_, err := f.Complete(f.Ctx, h, picket.Completion{})
					kit.OK(t, err)
				}
				f.wantUsage(t, subs[0], picket.UsageReport{USD: kit.USD("0.90")}, 0, "0.90")
				f.wantUsage(t, subs[1], picket.UsageReport{USD: kit.USD("0.90")}, 0, "0.10")
				f.wantUsage(t, subs[2], picket.UsageReport{USD: kit.USD("0.90")}, 0, "0")
				f.wantUsage(t, subs[3], picket.UsageReport{USD: kit.USD("0.90")}, 0, "0")
				if e := f.mustEnvelope(t, root.TaskID); e.Locked {
					t.Errorf("the root is locked: %+v", e)
				}
				if house := f.mustEnvelope(t, "house"); house.Available.USD != kit.USD("99") {
					t.Errorf("house %+v", house)
				}
				f.wantNoViolations(t)
			})
		})
	}
}

// A run that gave its task back, or whose key was revoked with its leases, locks
// nothing that the next holder needs.
func TestARunThatLostItsTaskLocksNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, asked := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		help, err := f.RequestHelp(f.Ctx, asked, picket.HelpRequest{Question: "which?"})
		kit.OK(t, err)
		f.wantUsage(t, asked, picket.UsageReport{USD: kit.USD("9")}, 0, "1")
		_, err = f.Answer(f.Ctx, kit.Operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`"this"`)})
		kit.OK(t, err)
		if got := f.mustEnvelope(t, asked.TaskID); !got.Unverified.IsZero() {
			t.Errorf("a task that waits for a person has %+v unverified", got.Unverified)
		}
		_, err = f.Cancel(f.Ctx, kit.Operator, asked.TaskID, "enough")
		kit.OK(t, err)

		_, old := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		_, err = f.Release(f.Ctx, old, picket.Exit{Class: picket.ExitReleased})
		kit.OK(t, err)
		if got := f.wantUsage(t, old, picket.UsageReport{USD: kit.USD("9")}, 0,
			"1"); got.Unverified.USD != kit.USD("8") ||
			got.Overrun {
			t.Errorf("usage %+v", got)
		}
		holder := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		_, err = f.TopUp(f.Ctx, kit.Idempotent("more"), old.TaskID, picket.TopUp{USD: kit.USD("0.50")})
		kit.OK(t, err)
		f.MustReserve(t, holder, kit.PaidCall("0.50"))
		f.wantNoViolations(t)
	})
}

// A cancelled task changes nothing of the day's envelope, however much its last run reports. The
// same holds for a task that was cancelled with its parent.
func TestACancelledTaskLeavesTheDayAlone(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, kit.Worth(1_000_000, "100"))
		root, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		_, err := f.Delegate(f.Ctx, h, "one",
			picket.Subtask{Title: "part", BudgetEnvelope: kit.Worth(10, "0.30"), Priority: kit.Ptr(9)})
		kit.OK(t, err)
		sub := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		_, err = f.Cancel(f.Ctx, kit.Operator, root.TaskID, "enough")
		kit.OK(t, err)
		for i := range 3 {
			f.wantUncharged(t, h, picket.UsageReport{Session: fmt.Sprint(i), USD: kit.USD("5")}, 0, "5",
				"task_cancelled")
			f.wantUncharged(t, sub, picket.UsageReport{Session: fmt.Sprint(i), USD: kit.USD("2")}, 0, "2",
				"task_cancelled")
		}
		if house := f.mustEnvelope(t, "house"); house.Available.USD != kit.USD("100") || house.Locked {
			t.Errorf("house %+v", house)
		}
		f.MustSubmit(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "100")})
		f.wantNoViolations(t)
	})
}

// A completed task charges the day up to what it was granted.
func TestACompletedTaskChargesTheDayUpToItsGrant(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, kit.Worth(1_000_000, "100"))
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1"),
			Review: picket.ReviewByNone})
		_, err := f.TopUp(f.Ctx, kit.Idempotent("a"), task.TaskID, picket.TopUp{USD: kit.USD("0.50")})
		kit.OK(t, err)
		_, err = f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		if got := f.wantUsage(t, h, picket.UsageReport{Tokens: 7, USD: kit.USD("4")}, 7,
			"1.50"); got.Unverified.USD != kit.USD("2.50") {
			t.Errorf("usage %+v", got)
		}
		if house := f.mustEnvelope(t, "house"); house.Available.USD != kit.USD("98.50") {
			t.Errorf("house %+v", house)
		}
		f.wantNoViolations(t)
	})
}

// The holder overdraws its own envelope, which is locked until a top-up covers
// that. Its parent pays what was granted when the task ends, and nothing else.
func TestAHolderOverdrawsItsOwnEnvelopeOnly(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		root, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		d, err := f.Delegate(f.Ctx, h, "one",
			picket.Subtask{
				Title:          "part",
				BudgetEnvelope: kit.Worth(10, "0.30"),
				Review:         picket.ReviewByNone,
				Priority:       kit.Ptr(9),
			})
		kit.OK(t, err)
		sub := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		if got := f.wantUsage(t, sub, picket.UsageReport{USD: kit.USD("0.50")}, 0, "0.30"); !got.Overrun ||
			got.Available.USD != kit.USD("-0.20") {
			t.Errorf("usage %+v", got)
		}
		_, err = f.Reserve(f.Ctx, sub, kit.PaidCall("0.01"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		_, err = f.Delegate(f.Ctx, sub, "two", picket.Subtask{Title: "part", BudgetEnvelope: kit.Worth(1, "0")})
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		_, err = f.TopUp(f.Ctx, kit.Idempotent("a"), d.TaskID, picket.TopUp{USD: kit.USD("0.25")})
		kit.OK(t, err)
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, sub, kit.PaidCall("0.05")), "0.05"))
		_, err = f.Reserve(f.Ctx, sub, kit.PaidCall("0.01"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		_, err = f.Complete(f.Ctx, sub, picket.Completion{})
		kit.OK(t, err)
		f.wantEnvelope(t, d.TaskID, "0.55", "0", "0", "0.55") // with the top-up that was granted
		f.wantEnvelope(t, root.TaskID, "1.25", "0.70", "0", "0")
		f.wantNoViolations(t)
	})
}

// What a report could not be charged, because a call held the money or there was
// none, is charged by the next report once there is. The ledger adds up.
func TestUnverifiedUsageIsChargedOnceThereIsMoney(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		call := f.MustReserve(t, h, kit.PaidCall("0.90"))
		report := picket.UsageReport{Session: "s", USD: kit.USD("0.50")}
		if got := f.wantUsage(t, h, report, 0, "0.10"); got.Unverified != *kit.Worth(0, "0.40") || !got.Overrun {
			t.Errorf("with a call under way: %+v", got)
		}
		f.wantUsage(t, h, report, 0, "0")
		settled, err := f.Settle(f.Ctx, kit.DoneSettlement(call, "0.10"))
		kit.OK(t, err)
		if settled.Available.USD != kit.USD("0.40") {
			t.Errorf("after the call the agent gets %+v", settled.Available)
		}
		if got := f.wantUsage(t, h, report, 0, "0.40"); !got.Unverified.IsZero() ||
			got.Available.USD != kit.USD("0.40") {
			t.Errorf("after the call: %+v", got)
		}
		report.USD = kit.USD("2")
		f.wantUsage(t, h, report, 0, "0.40")
		_, err = f.TopUp(f.Ctx, kit.Idempotent("a"), task.TaskID, picket.TopUp{USD: kit.USD("0.60")})
		kit.OK(t, err)
		_, err = f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		f.wantUsage(t, h, report, 0, "0.60") // of 1.10 that were unverified
		f.wantEnvelope(t, task.TaskID, "1.60", "0", "0", "1.60")
		if got := f.mustEnvelope(t, task.TaskID); got.Unverified != *kit.Worth(0, "0.50") {
			t.Errorf("left unverified: %+v", got.Unverified)
		}
		page, err := f.Ledger(f.Ctx, picket.LedgerQuery{TaskID: task.TaskID, Limit: 100})
		kit.OK(t, err)
		var charged, unverified budget.Money
		for _, row := range page.Rows {
			if row.Kind != picket.LedgerTopUp {
				charged, unverified = charged+row.Charged.USD, unverified+row.Unverified.USD
			}
		}
		if charged != kit.USD("1.60") || unverified != kit.USD("0.50") {
			t.Errorf("the rows add up to %v charged and %v unverified", charged, unverified)
		}
		f.wantNoViolations(t)
	})
}

// Without another report the end of the task charges what was unverified, from
// what a top-up or a late call has left. The parent gets back only the rest.
func TestTheEndOfATaskChargesWhatWasReported(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		root, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "9")})
		d, err := f.Delegate(f.Ctx, h, "one",
			picket.Subtask{
				Title:          "part",
				BudgetEnvelope: kit.Worth(10, "1"),
				Review:         picket.ReviewByNone,
				Priority:       kit.Ptr(9),
			})
		kit.OK(t, err)
		sub := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		f.wantUsage(t, sub, picket.UsageReport{USD: kit.USD("3")}, 0, "1")
		_, err = f.TopUp(f.Ctx, kit.Idempotent("a"), d.TaskID, picket.TopUp{USD: kit.USD("3")})
		kit.OK(t, err)
		call := f.MustReserve(t, sub, kit.PaidCall("0.80"))
		_, err = f.Complete(f.Ctx, sub, picket.Completion{})
		kit.OK(t, err)
		f.wantEnvelope(t, d.TaskID, "3.80", "0", "0.80", "3")
		f.MustSettle(t, kit.DoneSettlement(call, "0.10"))
		f.wantEnvelope(t, d.TaskID, "3.10", "0", "0", "3.10")
		f.wantEnvelope(t, root.TaskID, "12", "8.90", "0", "0")
		f.wantNoViolations(t)

		d, err = f.Delegate(f.Ctx, h, "two",
			picket.Subtask{
				Title:          "part",
				BudgetEnvelope: kit.Worth(10, "1"),
				Review:         picket.ReviewByNone,
				Priority:       kit.Ptr(9),
			})
		kit.OK(t, err)
		sub = f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		call = f.MustReserve(t, sub, kit.PaidCall("1"))
		f.wantUsage(t, sub, picket.UsageReport{USD: kit.USD("0.70")}, 0, "0") // the call holds it all
		_, err = f.Complete(f.Ctx, sub, picket.Completion{})
		kit.OK(t, err)
		f.MustSettle(t, kit.DoneSettlement(call, "0.20"))
		f.wantEnvelope(t, d.TaskID, "0.90", "0", "0", "0.90")
		f.wantEnvelope(t, root.TaskID, "12", "8", "0", "0")
		page, err := f.Ledger(f.Ctx, picket.LedgerQuery{TaskID: d.TaskID, NewestFirst: true, Limit: 1})
		kit.OK(t, err)
		if row := page.Rows[0]; row.Charged.USD != kit.USD("0.70") || row.Unverified.USD != kit.USD("-0.70") ||
			row.Detail != "charged_since" {
			t.Errorf("ledger %+v", row)
		}
		f.wantNoViolations(t)
	})
}

// One report counts up to ten times what the task was granted. Where that is
// nothing it is ten times the default envelope.
func TestAReportIsBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "0.10")})
		if got := f.wantUsage(t, h, picket.UsageReport{Tokens: 50_000_000, USD: kit.USD("1000")}, 0,
			"0.10"); got.Unverified != *kit.Worth(10_000_000, "0.90") {
			t.Errorf("usage %+v", got)
		}
		if got := f.wantUsage(t, h, picket.UsageReport{Tokens: 50_000_000, USD: kit.USD("1000")}, 0,
			"0"); !got.Unverified.IsZero() {
			t.Errorf("a repeat %+v", got)
		}
		f.wantNoViolations(t)
	})
}
