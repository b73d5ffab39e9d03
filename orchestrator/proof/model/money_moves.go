package model

import (
	"fmt"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The moves of money: few calls, few keys and small sums, so that they meet.

func (x *machine) moneyActions() []action {
	live := x.anyRun(isRunning)
	under := func() bool { return len(x.m.open()) > 0 }
	known := func() bool { return len(x.m.calls) > 0 }
	return []action{
		{6, "reserve", func() bool { return live() && !x.m.paused }, x.reserve},
		{5, "settle", known, x.settle},
		{1, "reap holds", under, x.reapHolds},
		{2, "usage", live, x.usage},
		{2, "top up", func() bool { return x.openTasks() > 0 }, x.topUp},
		{1, "await top up", live, x.awaitTopUp},
		{1, "spending", func() bool { return len(x.m.booked) > 0 }, x.spending},
	}
}

// amount draws a sum: mostly small, sometimes nothing in one dimension or both.
func (x *machine) amount(label string) budget.Envelope {
	return budget.Envelope{
		Tokens: int64(oneOf(x, label+" tokens", 10, 0, 3, 7, 40)),
		USD:    budget.Money(oneOf(x, label+" nanos", 10, 0, 3, 7, 40)),
	}
}

func (x *machine) reserve() {
	c := modelCall{
		id:       oneOf(x, "call", "c1", "c2", "c3"),
		nonce:    oneOf(x, "nonce", "n1", "n1", "n2"),
		hash:     oneOf(x, "hash", "h1", "h1", "h1", "h2"),
		tool:     oneOf(x, "tool", "http_request", "llm_messages"),
		need:     x.amount("need"),
		external: x.chance("external", 50),
		keyed:    x.chance("keyed", 60),
	}
	if strings.HasPrefix(c.tool, "llm_") {
		c.hash = "" // it is not a call of a tool
	}
	// A call outlives whole half minutes: what acts outside and its grace, or
	// what is held and its own.
	wait, effects := int64(oneOf(x, "timeout", 1, 2, 4)*kit.HalfMinute), picket.EffectsNone
	if c.external {
		effects, wait = picket.EffectsExternal, wait-actsMargin
	} else {
		wait -= settleDelay
	}
	x.calls(func(h picket.LeaseCredential, mh modelCredential) { x.reserveBy(h, mh, c, wait, effects) })
}

func (x *machine) reserveBy(h picket.LeaseCredential, mh modelCredential, c modelCall, wait int64,
	effects picket.Effects) {
	if x.short[h.RunID] >= 18 {
		return // the engine would begin to count instead of telling
	}
	got, err := x.e.Reserve(x.ctx, h,
		picket.CallRequest{CallID: c.id, Nonce: c.nonce, Tool: c.tool, Model: c.model(), Hash: c.hash, Reserve: c.need,
			PriceVersion: "v1", Effects: effects, TimeoutMs: wait, Keyed: c.keyed})
	was, nudge, code := x.m.reserve(mh, c, wait)
	if code == picket.CodeBudgetExceeded {
		x.short[h.RunID]++
	}
	if x.agree(err, code, "reserve %+v by %+v", c, mh) {
		x.same("reserve: available", got.Available, x.m.envs[h.TaskID].free())
		x.same("reserve: token", got.Token, x.m.runs[h.RunID].token)
		x.nudged("reserve", got.Nudge, nudge)
		if x.same("reserve: replayed", got.Replay != nil, was != nil); was != nil {
			x.same("reserve: result", string(got.Replay.Result), was.result)
			x.same("reserve: cost", got.Replay.Cost, was.cost)
		}
	}
	x.refused(h, err, "reserve")
}

func (x *machine) settle() {
	task, id := kit.NoTask, "c9"
	if open := x.m.open(); len(open) > 0 && x.chance("open call", 70) {
		c := open[x.below(len(open), "which")]
		task, id = c.task, c.id
	} else if len(x.m.ids) > 0 {
		task, id = x.pick("task", x.m.ids, kit.NoTask), oneOf(x, "call", "c1", "c2", "c3")
	}
	nonce := oneOf(x, "nonce", "n1", "n1", "n2")
	if c := x.m.calls[task+" "+id]; c != nil && x.chance("its nonce", 80) {
		nonce = c.nonce
	}
	s := picket.Settlement{
		TaskID: task,
		CallID: id,
		Nonce:  nonce,
		Cost:   x.amount("cost"),
		Detail: "200",
		Outcome: oneOf(x, "outcome", picket.CallDone, picket.CallDone, picket.CallFailed, picket.CallUndispatched,
			picket.CallUncertain),
	}
	if x.chance("result", 70) {
		s.Result = picket.RawJSON(oneOf(x, "result", `1`, `{"n":2}`))
	}
	for range 1 + x.below(2, "times") {
		x.settleAs(s)
	}
}

func (x *machine) settleAs(s picket.Settlement) {
	got, err := x.e.Settle(x.ctx, s)
	c, p, code := x.m.settle(s.TaskID, s.CallID, s.Nonce, s.Outcome, s.Cost, string(s.Result))
	if x.agree(err, code, "settle %+v", s) {
		x.same("settle: cost", got.Cost, c.cost)
		x.same("settle: available", got.Available, p.free())
		x.same("settle: locked", got.Overrun, p.free().Tokens < 0 || p.free().USD < 0)
	}
}

// reapHolds settles what is due. The model knows the instants only to half a minute. Of calls that
// are due at the same one, the store says which comes first: it decides how often people are warned.
func (x *machine) reapHolds() {
	order, err := x.raw.ZRange(x.ctx, x.prefix+"holds", 0, -1).Result()
	x.ok(err)
	n, err := x.e.SettleOverdueCalls(x.ctx, 100)
	x.ok(err)
	x.same("reap holds", n, x.m.reapHolds(order))
}

func (x *machine) usage() {
	u := picket.UsageReport{
		Source:  "claude",
		Session: oneOf(x, "session", "s1", "s2"),
		Scope:   oneOf(x, "scope", "", "run", "session"),
	}
	total := x.amount("total")
	u.Tokens, u.USD = total.Tokens, total.USD
	h, mh := x.holder()
	got, err := x.e.ReportUsage(x.ctx, h, u)
	cost, rest, p, code := x.m.usage(mh, u.Session, u.Scope == "session", total)
	if x.agree(err, code, "usage %+v by %+v", u, mh) {
		x.same("usage: charged", got.Charged, cost)
		x.same("usage: unverified", got.Unverified, rest)
		free := p.free()
		if x.m.tasks[mh.task].run != mh.run {
			free = budget.Envelope{} // that of the present holder is not shown
		}
		x.same("usage: available", got.Available, free)
	}
}

func (x *machine) topUp() {
	id := x.task(picket.TaskQueued, picket.TaskLeased, picket.TaskReview, picket.TaskHandoff)
	more := picket.TopUp{
		Tokens:     int64(x.below(20, "tokens")),
		USD:        budget.Money(1 + x.below(20, "nanos")),
		KeepParked: x.chance("keep parked", 30),
	}
	if x.chance("seen", 30) {
		more.HandoffID = x.help()
		if h := x.m.helps[more.HandoffID]; h != nil && x.chance("its task", 80) {
			id = h.task
		}
	}
	o, by := x.once(fmt.Sprint("top up", id, more.KeepParked, more.HandoffID))
	x.topUpBy(o, by, id, more)
}

func (x *machine) topUpBy(o requestID, by picket.Caller, id string, more picket.TopUp) {
	got, err := x.e.TopUp(x.ctx, by, id, more)
	outcome, code := x.m.topUp(o, id, budget.Envelope{Tokens: more.Tokens, USD: more.USD}, more.KeepParked,
		more.HandoffID)
	if x.agree(err, code, "top up %s %+v", id, more) {
		x.same("top up", got.Account, x.m.envs[id].Account)
		var became picket.TopUpOutcome
		if got.Handoff != nil {
			became = got.Handoff.Outcome
		}
		x.same("top up: hand-off", became, outcome)
	}
}

func (x *machine) awaitTopUp() {
	h, mh := x.holder()
	got, err := x.e.AwaitTopUp(x.ctx, h, 0)
	more, nudge, code := x.m.funds(mh, x.lookedAt(h))
	if x.agree(err, code, "await top up %+v", mh) {
		x.same("await top up", fmt.Sprint(got.ToppedUp, got.Available), fmt.Sprint(more, x.m.envs[h.TaskID].free()))
		x.nudged("await top up", got.Nudge, nudge)
	}
	x.refused(h, err, "await_top_up")
}
