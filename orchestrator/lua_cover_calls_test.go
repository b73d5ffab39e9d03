package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// coverCalls takes the ways of a call that costs.
func coverCalls(t *testing.T, f *fixture) {
	task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "1")})
	keyed := sameCall("one", "h1", "0.10")
	f.callTwice(t, func() error { _, err := f.Reserve(f.ctx, h, keyed); return err })
	other := keyed
	other.Nonce = "other"
	_, err := f.Reserve(f.ctx, h, other)
	refused(t, err, picket.CodeCallRunning)
	other.Hash = "h2"
	_, err = f.Reserve(f.ctx, h, other)
	refused(t, err, picket.CodeIdempotencyConflict)
	s := picket.Settlement{
		CallID:  keyed.CallID,
		TaskID:  task.TaskID,
		Nonce:   keyed.Nonce,
		Outcome: picket.CallDone,
		Cost:    budget.Envelope{USD: usd("0.05")},
		Result:  picket.RawJSON(`1`),
	}
	f.callTwice(t, func() error { _, err := f.Settle(f.ctx, s); return err })
	got := f.mustReserve(t, h, keyed)
	if got.Replay == nil {
		t.Fatal("a call that was made is made again")
	}
	ok(t, f.raw.Del(f.ctx, "pk:{default}:result:"+task.TaskID+":"+keyed.CallID).Err())
	_, err = f.Reserve(f.ctx, h, keyed)
	refused(t, err, picket.CodeStateConflict)
	s.Nonce = "nobody's"
	_, err = f.Settle(f.ctx, s)
	refused(t, err, picket.CodeNotFound)

	twice := sameCall("two", "h1", "0.10")
	f.mustSettle(t, settlementAs(f.mustReserve(t, h, twice), picket.CallUndispatched))
	f.mustSettle(t, settlementAs(f.mustReserve(t, h, twice), picket.CallUncertain))
	_, err = f.Reserve(f.ctx, h, twice)
	refused(t, err, picket.CodeStateConflict)
	true2 := picket.Settlement{
		CallID:  twice.CallID,
		TaskID:  task.TaskID,
		Nonce:   twice.Nonce,
		Outcome: picket.CallDone,
		Cost:    budget.Envelope{USD: usd("0.20")},
		Result:  picket.RawJSON(`1`),
	}
	f.mustSettle(t, true2) // a true figure at last
	llm := paidCall("0.01")
	llm.Tool, llm.Reserve.Tokens = "llm_messages", 10
	f.mustSettle(t, doneSettlement(f.mustReserve(t, h, llm), "0.009"))
	f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.50")), "0.9")) // overrun: locked, and warned
	for range 22 {
		_, err = f.Reserve(f.ctx, h, paidCall("0.01"))
		refused(t, err, picket.CodeBudgetExceeded)
	}
	probe := paidCall("0.01")
	probe.Probe = true
	_, err = f.Reserve(f.ctx, h, probe)
	refused(t, err, picket.CodeBudgetExceeded)
	f.mustReserve(t, h, paidCall("0"))
	_, err = f.TopUp(f.ctx, operator, task.TaskID, picket.TopUp{USD: usd("5")})
	ok(t, err)

	// What acts outside: near the end of the lease, past it, and beyond.
	act := paidCall("0.01")
	act.Effects = picket.EffectsExternal
	f.mustReserve(t, h, act)
	_, err = f.Pause(f.ctx, operator, false, "r")
	ok(t, err)
	_, err = f.Reserve(f.ctx, h, paidCall("0"))
	refused(t, err, picket.CodePaused)
	_, err = f.Resume(f.ctx, operator, "r")
	ok(t, err)
	_, err = f.Renew(f.ctx, h)
	ok(t, err)
	f.jumpStoreTime(t, 280*time.Second)
	act = paidCall("0.01")
	act.Effects = picket.EffectsExternal
	_, err = f.Reserve(f.ctx, h, act)
	refused(t, err, picket.CodeLeaseEnding)
	for range 2 { // what nobody has settled settles automatically
		_, err = f.SettleOverdueCalls(f.ctx, 100)
		ok(t, err)
	}
	ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:holds", zMember(1, task.TaskID+":rnone")).Err()) // of a damaged store
	_, err = f.SettleOverdueCalls(f.ctx, 100)
	ok(t, err)
	coverExternalCalls(t, f, h)
}

// coverExternalCalls takes the ways of tasks that wait for calls that act outside.
func coverExternalCalls(t *testing.T, f *fixture, h picket.LeaseCredential) {
	acts := func(h picket.LeaseCredential) picket.Reservation {
		t.Helper()
		act := paidCall("0.01")
		act.Effects = picket.EffectsExternal
		return f.mustReserve(t, h, act)
	}
	_, err := f.Renew(f.ctx, h)
	ok(t, err)
	_, err = f.Cancel(f.ctx, operator, h.TaskID, "r")
	ok(t, err)
	// Waits, and the end of the call lets it go on.
	task, h := f.submitAndLease(t, picket.TaskSpec{LeaseWindowSeconds: ptr(9)})
	r := acts(h)
	_, err = f.Explain(f.ctx, task.TaskID)
	ok(t, err)
	_, err = f.Expire(f.ctx, operator, task.TaskID, "r")
	ok(t, err)
	_, err = f.Explain(f.ctx, task.TaskID)
	ok(t, err)
	f.mustSettle(t, doneSettlement(r, "0.01"))
	// A repeat waits for the calls of what it repeats, and so does its own.
	h = f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	r = acts(h)
	second := acts(h)
	id := task.TaskID
	for range 2 {
		_, err = f.Cancel(f.ctx, operator, id, "r")
		ok(t, err)
		next, err := f.Retry(f.ctx, operator, id, "r")
		ok(t, err)
		id = next.TaskID
	}
	f.mustSettle(t, doneSettlement(r, "0.01"))
	_, err = f.Cancel(f.ctx, operator, id, "r") // the end of the call finds nobody who waits
	ok(t, err)
	f.mustSettle(t, doneSettlement(second, "0.01"))
	next, err := f.Retry(f.ctx, operator, id, "r")
	ok(t, err)
	_ = next
	f.cancelAll(t)
	// Nothing of it is kept for ever.
	ok(t, f.raw.SAdd(f.ctx, "pk:{default}:gated:"+task.TaskID, noTask).Err())
	task, h = f.submitAndLease(t, picket.TaskSpec{})
	ok(t, f.raw.SAdd(f.ctx, "pk:{default}:gated:"+task.TaskID, noTask).Err())
	f.mustSettle(t, doneSettlement(acts(h), "0.01"))
	f.cancelAll(t)
}

// coverUsage takes the ways of usage reports and of money that comes late.
func coverUsage(t *testing.T, f *fixture) {
	task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "2")})
	report := func(u picket.UsageReport) {
		t.Helper()
		u.Source = "claude"
		_, err := f.ReportUsage(f.ctx, h, u)
		ok(t, err)
	}
	u := picket.UsageReport{Session: "s1", Tokens: 400, USD: usd("0.5")}
	report(u)
	report(u)
	u.Scope = "session"
	report(u)
	_, err := f.ReportUsage(f.ctx,
		picket.LeaseCredential{TaskID: noTask, RunID: noRun, Secret: h.Secret, Namespace: h.Namespace},
		picket.UsageReport{Source: "x"})
	refused(t, err, picket.CodeLeaseExpired)
	report(picket.UsageReport{Session: "s2", Tokens: 2000, USD: usd("3")}) // more than there is
	_, err = f.TopUp(f.ctx, operator, task.TaskID, picket.TopUp{Tokens: 2000, USD: usd("2")})
	ok(t, err)
	report(picket.UsageReport{Session: "s2", Tokens: 2000, USD: usd("3")}) // now there is
	env := "pk:{default}:env:" + task.TaskID
	for field, beyond := range map[string]picket.UsageReport{
		"unverified_t": {Tokens: budget.MaxTokens},
		"unverified_u": {USD: budget.MaxMoney},
	} {
		was := f.raw.HGet(f.ctx, env, field).Val()
		ok(t, f.raw.HSet(f.ctx, env, field, 4000000000000000).Err())
		beyond.Source, beyond.Session = "claude", "s2"
		_, err = f.ReportUsage(f.ctx, h, beyond)
		refused(t, err, picket.CodeValidation)
		ok(t, f.raw.HSet(f.ctx, env, field, was).Err())
	}
	ok(t, f.raw.HSet(f.ctx, "pk:{default}:run:"+h.RunID, "usage_full", 1<<50).Err())
	_, err = f.ReportUsage(f.ctx, h, picket.UsageReport{Source: "claude", Session: "s2", Tokens: 3000})
	refused(t, err, picket.CodeRateLimited)
	ok(t, f.raw.HDel(f.ctx, "pk:{default}:run:"+h.RunID, "usage_full").Err())
	ok(t, f.raw.HDel(f.ctx, env, "unverified_t", "unverified_u").Err())
	_, err = f.TopUp(f.ctx, operator, task.TaskID, picket.TopUp{USD: usd("1")})
	ok(t, err)
	full := make([]any, 0, 2000)
	for i := range 1000 {
		full = append(full, fmt.Sprint("x ", i), "0 0")
	}
	ok(t, f.raw.HSet(f.ctx, "pk:{default}:usage:"+h.RunID, full...).Err())
	_, err = f.ReportUsage(f.ctx, h, picket.UsageReport{Source: "claude", Session: "one-more"})
	refused(t, err, picket.CodeValidation)
	// Late: the envelope is closed, and nobody is above it.
	r := f.mustReserve(t, h, paidCall("0.10"))
	_, err = f.Cancel(f.ctx, operator, task.TaskID, "r")
	ok(t, err)
	f.mustSettle(t, doneSettlement(r, "0.11"))
	ok(t, f.raw.Del(f.ctx, "pk:{default}:usage:"+h.RunID).Err())
	report(u) // nobody pays
	_, err = f.Ledger(f.ctx, picket.LedgerQuery{})
	ok(t, err)
	_, err = f.Ledger(f.ctx, picket.LedgerQuery{TaskID: task.TaskID})
	ok(t, err)
	_, err = f.Ledger(f.ctx, picket.LedgerQuery{TaskID: "house"})
	ok(t, err)
	_, err = f.Ledger(f.ctx, picket.LedgerQuery{NewestFirst: true})
	ok(t, err)
	_, err = f.Ledger(f.ctx, picket.LedgerQuery{TaskID: task.TaskID, NewestFirst: true})
	ok(t, err)
	// A call whose run is gone: only a damaged store has one.
	task, h = f.submitAndLease(t, picket.TaskSpec{})
	r = f.mustReserve(t, h, paidCall("0.10"))
	ok(t, f.raw.Rename(f.ctx, "pk:{default}:run:"+h.RunID, "pk:{default}:aside").Err())
	f.mustSettle(t, doneSettlement(r, "0.01"))
	ok(t, f.raw.Rename(f.ctx, "pk:{default}:aside", "pk:{default}:run:"+h.RunID).Err())
	f.cancelAll(t)
	_ = task
}

// coverDamagedEnvelopes looks at what only a damaged or a very large store has.
func coverDamagedEnvelopes(t *testing.T, f *fixture) {
	key := func(of, id string) string { return "pk:{default}:" + of + id }
	ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:houses", zMember(1, "house:2020-01-01")).Err())
	task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(10, "1")})
	for _, of := range []string{"children:", "calls:"} {
		for at := 0; at < 1050; at += 50 {
			pipe := f.raw.Pipeline()
			for i := range 50 {
				pipe.ZAdd(f.ctx, key(of, task.TaskID), zMember(1, fmt.Sprint("x", at+i)))
			}
			_, err := pipe.Exec(f.ctx)
			ok(t, err)
		}
	}
	_, err := inspectAll(f.ctx, f.Engine, false)
	ok(t, err)
	_, err = f.Envelope(f.ctx, task.TaskID)
	ok(t, err)
	ok(t, f.raw.Del(f.ctx, key("children:", task.TaskID), key("calls:", task.TaskID)).Err())

	// A waiting task that nothing tells of the end of a call.
	act := paidCall("0.01")
	act.Effects = picket.EffectsExternal
	f.mustReserve(t, h, act)
	_, err = f.Expire(f.ctx, operator, task.TaskID, "r")
	ok(t, err)
	ok(t, f.raw.Del(f.ctx, key("gated:", task.TaskID)).Err())
	for _, repair := range []bool{false, true} {
		_, err = inspectAll(f.ctx, f.Engine, repair)
		ok(t, err)
	}
	f.cancelAll(t)
	f.jumpStoreTime(t, 100*24*time.Hour)
	_, err = f.ApplyRetention(f.ctx, picket.Retention{}, 100) // not while its call is open
	ok(t, err)
	_, err = f.SettleOverdueCalls(f.ctx, 100)
	ok(t, err)

	// Envelopes that are gone: of one that ends, and of the one above it.
	task, h = f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(10, "1")})
	part, err := f.Delegate(f.ctx, h, "", picket.Subtask{Title: "t", BudgetEnvelope: worth(1, "0.1")})
	ok(t, err)
	ok(t, f.raw.Del(f.ctx, key("env:", task.TaskID)).Err())
	_, err = f.TopUp(f.ctx, operator, part.TaskID, picket.TopUp{Tokens: 1})
	refused(t, err, picket.CodeBudgetExceeded) // nobody pays
	_, err = f.Cancel(f.ctx, operator, part.TaskID, "r")
	ok(t, err)
	f.cancelAll(t)
}
