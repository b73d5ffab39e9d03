package branches

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverCalls takes the ways of a call that costs.
func coverCalls(t *testing.T, f *fixture) {
	task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
	keyed := kit.SameCall("one", "h1", "0.10")
	f.CallTwice(t, func() error { _, err := f.Reserve(f.Ctx, h, keyed); return err })
	other := keyed
	other.Nonce = "other"
	_, err := f.Reserve(f.Ctx, h, other)
	kit.Refused(t, err, picket.CodeCallRunning)
	other.Hash = "h2"
	_, err = f.Reserve(f.Ctx, h, other)
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	s := picket.Settlement{
		CallID:  keyed.CallID,
		TaskID:  task.TaskID,
		Nonce:   keyed.Nonce,
		Outcome: picket.CallDone,
		Cost:    budget.Envelope{USD: kit.USD("0.05")},
		Result:  picket.RawJSON(`1`),
	}
	f.CallTwice(t, func() error { _, err := f.Settle(f.Ctx, s); return err })
	got := f.MustReserve(t, h, keyed)
	if got.Replay == nil {
		t.Fatal("a call that was made is made again")
	}
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:result:"+task.TaskID+":"+keyed.CallID).Err())
	_, err = f.Reserve(f.Ctx, h, keyed)
	kit.Refused(t, err, picket.CodeStateConflict)
	s.Nonce = "nobody's"
	_, err = f.Settle(f.Ctx, s)
	kit.Refused(t, err, picket.CodeNotFound)

	twice := kit.SameCall("two", "h1", "0.10")
	f.MustSettle(t, kit.SettlementAs(f.MustReserve(t, h, twice), picket.CallUndispatched))
	f.MustSettle(t, kit.SettlementAs(f.MustReserve(t, h, twice), picket.CallUncertain))
	_, err = f.Reserve(f.Ctx, h, twice)
	kit.Refused(t, err, picket.CodeStateConflict)
	true2 := picket.Settlement{
		CallID:  twice.CallID,
		TaskID:  task.TaskID,
		Nonce:   twice.Nonce,
		Outcome: picket.CallDone,
		Cost:    budget.Envelope{USD: kit.USD("0.20")},
		Result:  picket.RawJSON(`1`),
	}
	f.MustSettle(t, true2) // a true figure at last
	llm := kit.PaidCall("0.01")
	llm.Tool, llm.Reserve.Tokens = "llm_messages", 10
	f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, llm), "0.009"))
	f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.50")), "0.9")) // overrun: locked, and warned
	for range 22 {
		_, err = f.Reserve(f.Ctx, h, kit.PaidCall("0.01"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
	}
	probe := kit.PaidCall("0.01")
	probe.Probe = true
	_, err = f.Reserve(f.Ctx, h, probe)
	kit.Refused(t, err, picket.CodeBudgetExceeded)
	f.MustReserve(t, h, kit.PaidCall("0"))
	_, err = f.TopUp(f.Ctx, kit.Operator, task.TaskID, picket.TopUp{USD: kit.USD("5")})
	kit.OK(t, err)

	// What acts outside: near the end of the lease, past it, and beyond.
	act := kit.PaidCall("0.01")
	act.Effects = picket.EffectsExternal
	f.MustReserve(t, h, act)
	_, err = f.Pause(f.Ctx, kit.Operator, false, "r")
	kit.OK(t, err)
	_, err = f.Reserve(f.Ctx, h, kit.PaidCall("0"))
	kit.Refused(t, err, picket.CodePaused)
	_, err = f.Resume(f.Ctx, kit.Operator, "r")
	kit.OK(t, err)
	_, err = f.Renew(f.Ctx, h)
	kit.OK(t, err)
	f.JumpStoreTime(t, 280*time.Second)
	act = kit.PaidCall("0.01")
	act.Effects = picket.EffectsExternal
	_, err = f.Reserve(f.Ctx, h, act)
	kit.Refused(t, err, picket.CodeLeaseEnding)
	for range 2 { // what nobody has settled settles automatically
		_, err = f.SettleOverdueCalls(f.Ctx, 100)
		kit.OK(t, err)
	}
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:holds", kit.ZMember(1, task.TaskID+":rnone")).Err()) // of a damaged store
	_, err = f.SettleOverdueCalls(f.Ctx, 100)
	kit.OK(t, err)
	coverExternalCalls(t, f, h)
}

// coverExternalCalls takes the ways of tasks that wait for calls that act outside.
func coverExternalCalls(t *testing.T, f *fixture, h picket.LeaseCredential) {
	acts := func(h picket.LeaseCredential) picket.Reservation {
		t.Helper()
		act := kit.PaidCall("0.01")
		act.Effects = picket.EffectsExternal
		return f.MustReserve(t, h, act)
	}
	_, err := f.Renew(f.Ctx, h)
	kit.OK(t, err)
	_, err = f.Cancel(f.Ctx, kit.Operator, h.TaskID, "r")
	kit.OK(t, err)
	// Waits, and the end of the call lets it go on.
	task, h := f.SubmitAndLease(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(9)})
	r := acts(h)
	_, err = f.Explain(f.Ctx, task.TaskID)
	kit.OK(t, err)
	_, err = f.Expire(f.Ctx, kit.Operator, task.TaskID, "r")
	kit.OK(t, err)
	_, err = f.Explain(f.Ctx, task.TaskID)
	kit.OK(t, err)
	f.MustSettle(t, kit.DoneSettlement(r, "0.01"))
	// A repeat waits for the calls of what it repeats, and so does its own.
	h = f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	r = acts(h)
	second := acts(h)
	id := task.TaskID
	for range 2 {
		_, err = f.Cancel(f.Ctx, kit.Operator, id, "r")
		kit.OK(t, err)
		next, err := f.Retry(f.Ctx, kit.Operator, id, "r")
		kit.OK(t, err)
		id = next.TaskID
	}
	f.MustSettle(t, kit.DoneSettlement(r, "0.01"))
	_, err = f.Cancel(f.Ctx, kit.Operator, id, "r") // the end of the call finds nobody who waits
	kit.OK(t, err)
	f.MustSettle(t, kit.DoneSettlement(second, "0.01"))
	next, err := f.Retry(f.Ctx, kit.Operator, id, "r")
	kit.OK(t, err)
	_ = next
	f.CancelAll(t)
	// Nothing of it is kept for ever.
	kit.OK(t, f.Raw.SAdd(f.Ctx, "pk:{default}:gated:"+task.TaskID, kit.NoTask).Err())
	task, h = f.SubmitAndLease(t, picket.TaskSpec{})
	kit.OK(t, f.Raw.SAdd(f.Ctx, "pk:{default}:gated:"+task.TaskID, kit.NoTask).Err())
	f.MustSettle(t, kit.DoneSettlement(acts(h), "0.01"))
	f.CancelAll(t)
}

// coverUsage takes the ways of usage reports and of money that comes late.
func coverUsage(t *testing.T, f *fixture) {
	task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "2")})
	report := func(u picket.UsageReport) {
		t.Helper()
		u.Source = "claude"
		_, err := f.ReportUsage(f.Ctx, h, u)
		kit.OK(t, err)
	}
	u := picket.UsageReport{Session: "s1", Tokens: 400, USD: kit.USD("0.5")}
	report(u)
	report(u)
	u.Scope = "session"
	report(u)
	_, err := f.ReportUsage(f.Ctx,
		picket.LeaseCredential{TaskID: kit.NoTask, RunID: kit.NoRun, Secret: h.Secret, Namespace: h.Namespace},
		picket.UsageReport{Source: "x"})
	kit.Refused(t, err, picket.CodeLeaseExpired)
	report(picket.UsageReport{Session: "s2", Tokens: 2000, USD: kit.USD("3")}) // more than there is
	_, err = f.TopUp(f.Ctx, kit.Operator, task.TaskID, picket.TopUp{Tokens: 2000, USD: kit.USD("2")})
	kit.OK(t, err)
	report(picket.UsageReport{Session: "s2", Tokens: 2000, USD: kit.USD("3")}) // now there is
	env := "pk:{default}:env:" + task.TaskID
	for field, beyond := range map[string]picket.UsageReport{
		"unverified_t": {Tokens: budget.MaxTokens},
		"unverified_u": {USD: budget.MaxMoney},
	} {
		was := f.Raw.HGet(f.Ctx, env, field).Val()
		kit.OK(t, f.Raw.HSet(f.Ctx, env, field, 4000000000000000).Err())
		beyond.Source, beyond.Session = "claude", "s2"
		_, err = f.ReportUsage(f.Ctx, h, beyond)
		kit.Refused(t, err, picket.CodeValidation)
		kit.OK(t, f.Raw.HSet(f.Ctx, env, field, was).Err())
	}
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:run:"+h.RunID, "usage_full", 1<<50).Err())
	_, err = f.ReportUsage(f.Ctx, h, picket.UsageReport{Source: "claude", Session: "s2", Tokens: 3000})
	kit.Refused(t, err, picket.CodeRateLimited)
	kit.OK(t, f.Raw.HDel(f.Ctx, "pk:{default}:run:"+h.RunID, "usage_full").Err())
	kit.OK(t, f.Raw.HDel(f.Ctx, env, "unverified_t", "unverified_u").Err())
	_, err = f.TopUp(f.Ctx, kit.Operator, task.TaskID, picket.TopUp{USD: kit.USD("1")})
	kit.OK(t, err)
	full := make([]any, 0, 2000)
	for i := range 1000 {
		full = append(full, fmt.Sprint("x ", i), "0 0")
	}
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:usage:"+h.RunID, full...).Err())
	_, err = f.ReportUsage(f.Ctx, h, picket.UsageReport{Source: "claude", Session: "one-more"})
	kit.Refused(t, err, picket.CodeValidation)
	// Late: the envelope is closed, and nobody is above it.
	r := f.MustReserve(t, h, kit.PaidCall("0.10"))
	_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "r")
	kit.OK(t, err)
	f.MustSettle(t, kit.DoneSettlement(r, "0.11"))
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:usage:"+h.RunID).Err())
	report(u) // nobody pays
	coverSpending(t, f)
	_, err = f.Ledger(f.Ctx, picket.LedgerQuery{})
	kit.OK(t, err)
	_, err = f.Ledger(f.Ctx, picket.LedgerQuery{TaskID: task.TaskID})
	kit.OK(t, err)
	_, err = f.Ledger(f.Ctx, picket.LedgerQuery{TaskID: "house"})
	kit.OK(t, err)
	_, err = f.Ledger(f.Ctx, picket.LedgerQuery{NewestFirst: true})
	kit.OK(t, err)
	_, err = f.Ledger(f.Ctx, picket.LedgerQuery{TaskID: task.TaskID, NewestFirst: true})
	kit.OK(t, err)
	// A call whose run is gone: only a damaged store has one.
	task, h = f.SubmitAndLease(t, picket.TaskSpec{})
	r = f.MustReserve(t, h, kit.PaidCall("0.10"))
	kit.OK(t, f.Raw.Rename(f.Ctx, "pk:{default}:run:"+h.RunID, "pk:{default}:aside").Err())
	f.MustSettle(t, kit.DoneSettlement(r, "0.01"))
	kit.OK(t, f.Raw.Rename(f.Ctx, "pk:{default}:aside", "pk:{default}:run:"+h.RunID).Err())
	f.CancelAll(t)
	_ = task
}

// coverDamagedEnvelopes looks at what only a damaged or a very large store has.
func coverDamagedEnvelopes(t *testing.T, f *fixture) {
	key := func(of, id string) string { return "pk:{default}:" + of + id }
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:houses", kit.ZMember(1, "house:2020-01-01")).Err())
	task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(10, "1")})
	for _, of := range []string{"children:", "calls:"} {
		for at := 0; at < 1050; at += 50 {
			pipe := f.Raw.Pipeline()
			for i := range 50 {
				pipe.ZAdd(f.Ctx, key(of, task.TaskID), kit.ZMember(1, fmt.Sprint("x", at+i)))
			}
			_, err := pipe.Exec(f.Ctx)
			kit.OK(t, err)
		}
	}
	_, err := kit.InspectAll(f.Ctx, f.Engine, false)
	kit.OK(t, err)
	_, err = f.Envelope(f.Ctx, task.TaskID)
	kit.OK(t, err)
	kit.OK(t, f.Raw.Del(f.Ctx, key("children:", task.TaskID), key("calls:", task.TaskID)).Err())

	// A waiting task that gets no message about the end of a call.
	act := kit.PaidCall("0.01")
	act.Effects = picket.EffectsExternal
	f.MustReserve(t, h, act)
	_, err = f.Expire(f.Ctx, kit.Operator, task.TaskID, "r")
	kit.OK(t, err)
	kit.OK(t, f.Raw.Del(f.Ctx, key("gated:", task.TaskID)).Err())
	for _, repair := range []bool{false, true} {
		_, err = kit.InspectAll(f.Ctx, f.Engine, repair)
		kit.OK(t, err)
	}
	f.CancelAll(t)
	f.JumpStoreTime(t, 100*24*time.Hour)
	_, err = f.ApplyRetention(f.Ctx, picket.Retention{}, 100) // not while its call is open
	kit.OK(t, err)
	// A row that is not counted yet keeps its envelope.
	late := f.MustSubmit(t, picket.TaskSpec{})
	_, err = f.Cancel(f.Ctx, kit.Operator, late.TaskID, "r")
	kit.OK(t, err)
	f.JumpStoreTime(t, 100*24*time.Hour)
	kit.OK(t, f.Raw.ZAdd(f.Ctx, key("ledger-of:", late.TaskID), redis.Z{Score: 9e14, Member: "900000000000000"}).Err())
	_, err = f.ApplyRetention(f.Ctx, picket.Retention{}, 100)
	kit.OK(t, err)
	kit.OK(t, f.Raw.Del(f.Ctx, key("ledger-of:", late.TaskID)).Err())
	_, err = f.SettleOverdueCalls(f.Ctx, 100)
	kit.OK(t, err)

	// Envelopes that are gone: of one that ends, and of the one above it.
	task, h = f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(10, "1")})
	part, err := f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "t", BudgetEnvelope: kit.Worth(1, "0.1")})
	kit.OK(t, err)
	kit.OK(t, f.Raw.Del(f.Ctx, key("env:", task.TaskID)).Err())
	_, err = f.TopUp(f.Ctx, kit.Operator, part.TaskID, picket.TopUp{Tokens: 1})
	kit.Refused(t, err, picket.CodeBudgetExceeded) // nobody pays
	_, err = f.Cancel(f.Ctx, kit.Operator, part.TaskID, "r")
	kit.OK(t, err)
	f.CancelAll(t)
}
