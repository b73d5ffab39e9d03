package model

import (
	"cmp"
	stdjson "encoding/json"
	"fmt"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A scenario is a verb and what mostly goes wrong after it. A repeated request, a
// process that outlives its run, a call while everything is paused: single moves
// come together like this in one check of a hundred.

func (x *machine) scenarios() []action {
	calm := func() bool { return !x.m.paused && x.openTasks() < x.most+6 }
	return []action{
		{5, "hand over", calm, x.advanceTwice},
		{4, "take again", calm, x.acquireTwice},
		{4, "go in circles", calm, x.loopCalls},
		{4, "pay in circles", calm, x.loopPaidCalls},
		{5, "outlive", calm, x.outliveRun},
		{3, "outlive an adoption", func() bool { return calm() && x.swaps < 5 }, x.outliveAdoption},
		{3, "call while paused", calm, x.callWhilePaused},
		{3, "top up twice", func() bool { return x.openTasks() > 0 }, x.topUpTwice},
		{2, "two claims", calm, x.twoClaims},
		{2, "nobody answers", calm, x.passDeadline},
	}
}

// leaseNewTask leases a new task, or whatever comes before it.
func (x *machine) leaseNewTask() (h picket.LeaseCredential, mh modelCredential, ok bool) {
	if x.chance("lasting", 50) {
		x.submitLasting()
	} else {
		x.submit()
	}
	x.acquireOne()
	return x.newest()
}

// key identifies a request that nobody else makes.
func (x *machine) key() (requestID, picket.Caller) {
	x.keys++
	o := requestID{fmt.Sprintf("%064x", x.keys), fmt.Sprintf("%064x", 0)}
	return o, picket.Caller{Actor: "key_a", Idempotency: picket.Idempotency{Key: o.key, Body: o.body}}
}

// advanceTwice goes from one task to the next and asks for the same again, when the
// second has ended as well.
func (x *machine) advanceTwice() {
	h, mh, ok := x.leaseNewTask()
	if !ok {
		return
	}
	x.submit()
	o, by := x.key()
	a := acquirer{id: "a3", role: "coder", caps: []string{"go", "py"}, by: modelCaller{key: "key_a"}}
	req := picket.AcquireRequest{AgentID: a.id, Role: a.role, Capabilities: a.caps, Max: kit.Ptr(2)}
	ask := func() {
		got, err := x.e.Advance(x.ctx, h, by, picket.AdvanceRequest{Output: stdjson.RawMessage(`1`), Acquire: req})
		state, want, code := x.m.advance(mh, "1", o, a, runsOf(got.Leases), 2)
		if x.agree(err, code, "advance by %+v", mh) {
			x.same("advance", string(got.State), state)
			x.granted(a, got.Leases, want)
		}
	}
	ask()
	x.endNewest()
	ask()
}

// acquireTwice repeats an acquire whose lease may have ended.
func (x *machine) acquireTwice() {
	x.submit()
	o, by := x.key()
	a := acquirer{id: "a3", role: "coder", caps: []string{"go", "py"}, by: modelCaller{key: "key_a"}}
	g := repeatableAcquire{
		o:      o,
		caller: by,
		a:      a,
		req:    picket.AcquireRequest{AgentID: a.id, Role: a.role, Capabilities: a.caps, Max: kit.Ptr(2)},
	}
	x.acquireAs(g)
	x.endNewest()
	x.acquireAs(g)
}

// endNewest ends the newest lease, mostly.
func (x *machine) endNewest() {
	h, mh, ok := x.newest()
	if !ok {
		return
	}
	switch x.below(4, "ends by") {
	case 0:
		x.failBy(h, mh, true)
	case 1:
		for range 3 {
			x.passOne(false, false)
		}
	case 2:
		x.renewAs(h, mh)
	case 3:
		x.releaseBy(h, mh)
	}
}

func (x *machine) failBy(h picket.LeaseCredential, mh modelCredential, retryable bool) {
	got, err := x.e.Fail(x.ctx, h, "cannot", retryable)
	want, code := x.m.fail(mh, "cannot", retryable)
	x.checkClosing(h, string(got), want, err, code, "fail")
}

func (x *machine) releaseBy(h picket.LeaseCredential, mh modelCredential) {
	got, err := x.e.Release(x.ctx, h, picket.Exit{Class: picket.ExitReleased})
	want, code := x.m.release(mh, picket.ExitReleased, "")
	x.checkClosing(h, string(got), want, err, code, "release")
}

// loopCalls makes the same call until it was told, or is over, and then others.
func (x *machine) loopCalls() {
	h, mh, ok := x.leaseNewTask()
	if !ok {
		return
	}
	calls, slowly := oneOf(x, "calls", 5, 5, 6, 9, 10, 12), x.chance("slowly", 20)
	for range calls {
		x.getTaskBy(h, mh, "")
		if slowly {
			x.passOne(false, false)
		}
	}
	for range x.below(3, "looks") {
		x.getTaskBy(h, mh, "g1")
	}
	for range x.below(4, "after") {
		switch x.below(3, "then") {
		case 0:
			x.renewAs(h, mh)
		case 1:
			x.reportBy(h, mh)
		case 2:
			x.getTaskBy(h, mh, "")
		}
	}
}

// loopPaidCalls makes the same call that costs until it was told, or is refused. Some of them fail,
// and now and then another call comes in between.
func (x *machine) loopPaidCalls() {
	h, mh, ok := x.leaseNewTask()
	if !ok {
		return
	}
	begun := x.keys
	for range oneOf(x, "calls", 6, 9, 11, 12, 14) {
		x.keys++
		c := modelCall{id: fmt.Sprint("p", x.keys), nonce: "n1", hash: "h1", tool: "http_request",
			keyed: x.chance("keyed", 20)}
		if x.chance("again", 10) {
			c.id = fmt.Sprint("p", begun+1)
		}
		x.reserveBy(h, mh, c, kit.HalfMinute-settleDelay, picket.EffectsNone)
		if x.chance("ends", 60) {
			x.settleAs(picket.Settlement{TaskID: h.TaskID, CallID: c.id, Nonce: c.nonce, Result: picket.RawJSON(`1`),
				Outcome: oneOf(x, "outcome", picket.CallDone, picket.CallDone, picket.CallDone, picket.CallFailed,
					picket.CallUndispatched, picket.CallUncertain)})
		}
		switch x.below(16, "between") {
		case 0:
			x.getTaskBy(h, mh, "")
		case 1:
			x.reportBy(h, mh)
		case 2:
			x.renewAs(h, mh)
		}
	}
	x.getTaskBy(h, mh, "")
}

// outliveRun ends a run before its process and looks who has to wait for that.
func (x *machine) outliveRun() {
	h, mh, ok := x.leaseNewTask()
	if !ok {
		return
	}
	x.launchedBy(h, mh)
	switch x.below(3, "ends by") {
	case 0:
		x.failBy(h, mh, true)
	case 1:
		x.releaseBy(h, mh)
	case 2:
		x.cancelAndRetry(h.TaskID)
	}
	x.acquireOne()
	x.exitBy(h, mh)
	x.acquireOne()
}

func (x *machine) cancelAndRetry(id string) {
	_, err := x.e.Cancel(x.ctx, picket.Caller{Actor: "key_a"}, id, "because")
	x.agree(err, x.m.cancel(requestID{}, id), "cancel %s", id)
	got, err := x.e.Retry(x.ctx, picket.Caller{Actor: "key_a"}, id, "because")
	_, code := x.m.retry(requestID{}, id, cmp.Or(got.TaskID, freshID()))
	x.agree(err, code, "retry %s", id)
}

// outliveAdoption has processes end, or not, while the store changes.
func (x *machine) outliveAdoption() {
	h, mh, ok := x.leaseNewTask()
	if !ok {
		return
	}
	x.launchedBy(h, mh)
	if x.chance("before", 30) {
		x.exitBy(h, mh)
	}
	x.swaps++
	x.adopted()
	x.exitBy(h, mh)
	for range 1 + x.below(3, "half minutes") {
		x.passOne(false, false)
		x.expireDue()
	}
}

func (x *machine) callWhilePaused() {
	h, mh, ok := x.leaseNewTask()
	if !ok {
		return
	}
	_, err := x.e.Pause(x.ctx, picket.Caller{Actor: "key_a"}, false, "because")
	x.agree(err, x.m.pause(requestID{}, false), "pause")
	x.reserveBy(h, mh, modelCall{id: "c6", nonce: "n1", hash: "h1", tool: "http_request"}, kit.HalfMinute-settleDelay,
		picket.EffectsNone)
	x.acquireOne()
	if x.chance("resumed", 80) {
		_, err = x.e.Resume(x.ctx, picket.Caller{Actor: "key_a"}, "because")
		x.agree(err, x.m.resume(requestID{}), "resume")
	}
}

func (x *machine) topUpTwice() {
	id := x.task(picket.TaskQueued, picket.TaskLeased, picket.TaskReview, picket.TaskHandoff)
	o, by := x.key()
	more := x.amount("more")
	more.USD++
	for range 2 {
		x.topUpBy(o, by, id, picket.TopUp{Tokens: more.Tokens, USD: more.USD})
	}
}

// twoClaims has two people claim a question, one of them twice.
func (x *machine) twoClaims() {
	hid := x.askPerson(nil, picket.OnDeadlineWait)
	for _, who := range []string{"key_a", oneOf(x, "who", "key_b", "key_a"), "key_a"} {
		takeOver := who == "key_b" && x.chance("take over", 50)
		got, err := x.e.Claim(x.ctx, picket.Caller{Actor: who}, hid, picket.ClaimRequest{TakeOver: takeOver})
		if x.agree(err, x.m.claim(requestID{}, hid, who, takeOver, ""), "claim %s by %s", hid, who) {
			x.same("claim", got.ClaimedBy, x.m.helps[hid].claimed)
		}
	}
}

func (x *machine) passDeadline() {
	x.askPerson(kit.Ptr(1), oneOf(x, "policy", picket.OnDeadlineDeny, picket.OnDeadlineEscalate))
	for range 2 {
		x.passOne(false, true)
	}
}

// askPerson has the newest run ask a person, and returns the question's id.
func (x *machine) askPerson(halves *int, policy picket.OnDeadline) string {
	h, mh, ok := x.leaseNewTask()
	if !ok {
		return kit.NoHelp
	}
	req, wait := picket.HelpRequest{Question: "which?", Kind: picket.HandoffQuestion, OnDeadline: policy}, int64(0)
	if halves != nil {
		req.DeadlineSeconds, wait = seconds(*halves), int64(*halves*kit.HalfMinute)
	}
	got, err := x.e.RequestHelp(x.ctx, h, req)
	want, code := x.m.requestHelp(mh, req.Kind, req.Question, wait, req.OnDeadline)
	x.checkClosing(h, got.HandoffID, want, err, code, "request_help")
	return cmp.Or(got.HandoffID, kit.NoHelp)
}
