package rfc16

// Section 2.1: what each state means.
var stateChecks = checks{
	"2.1/registering": func(t *Trial) {
		a := t.register(nil)
		t.ExpectMember(a.reg, "status", "active")
		a.expect("active")
		all := t.ExpectStatus(t.Call(owner, "GET", agentsPath+"?status=registering", nil), 200, 400, 403)
		t.Assert(len(all.List("agents")) == 0, all, "no agent that is registering")
		t.ExpectRefused(a.change(owner, fields{"status": "registering"}))
	},
	"2.1/active": func(t *Trial) {
		a := t.register(nil)
		t.newLease(a).expectHeld()
		a.mustHeartbeat()
		a.expect("active")
	},
	"2.1/draining": func(t *Trial) {
		a, l := t.newDrainingHolder(nil)
		t.submit(nil)
		t.ExpectRefused(a.acquire(owner, nil))
		l.expectHeld()
	},
	"2.1/draining-ends": func(t *Trial) {
		a, l := t.newDrainingHolder(nil)
		a.expect("draining")
		t.ExpectStatus(l.complete(), 200)
		a.awaitStatus("deregistered", t.cfg.Slack)
	},
	"2.1/unhealthy": func(t *Trial) {
		t.newUnhealthyAgent(nil).expect("unhealthy")
	},
	"2.1/unhealthy-warns": func(t *Trial) {
		a := t.newUnhealthyAgent(nil)
		a.expectLifecycle(moveRegistered, moveUnhealthy)
	},
	"2.1/unhealthy-keeps-tasks": func(t *Trial) {
		_, l := t.newSilentHolder("unhealthy")
		t.register(nil).expectNoLease()
		t.ExpectMember(t.state(l.task), "state", "leased")
		l.expectHeld()
	},
	"2.1/unhealthy-recovers": recovers,
	"2.1/unhealthy-dies": func(t *Trial) {
		a := t.register(t.shortThresholds())
		a.fallSilent("unhealthy")
		t.Sleep(seconds(t.cfg.Dead - t.cfg.Unhealthy))
		a.awaitStatus("dead", t.cfg.Slack)
	},
	"2.1/dead": func(t *Trial) {
		_, held := t.newDeadHolder()
		for _, l := range held {
			t.ExpectCode(l.write(), 412, "lease_expired")
		}
	},
	"2.1/dead-frees-tasks": func(t *Trial) {
		_, l := t.newSilentHolder("dead")
		again := t.register(nil).mustAcquire()
		t.ExpectEqual("task", again.task, l.task)
	},
	"2.1/dead-record-kept":         recordKept("dead", (*Trial).newDeadAgent),
	"2.1/deregistered-record-kept": recordKept("deregistered", (*Trial).newDeregisteredAgent),
	"2.1/deregistered-is-out": func(t *Trial) {
		tag := t.tag()
		a := t.register(fields{"capabilities": []string{tag}, "role_id": tag})
		t.ExpectEqual("listed", t.listed("capabilities="+tag+"&role_id="+tag), []string{a.id})
		a.remove()
		t.ExpectStatus(a.heartbeat(owner, "active", nil), 410)
		t.ExpectEqual("listed", t.listed("capabilities="+tag+"&role_id="+tag), []string{})
	},
	"2.1/deregistered-gets-no-work": func(t *Trial) {
		a := t.newDeregisteredAgent(nil)
		t.submit(nil)
		t.ExpectCode(a.acquire(owner, nil), 410, "agent_gone")
	},
}

// recovers checks that an unhealthy agent is active after its next heartbeat.
func recovers(t *Trial) {
	a := t.newUnhealthyAgent(nil)
	t.ExpectMember(a.mustHeartbeat(), "agent_status", "active")
	a.expect("active")
}

// recordKept checks that the record of an agent stays when the agent is gone.
func recordKept(status string, make func(*Trial, fields) *agent) func(*Trial) {
	return func(t *Trial) {
		r := make(t, fields{"name": "for audit", "metadata": fields{"n": 1}}).expect(status)
		t.ExpectMember(r, "name", "for audit")
		t.ExpectMember(r, "metadata", fields{"n": 1})
	}
}
