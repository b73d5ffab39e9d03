package model

import (
	stdjson "encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The moves of agents, and what is compared of them.

var agentIDs = []string{"a1", "a2"}

// caller draws who asks: mostly the key that registers agents.
func (x *machine) caller() (modelCaller, picket.Caller) {
	by := modelCaller{key: oneOf(x, "key", "key_a", "key_a", "key_a", "key_b"), operator: x.chance("operator", 30)}
	return by, picket.Caller{Actor: by.key, Operator: by.operator}
}

// member draws an agent, mostly one that fits.
func (x *machine) member(fits func(*modelAgent) bool) string {
	var fit []string
	for _, id := range agentIDs {
		if a := x.m.agents[id]; a != nil && fits(a) {
			fit = append(fit, id)
		}
	}
	if len(fit) == 0 || x.chance("any agent", 20) {
		fit = agentIDs
	}
	return x.pick("agent", fit, "nobody")
}

func (x *machine) anyAgent(fits func(*modelAgent) bool) func() bool {
	return func() bool {
		for _, a := range x.m.agents {
			if fits(a) {
				return true
			}
		}
		return false
	}
}

func isActive(a *modelAgent) bool { return !a.status.Gone() }

func goneAgent(a *modelAgent) bool { return a.status.Gone() }

// about is what an event is about, as the model says it.
func about(ev picket.Event) string {
	switch ev.Type {
	case picket.EventAgentLifecycle:
		return fmt.Sprint(ev.AgentID, " ", ev.PreviousStatus, " ", ev.NewStatus, " ", ev.Reason, " by ", ev.Actor)
	case picket.EventAgentCommand:
		var d struct{ State string }
		_ = stdjson.Unmarshal(ev.Data, &d)
		return ev.AgentID + " " + d.State + " by " + ev.Actor
	case picket.EventAgentDrainOverdue, picket.EventAgentDrift:
		return ev.AgentID
	}
	if strings.HasPrefix(ev.Type, "agent_session.") {
		return ev.AgentID
	}
	return ev.TaskID
}

// agentActions are the moves of agents. Half of the checks know of none, so that
// they get far with everything else; in the others they are what mostly happens.
func (x *machine) agentActions() []action {
	if x.chance("no agents", 50) {
		return nil
	}
	x.m.batch = oneOf(x, "leases in a step", 100, 1, 0, 0)
	return []action{
		{8, "register", func() bool { return len(x.m.agents) < len(agentIDs) || x.anyAgent(goneAgent)() }, x.register},
		{8, "heartbeat", x.anyAgent(isActive), x.heartbeat},
		{6, "change agent", x.anyAgent(isActive), x.changeAgent},
		{6, "gather", func() bool { return x.openTasks() < x.most && !x.m.paused }, x.acquireSeveral},
		{14, "fall", func() bool { return x.anyAgent(x.m.busy)() || x.openTasks() < x.most && !x.m.paused },
			x.endAgent},
		{6, "wear out", x.anyAgent(x.m.busy), x.outwaitDrain},
		{1, "deregister", x.anyAgent(isActive), x.deregister},
		{3, "command", x.anyAgent(isActive), x.command},
		{8, "judge", x.anyAgent(x.m.due), x.judge},
		{10, "acquire", func() bool { return x.anyAgent(isActive)() && x.anyTask(picket.TaskQueued)() }, x.acquire},
		{8, "silence", x.anyAgent(isActive), x.silence},
		{6, "fall silent", func() bool { return x.openTasks() < x.most+4 && !x.m.paused }, x.killSilentAgent},
		{6, "order", x.anyAgent(isActive), x.orderDrain},
		{6, "report sessions", x.anyAgent(isActive), x.reportSessions},
		{6, "prompt", x.anySession(isLive), x.promptAgent},
		{8, "serve prompt", x.anySession(hasOpen), x.servePrompt},
		{8, "take turn", func() bool { return x.openTasks() < x.most+4 }, x.takeTurn},
		{4, "threshold", func() bool { return x.virtual && x.anyAgent(isActive)() }, x.crossThreshold},
	}
}

// silence lets so much time go by that a threshold or a deadline may be passed.
func (x *machine) silence() {
	for range 1 + x.below(4, "half minutes") {
		x.passOne(false, false)
	}
}

func (x *machine) register() {
	id := oneOf(x, "id", agentIDs...)
	by, caller := x.caller()
	o, repeatable := x.once("register" + by.key + id)
	caller.Idempotency = repeatable.Idempotency
	role, drain := oneOf(x, "role", "coder", "", "tester", picket.RoleAttached), oneOf(x, "drain timeout", -1, 30, 90)
	reg := picket.Registration{AgentID: id, RoleID: role, Heartbeat: halfMinuteThresholds()}
	if drain >= 0 {
		reg.DrainTimeoutSeconds = &drain
	}
	x.ok(reg.Normalize())
	got, err := x.e.Register(x.ctx, caller, reg)
	if x.agree(err, x.m.register(o, by, id, role, drain), "register %s by %+v", id, by) {
		x.checkAgent("register", got, x.m.agents[id])
	}
}

// checkAgent compares a record that a verb answered with the model's.
func (x *machine) checkAgent(verb string, got picket.Agent, a *modelAgent) {
	x.Helper()
	x.same(verb+": id", got.AgentID, a.id)
	x.same(verb+": status", got.Status, a.status)
	x.same(verb+": version", got.Version, a.version)
	x.same(verb+": incarnation", got.Incarnation, a.incarnation)
	x.same(verb+": load", got.Capacity.CurrentLoad, a.load)
	x.same(verb+": drain deadline", got.DrainDeadlineAt.IsZero(), a.status != picket.AgentDraining)
}

func (x *machine) heartbeat() {
	id := x.member(isActive)
	by, caller := x.caller()
	hb := picket.Heartbeat{
		Status: oneOf(x, "reports", picket.AgentActive, picket.AgentActive, picket.AgentActive,
			picket.AgentDraining),
		ClientTimestamp: picket.InstantOf(time.Now()),
	}
	if x.chance("load", 50) {
		hb.CurrentLoad = kit.Ptr(x.below(3, "load"))
	}
	if a := x.m.agents[id]; a != nil {
		hb.Incarnation = oneOf(x, "incarnation", 0, a.incarnation, a.incarnation+1, max(0, a.incarnation-1))
		for _, cid := range slices.Sorted(maps.Keys(a.commands)) {
			if x.chance("handled", 40) {
				hb.HandledCommands = append(hb.HandledCommands, cid)
			}
		}
	}
	for _, tid := range x.m.ids {
		if x.chance("in progress", 30) {
			hb.TasksInProgress = append(hb.TasksInProgress, tid)
		}
	}
	x.heartbeatBy(by, caller, id, hb)
}

func (x *machine) heartbeatBy(by modelCaller, caller picket.Caller, id string, hb picket.Heartbeat) {
	got, err := x.e.Heartbeat(x.ctx, caller, id, hb)
	a, code := x.m.heartbeat(by, id, hb)
	if x.agree(err, code, "heartbeat of %s by %+v: %+v", id, by, hb) {
		x.same("heartbeat", got.AgentStatus, a.status)
		x.ordered(got.PendingCommands, a, hb.TasksInProgress)
	}
}

// ordered compares the commands that a heartbeat was answered with: those that
// wait, and to stop whatever it works on without a lease.
func (x *machine) ordered(got []picket.PendingCommand, a *modelAgent, working []string) {
	x.Helper()
	var have, want []string
	for _, c := range got {
		have = append(have, fmt.Sprint(c.CommandID, " ", c.Command, " ", c.TaskID))
	}
	for cid, c := range a.commands {
		want = append(want, fmt.Sprint(cid, " ", c.Command, " ", c.TaskID))
	}
	for _, tid := range working {
		if t := x.m.tasks[tid]; t.state != picket.TaskLeased || x.m.runs[t.run].agent != a.id {
			want = append(want, fmt.Sprint("stop_", tid, " stop_task ", tid))
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		x.Fatalf("heartbeat of %s is answered with %q, want %q", a.id, have, want)
	}
}

// changeAgent asks for a new status: for its version, or an outdated one.
func (x *machine) changeAgent() {
	id := x.member(isActive)
	match := int64(1 + x.below(3, "version"))
	if a := x.m.agents[id]; a != nil && x.chance("its version", 70) {
		match = a.version
	}
	change := picket.AgentStatusChange{
		Status: oneOf(x, "status", picket.AgentDraining, picket.AgentDraining, picket.AgentDraining,
			picket.AgentDeregistered, picket.AgentActive, picket.AgentDead),
	}
	if change.Status == picket.AgentDraining && x.chance("timeout", 60) {
		change.DrainTimeoutSeconds = kit.Ptr(oneOf(x, "drain timeout", 30, 60, 90, 0))
	}
	by, caller := x.caller()
	x.changeBy(by, caller, id, match, change)
}

func (x *machine) changeBy(by modelCaller, caller picket.Caller, id string, match int64,
	change picket.AgentStatusChange) {
	got, err := x.e.ChangeAgent(x.ctx, caller, id, []int64{match}, change)
	a, code := x.m.change(by, id, match, change.Status, change.DrainTimeoutSeconds)
	if x.agree(err, code, "%s to %s by %+v for version %d", id, change.Status, by, match) {
		x.checkAgent("change", got, a)
	}
}

func (m *model) busy(a *modelAgent) bool {
	return (a.status == picket.AgentActive || a.status == picket.AgentUnhealthy) &&
		len(m.holding(a.id, a.incarnation)) > 0
}

// outwaitDrain drains an agent that holds leases, and waits for what comes first:
// the deadline, or the end of its silence.
func (x *machine) outwaitDrain() {
	id := x.member(x.m.busy)
	a := x.m.agents[id]
	if a == nil {
		return
	}
	by := modelCaller{key: "key_a", operator: true}
	timeout := oneOf(x, "drain timeout", 30, 90, 300)
	x.changeBy(by, picket.Caller{Actor: by.key, Operator: true}, id, a.version,
		picket.AgentStatusChange{Status: picket.AgentDraining, DrainTimeoutSeconds: &timeout})
	x.silence()
	if x.chance("judged", 60) {
		x.judge()
	}
}

func (x *machine) deregister() {
	id := x.member(isActive)
	by, caller := x.caller()
	got, err := x.e.Deregister(x.ctx, caller, id, nil)
	a, code := x.m.change(by, id, 0, picket.AgentDeregistered, nil)
	if x.agree(err, code, "deregister %s by %+v", id, by) {
		x.checkAgent("deregister", got, a)
	}
}

func (x *machine) command() {
	id := x.member(isActive)
	by, caller := x.caller()
	o, repeatable := x.once("command" + by.key + id)
	caller.Idempotency = repeatable.Idempotency
	c := picket.AgentCommand{
		Command: oneOf(x, "command", picket.CommandDrain, picket.CommandPing, picket.CommandStopTask),
	}
	switch c.Command {
	case picket.CommandDrain:
		if x.chance("timeout", 50) {
			c.DrainTimeoutSeconds = kit.Ptr(oneOf(x, "drain timeout", 30, 60))
		}
	case picket.CommandStopTask:
		c.TaskID = x.pick("task", x.m.ids, kit.NoTask)
	}
	x.commandBy(o, by, caller, id, c)
}

func (x *machine) commandBy(o requestID, by modelCaller, caller picket.Caller, id string, c picket.AgentCommand) {
	got, err := x.e.CommandAgent(x.ctx, caller, id, c)
	want, code := x.m.command(o, by, id, got, c)
	if x.agree(err, code, "%s for %s by %+v", c.Command, id, by) {
		x.same("command", got, want)
	}
}

// judge judges all who are due; one by one where a step ends few leases, or it
// would depend on milliseconds whose are ended at once.
func (x *machine) judge() {
	looked, limit := 0, max(1, x.m.batch)
	for {
		n, err := x.e.JudgeAgents(x.ctx, limit)
		x.ok(err)
		if looked += n; n < limit {
			break
		}
	}
	judged := x.m.judgeAll()
	if x.anySession(isLive)() { // the looks at their health count as well
		judged = max(judged, looked)
	}
	x.same("judge", looked, judged)
}
