package rfc16

// Sections 9.1 and 9.2 (9.3 stands with the ends of drains), and the rationale
// about capacity.
var leaseChecks = checks{
	"9.1/1": func(t *Trial) {
		a := t.register(t.shortThresholds())
		held := []*lease{t.newLease(a), t.newLease(a), t.newLease(a)}
		spared := t.newLease(t.register(t.longThresholds()))
		a.fallSilent("dead")
		for _, l := range held {
			t.ExpectCode(l.write(), 412, "lease_expired")
		}
		spared.expectHeld()
	},
	"9.1/2": func(t *Trial) {
		_, held := t.newDeadHolder()
		for _, l := range held {
			t.ExpectEqual("reason", l.awaitExpired(t.cfg.Slack).str("reason"), "agent_dead")
		}
	},
	"9.1/3": func(t *Trial) {
		a, held := t.newDeadHolder()
		for _, l := range held {
			e := l.awaitExpired(t.cfg.Slack)
			t.ExpectEqual("agentId", e.str("agentId"), a.id)
			t.ExpectEqual("runId", e.str("runId"), l.run)
			t.ExpectEqual("number of lease.expired events", len(t.events("", l.task, "lease.expired")), 1)
		}
	},
	"9.1/4": func(t *Trial) {
		a := t.register(t.shortThresholds())
		held := map[string]*lease{}
		for range 2 {
			l := t.newLease(a)
			held[l.task] = l
		}
		a.fallSilent("dead")
		b := t.register(nil)
		for range 2 {
			l := b.mustAcquire()
			was := held[l.task]
			t.Assert(was != nil && l.fence > was.fence, l.previous,
				"a task of the dead agent under a higher fencing token")
			delete(held, l.task)
			l.expectHeld()
		}
	},
	"9.1/5": func(t *Trial) {
		a, l := t.newHolder(t.shortThresholds())
		b := t.register(t.longThresholds())
		a.silentOnPurpose = true
		t.Sleep(seconds(t.cfg.Dead))
		e := t.awaitEvent(a.id, "", "lease.expired", t.cfg.Slack)
		t.ExpectEqual("taskId", e.str("taskId"), l.task)
		t.ExpectEqual("task", b.mustAcquire().task, l.task)
	},
	"9.1/order": func(t *Trial) {
		a, held := t.newDeadHolder()
		death := a.expectLifecycle(moveRegistered, moveUnhealthy, moveDead)[2]
		for _, l := range held {
			e := l.awaitExpired(t.cfg.Slack)
			t.Assert(death.seq() < e.seq(), e.a, "agent.lifecycle (%d) before lease.expired (%d)", death.seq(), e.seq())
		}
	},
	"9.1/at-once": func(t *Trial) {
		_, l := t.newSilentHolder("dead")
		l.expectLost("lease_expired")
	},
	"9.1/failure": func(t *Trial) {
		_, l := t.newSilentHolder("dead")
		t.ExpectEqual("task", t.register(nil).mustAcquire().task, l.task)
		s := t.state(l.task)
		t.ExpectMember(s, "failures", 1)
		t.ExpectMember(s, "attempts", 2)
	},
	"9.1/timeout-is-not-death": func(t *Trial) {
		a := t.register(nil)
		task := t.submit(fields{"leaseWindowSeconds": 5})
		a.mustAcquire()
		t.Sleep(seconds(5))
		e := t.awaitEvent("", task, "lease.expired", t.cfg.Slack)
		t.Assert(e.str("reason") != "agent_dead", e.a, "an expiry by time")
		t.ExpectMember(a.expect("active"), "version", 1)
		a.expectLifecycle(moveRegistered)
		a.mustHeartbeat()
	},
	"9.1/unregistered-lives": func(t *Trial) {
		t.submit(nil)
		l := (&agent{t: t, id: t.ID("a1"), key: owner}).mustAcquire()
		a := t.register(t.shortThresholds())
		a.fallSilent("dead")
		l.expectHeld()
	},
	"9.2/leases-stay": func(t *Trial) {
		a, l := t.newSilentHolder("unhealthy")
		l.expectHeld()
		t.ExpectEqual("number of lease.expired events", len(t.events(a.id, "", "lease.expired")), 0)
		a.mustHeartbeat()
		l.expectHeld()
		t.ExpectStatus(l.complete(), 200)
	},
	"9.2/new-leases": func(t *Trial) {
		a := t.newUnhealthyAgent(nil)
		t.newLease(a).expectHeld()
		a.expect("unhealthy")
	},
	"9.2/may-choose": func(t *Trial) {
		tag, ids := t.registerPool(t.longThresholds(), t.unhealthyOnlyThresholds())
		t.agents[1].fallSilent("unhealthy")
		t.ExpectEqual("listed", t.listed("capabilities="+tag), ids[:1])
	},
	"Rationale/capacity-advisory": func(t *Trial) {
		a := t.register(fields{"capacity": fields{"max_concurrent_tasks": 1}})
		t.ExpectStatus(a.heartbeat(owner, "active", fields{"current_load": 1}), 200)
		t.newLease(a).expectHeld()
		t.newLease(a).expectHeld()
		t.ExpectStatus(a.heartbeat(owner, "active", fields{"current_load": 2}), 200)
	},
}
