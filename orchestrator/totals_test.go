package orchestrator_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// leaseOf submits a task and leases it to an agent of its role.
func (f *fixture) leaseOf(t *testing.T, spec picket.TaskSpec) picket.LeaseCredential {
	t.Helper()
	f.MustSubmit(t, spec)
	return f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: spec.Role}))
}

// mustTotals counts what is left to count, a few at a time, and reads the totals.
func (f *fixture) mustTotals(t *testing.T) orchestrator.Totals {
	t.Helper()
	rounds, n := 0, 2
	for ; n >= 2 && rounds < 50; rounds++ {
		var err error
		n, err = f.CountEnded(f.Ctx, 2)
		kit.OK(t, err)
	}
	if n >= 2 {
		t.Fatalf("there is still something to count after %d rounds", rounds)
	}
	totals, err := f.Totals(f.Ctx)
	kit.OK(t, err)
	return totals
}

// Each end of a run is counted once, under its class and role, with its duration, in however
// many rounds and by however many servers.
func TestEndsAreCountedOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		ends := map[orchestrator.RunEnd]int64{}
		end := func(role string, class picket.ExitClass, by func(h picket.LeaseCredential) error) {
			t.Helper()
			h := f.leaseOf(t, picket.TaskSpec{Role: role})
			// it began 20 s ago
			kit.OK(t, f.Raw.HIncrBy(f.Ctx, "pk:{default}:run:"+h.RunID, "started", -20_000).Err())
			kit.OK(t, by(h))
			ends[orchestrator.RunEnd{Class: class, Role: role}]++
		}
		release := func(class picket.ExitClass) func(picket.LeaseCredential) error {
			return func(h picket.LeaseCredential) error {
				_, err := f.Release(f.Ctx, h, picket.Exit{Class: class})
				return err
			}
		}
		for range 3 {
			end("coder", picket.ExitCrash, release(picket.ExitCrash))
		}
		end("coder", picket.ExitTimeout, release(picket.ExitTimeout))
		end("", picket.ExitNoResult, release(picket.ExitNoResult))
		end("tester", picket.ExitSuccess, func(h picket.LeaseCredential) error {
			_, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
			return err
		})
		end("tester", picket.ExitAgentFailed, func(h picket.LeaseCredential) error {
			_, err := f.Fail(f.Ctx, h, "no", false)
			return err
		})
		end("tester", picket.ExitCancelled, func(h picket.LeaseCredential) error {
			_, err := f.Cancel(f.Ctx, kit.Operator, h.TaskID, "")
			return err
		})
		var reapers sync.WaitGroup
		for range 4 {
			reapers.Go(func() {
				if _, err := f.CountEnded(f.Ctx, 1); err != nil {
					t.Error(err)
				}
			})
		}
		reapers.Wait()
		before := f.mustTotals(t)
		got := f.mustTotals(t)
		if fmt.Sprint(got) != fmt.Sprint(before) {
			t.Errorf("counted again: %+v, then %+v", before, got)
		}
		if fmt.Sprint(got.Ended) != fmt.Sprint(ends) {
			t.Errorf("%+v ended, want %+v", got.Ended, ends)
		}
		took := got.RunSeconds["coder"]
		if took.Count != 4 || took.Sum < 80 || took.Below[10] != 0 || took.Below[60] != 4 || took.Below[21600] != 4 {
			t.Errorf("the runs of coder took %+v", took)
		}
		if fmt.Sprint(got.Roles) != "[coder tester]" {
			t.Errorf("the roles are %v", got.Roles)
		}
	})
}

// What is spent is counted by role and model, and the sums are those of the whole namespace.
func TestSpendingIsCountedByRoleAndModel(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		h := f.leaseOf(t, picket.TaskSpec{Role: "coder", BudgetEnvelope: kit.Worth(1_000_000, "5")})
		call := kit.PaidCall("0.50")
		call.Model = "opus\x1b[31m 5"
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, call), "0.30"))
		call = kit.PaidCall("0.40")
		call.Model = "sonnet"
		unknown := f.MustReserve(t, h, call)
		f.MustSettle(t, kit.SettlementAs(unknown, picket.CallUncertain))
		f.mustTotals(t)
		f.MustSettle(t, kit.DoneSettlement(unknown, "0.10")) // gives back
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.20")), "0.20"))
		_, err := f.ReportUsage(f.Ctx, h,
			picket.UsageReport{Source: "claude", Session: "s", Tokens: 7, USD: kit.USD("0.03")})
		kit.OK(t, err)
		_, err = f.TopUp(f.Ctx, kit.Operator, h.TaskID, picket.TopUp{USD: kit.USD("1")})
		kit.OK(t, err)
		got := f.mustTotals(t)
		for who, dollars := range map[orchestrator.Spender]string{
			{Role: "coder", Model: "opus[31m 5"}: "0.30",
			{Role: "coder", Model: "sonnet"}:     "0.40",
			{Role: "coder"}:                      "0.23",
		} {
			if got.Spent[who].USD != kit.USD(dollars) {
				t.Errorf("%+v spent %+v, want %s", who, got.Spent[who], dollars)
			}
		}
		if back := got.Returned[orchestrator.Spender{Role: "coder", Model: "sonnet"}].USD; back != kit.USD("0.30") {
			t.Errorf("%s came back", back)
		}
		var spent, returned budget.Envelope
		for _, amount := range got.Spent {
			spent = budget.Envelope{Tokens: spent.Tokens + amount.Tokens, USD: spent.USD.Add(amount.USD)}
		}
		for _, amount := range got.Returned {
			returned = budget.Envelope{Tokens: returned.Tokens + amount.Tokens, USD: returned.USD.Add(amount.USD)}
		}
		if whole := f.mustStats(t).Money; spent != whole.Spent || returned != whole.Returned {
			t.Errorf("by role %+v and %+v back, in all %+v", spent, returned, whole)
		}
	})
}

// Agents choose the roles of what they delegate. However many they choose, the number of names is
// bounded, and nothing is left out.
func TestNamesOfRolesAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		const roles = orchestrator.MaxCountedRoles + 5
		for i := range roles {
			h := f.leaseOf(t, picket.TaskSpec{Role: fmt.Sprintf("role%02d", i)})
			_, err := f.Fail(f.Ctx, h, "no", false)
			kit.OK(t, err)
		}
		got := f.mustTotals(t)
		failed := func(role string) int64 {
			return got.Ended[orchestrator.RunEnd{Class: picket.ExitAgentFailed, Role: role}]
		}
		if len(got.Roles) != orchestrator.MaxCountedRoles || failed("role00") != 1 ||
			failed(orchestrator.OtherName) != 5 ||
			failed(fmt.Sprintf("role%02d", roles-1)) != 0 {
			t.Errorf("%d roles, %+v", len(got.Roles), got.Ended)
		}
		waited := f.LeaseMetrics().QueueWait
		if len(waited) != orchestrator.MaxCountedRoles+2 || waited[orchestrator.OtherName].Count != 5 {
			t.Errorf("%d roles waited: %+v", len(waited), waited)
		}
	})
}
