package model

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// What random verbs hardly ever come to: an agent with several leases whose
// part ends, and what its processes try afterwards.

// repeatableAcquire is an acquire that can be repeated.
type repeatableAcquire struct {
	o      requestID
	caller picket.Caller
	a      acquirer
	req    picket.AcquireRequest
}

// acquireSeveral gives an agent more than one task.
func (x *machine) acquireSeveral() {
	id := oneOf(x, "id", agentIDs...)
	if a := x.m.agents[id]; a == nil || a.status.Gone() {
		x.registerAs(id, modelCaller{key: "key_a"})
	}
	for range 2 {
		x.submitLasting()
	}
	x.gatherings++
	g := repeatableAcquire{
		a: acquirer{id: id, role: "coder", caps: []string{"go", "py"}, by: modelCaller{"key_a", true}},
	}
	g.o = requestID{strings.Repeat("e", 60) + fmt.Sprintf("%04x", x.gatherings), strings.Repeat("0", 64)}
	g.caller = picket.Caller{
		Actor:       "key_a",
		Operator:    true,
		Idempotency: picket.Idempotency{Key: g.o.key, Body: g.o.body},
	}
	g.req = picket.AcquireRequest{AgentID: id, Role: "coder", Capabilities: g.a.caps, Max: kit.Ptr(5)}
	x.gathered = g
	x.acquireAs(g)
}

func (x *machine) acquireAs(g repeatableAcquire) {
	got, err := x.e.Acquire(x.ctx, g.caller, g.req)
	want, code := x.m.grant(g.o, g.a, runsOf(got), *g.req.Max)
	if x.agree(err, code, "acquire by %+v", g.a) {
		x.granted(g.a, got, want)
	}
}

func (x *machine) registerAs(id string, by modelCaller) {
	reg := picket.Registration{AgentID: id, Heartbeat: halfMinuteThresholds()}
	x.ok(reg.Normalize())
	got, err := x.e.Register(x.ctx, picket.Caller{Actor: by.key}, reg)
	if x.agree(err, x.m.register(requestID{}, by, id, "", -1), "register %s by %+v", id, by) {
		x.checkAgent("register", got, x.m.agents[id])
	}
}

func halfMinuteThresholds() *picket.Thresholds {
	return &picket.Thresholds{
		IntervalSeconds:       kit.Ptr(heartbeatInterval / 1000),
		UnhealthyAfterSeconds: kit.Ptr(unhealthyAfter / 1000),
		DeadAfterSeconds:      kit.Ptr(deadAfter / 1000),
	}
}

// endAgent ends the part of an agent that holds leases; its processes go on for a
// while, under the leases they had.
func (x *machine) endAgent() {
	if !x.anyAgent(x.m.busy)() || x.chance("gathers", 30) && x.openTasks() < x.most+4 {
		x.acquireSeveral()
	}
	a := x.m.agents[x.member(x.m.busy)]
	if g := x.m.agents[x.gathered.a.id]; g != nil && x.m.busy(g) && x.chance("who gathered", 60) {
		a = g
	}
	if a == nil || !x.m.busy(a) {
		return
	}
	held := x.m.holding(a.id, a.incarnation)
	for _, r := range held {
		if x.chance("process", 40) {
			x.launchedBy(x.credential(r))
		}
		x.renewAs(x.credential(r))
	}
	x.endAgentBy(a, held)
	if a.status.Gone() && x.chance("registers again", 60) {
		x.registerAs(a.id, modelCaller{key: a.owner})
	}
	if x.gathered.a.id == a.id && x.chance("repeats", 80) {
		x.acquireAs(x.gathered)
	}
	for _, r := range held {
		x.renewAs(x.credential(r))
	}
}

// killSilentAgent has an agent die while its leases go on for a while: their
// processes are gone with it.
func (x *machine) killSilentAgent() {
	x.acquireSeveral()
	a := x.m.agents[x.gathered.a.id]
	held := x.m.holding(a.id, a.incarnation)
	for _, r := range held {
		x.launchedBy(x.credential(r))
	}
	for range 2 {
		x.passOne(false, false)
		for _, r := range held {
			x.renewAs(x.credential(r))
		}
	}
	for range 2 {
		x.passOne(false, false)
		x.judge()
	}
}

// orderDrain tells an agent to drain, which it does: on its own, or when it is told
// once more.
func (x *machine) orderDrain() {
	a := x.m.agents[x.member(isActive)]
	if a == nil {
		return
	}
	by, caller := modelCaller{a.owner, true}, picket.Caller{Actor: a.owner, Operator: true}
	x.commandBy(requestID{}, by, caller, a.id,
		picket.AgentCommand{Command: picket.CommandDrain, DrainTimeoutSeconds: kit.Ptr(oneOf(x, "drain timeout", 30,
			60))})
	hb := picket.Heartbeat{Status: picket.AgentDraining, ClientTimestamp: picket.InstantOf(time.Now())}
	switch x.below(3, "drains by") {
	case 0:
		x.changeBy(by, caller, a.id, a.version, picket.AgentStatusChange{Status: picket.AgentDraining})
	case 1:
		hb.Status = picket.AgentActive
		for cid := range a.commands {
			hb.HandledCommands = append(hb.HandledCommands, cid)
		}
		slices.Sort(hb.HandledCommands)
	}
	for range 2 {
		x.heartbeatBy(by, caller, a.id, hb)
	}
}

// endAgentBy is how it ends.
func (x *machine) endAgentBy(a *modelAgent, held []*modelRun) {
	by, caller := modelCaller{a.owner, true}, picket.Caller{Actor: a.owner, Operator: true}
	change := picket.AgentStatusChange{
		Status:              picket.AgentDraining,
		DrainTimeoutSeconds: kit.Ptr(oneOf(x, "drain timeout", 300, 30)),
	}
	switch x.below(4, "ends by") {
	case 0:
		change = picket.AgentStatusChange{Status: picket.AgentDeregistered}
		x.changeBy(by, caller, a.id, a.version, change)
	case 1:
		for range 5 {
			x.passOne(false, false)
		}
		x.judge()
	case 2:
		x.changeBy(by, caller, a.id, a.version, change)
		hb := picket.Heartbeat{Status: picket.AgentDraining, ClientTimestamp: picket.InstantOf(time.Now())}
		got, err := x.e.Heartbeat(x.ctx, caller, a.id, hb)
		_, code := x.m.heartbeat(by, a.id, hb)
		if x.agree(err, code, "heartbeat of %s", a.id) {
			x.same("heartbeat", got.AgentStatus, a.status)
		}
	case 3:
		x.changeBy(by, caller, a.id, a.version, change)
		h, mh := x.credential(held[x.below(len(held), "lease")])
		got, err := x.e.Release(x.ctx, h, picket.Exit{Class: picket.ExitReleased})
		want, code := x.m.release(mh, picket.ExitReleased, "")
		x.checkClosing(h, string(got), want, err, code, "release")
	}
}

func (x *machine) credential(r *modelRun) (picket.LeaseCredential, modelCredential) {
	return x.held[r.id], modelCredential{task: r.task, run: r.id}
}

func (x *machine) renewAs(h picket.LeaseCredential, mh modelCredential) {
	got, err := x.e.Renew(x.ctx, h)
	ttl, code := x.m.renew(mh)
	if x.agree(err, code, "renew %+v", mh) {
		x.checkRemaining("renew: ttl", got.LeaseTTLMs, ttl)
		x.lives(got, x.m.runs[h.RunID])
		x.same("renew: token", got.FencingToken, x.m.runs[h.RunID].token)
	}
	x.refused(h, err, "renew")
}
