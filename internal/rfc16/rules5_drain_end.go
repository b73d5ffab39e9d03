package rfc16

// overdueDrain is the story of a drain whose deadline passes while leases are
// held, although the agent goes on sending heartbeats.
type overdueDrain struct {
	a         *agent
	l         *lease
	m         *lease
	record    *answer
	write     *answer
	lost      [2]event
	warning   event
	took      *lease
	before    event
	at        event // the lifecycle events of the drain's begin and end
	heartbeat *answer
}

func overdueScenario(t *Trial) overdueDrain {
	return runShared(t, "overdue", func(t *Trial) overdueDrain {
		t.markLog()
		a := t.register(nil)
		d := overdueDrain{a: a, l: t.newLease(a), m: t.newLease(a)}
		a.drain(t.cfg.DrainTimeout)
		for range 2 {
			t.Sleep(seconds(t.cfg.DrainTimeout) / 2)
			a.heartbeat(owner, "draining", nil)
		}
		d.record = a.awaitStatus("dead", t.cfg.Slack)
		d.write = d.l.write()
		d.heartbeat = a.heartbeat(owner, "draining", nil)
		d.lost = [2]event{d.l.awaitExpired(t.cfg.Slack), d.m.awaitExpired(t.cfg.Slack)}
		d.warning = t.awaitEvent(a.id, "", "agent.drain_overdue", t.cfg.Slack)
		life := a.expectLifecycle(moveRegistered, moveDrain, moveOverdue)
		d.before, d.at = life[1], life[2]
		d.took = t.register(nil).mustAcquire()
		return d
	})
}

// Section 5.2: how a drain ends, and 9.3.
var drainEndChecks = checks{
	"5.2/7": func(t *Trial) {
		d := overdueScenario(t)
		t.ExpectMember(d.record, "status", "dead")
		took, want := d.at.at().Sub(d.before.at()), seconds(t.cfg.DrainTimeout)
		t.Assert(took >= want && took < want+t.cfg.Slack, d.at.a, "dead %s after the drain began, not %s", want, took)
	},
	"5.2/7-warning": func(t *Trial) {
		t.ExpectEqual("type", overdueScenario(t).warning.str("type"), "agent.drain_overdue")
	},
	"5.2/7-leases": func(t *Trial) {
		t.ExpectStatus(overdueScenario(t).write, 412)
	},
	"5.2/7-tasks": func(t *Trial) {
		d := overdueScenario(t)
		t.Assert(d.took.task == d.l.task || d.took.task == d.m.task, d.took.previous,
			"one of the drained agent's tasks")
	},
	"5.2/7-reason": func(t *Trial) {
		d := overdueScenario(t)
		for _, e := range d.lost {
			t.ExpectEqual("reason", e.str("reason"), "drain_timeout")
			t.Assert(d.warning.seq() < d.at.seq() && d.at.seq() < e.seq(), e.a,
				"agent.drain_overdue, agent.lifecycle, lease.expired in this order")
		}
		t.ExpectMember(t.state(d.l.task), "failures", 0)
	},
	"5.2/7-whatever-heartbeats": func(t *Trial) {
		r := t.ExpectCode(overdueScenario(t).heartbeat, 410, "agent_gone")
		t.ExpectMember(r, "reason", "drain_timeout")
	},
	"5.2/none-held-at-deadline": func(t *Trial) {
		a := t.register(nil)
		a.drain(t.cfg.DrainTimeout)
		t.Sleep(seconds(t.cfg.DrainTimeout))
		a.awaitStatus("deregistered", t.cfg.Slack)
		a.expectLifecycle(moveRegistered, moveDrain, moveDrained)
	},
	"5.2/none-held-next-heartbeat": func(t *Trial) {
		a := t.register(nil)
		t.ExpectMember(a.drain(600), "status", "draining")
		t.ExpectMember(a.mustHeartbeat(), "agent_status", "deregistered")
		a.expect("deregistered")
		t.ExpectCode(a.heartbeat(owner, "draining", nil), 410, "agent_gone")
		a.expectLifecycle(moveRegistered, moveDrain, moveDrained)
	},
	"5.2/none-held-one-interval": func(t *Trial) {
		a := t.register(t.unhealthyOnlyThresholds())
		a.drain(100_000)
		a.silentOnPurpose = true
		t.Sleep(seconds(t.cfg.Interval))
		a.awaitStatus("deregistered", t.cfg.Slack)
		a.expectLifecycle(moveRegistered, moveDrain, moveDrained)
	},
	"5.2/deadline-fixed": func(t *Trial) {
		a := t.newDrainingAgent(nil)
		was := a.record().Str("drain_deadline_at")
		t.Assert(was != "", t.Last, "a drain_deadline_at")
		t.ExpectStatus(a.change(owner, fields{"status": "draining", "drain_timeout_seconds": 5}), 200)
		t.ExpectStatus(a.heartbeat(owner, "draining", nil), 200)
		t.ExpectEqual("drain_deadline_at", a.record().Str("drain_deadline_at"), was)
	},
	"9.3/leases-stay": func(t *Trial) {
		_, l := t.newDrainingHolder(nil)
		l.expectHeld()
		t.ExpectStatus(l.complete(), 200)
	},
	"9.3/no-new-leases": func(t *Trial) {
		a := t.newDrainingAgent(nil)
		t.submit(nil)
		t.ExpectRefused(a.acquire(owner, nil))
	},
	"9.3/no-new-leases-409": func(t *Trial) {
		a := t.newDrainingAgent(nil)
		t.submit(nil)
		t.ExpectCode(a.acquire(owner, fields{"waitSeconds": 20}), 409, "agent_draining")
		b := t.register(nil)
		t.newLease(b)
		waiting := make(chan *answer, 1)
		go func() { waiting <- t.s.Do(t.Ctx, longPoll(b, t.s.Keys[owner])) }()
		t.Sleep(2 * t.cfg.Poll)
		b.drain(600)
		r := <-waiting
		t.ExpectCode(r, 409, "agent_draining")
	},
	"9.3/all-released": func(t *Trial) {
		a, l := t.newDrainingHolder(nil)
		t.ExpectStatus(l.release(), 200)
		a.awaitStatus("deregistered", t.cfg.Slack)
	},
}

// longPoll is a long poll that finds no work: its tag is nobody's.
func longPoll(a *agent, key string) request {
	return request{By: owner, Secret: key, Method: "POST", URL: a.t.s.Base + "/api/v1/leases",
		Body: fields{"agentId": a.id, "pinnedOnly": true, "waitSeconds": 20}}
}
