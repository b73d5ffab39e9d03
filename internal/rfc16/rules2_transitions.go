package rfc16

import "slices"

// Section 2.2: the valid transitions, and every other one refused.
func transitionRules() []Rule {
	rules := []Rule{
		{"2.2", "registering-active", "registering -> active: registration accepted by server.", 0, func(t *Trial) {
			a := t.register(nil)
			t.expectMember(a.reg, "status", "active")
			a.expect("active")
		}, ""},
		{"2.2", "active-draining", "active -> draining: agent sends drain request.", 0, func(t *Trial) {
			a := t.register(nil)
			r := a.drain(600)
			t.assert(r.str("status") == "draining" || r.str("status") == "deregistered", r, "status draining")
		}, ""},
		{"2.2", "active-unhealthy", "active -> unhealthy: no heartbeat received within unhealthy_after_seconds.", 0,
			func(t *Trial) {
				a := t.register(t.unhealthyOnlyThresholds())
				a.expect("active")
				a.fallSilent("unhealthy")
			}, ""},
		{"2.2", "unhealthy-active", "unhealthy -> active: heartbeat received (agent recovered).", 0, func(t *Trial) {
			a := t.newUnhealthyAgent(nil)
			a.mustHeartbeat()
			a.expect("active")
		}, ""},
		{"2.2", "unhealthy-dead", "unhealthy -> dead: no heartbeat received within dead_after_seconds.", Events,
			func(t *Trial) {
				t.newDeadAgent(nil).expectLifecycle(moveRegistered, moveUnhealthy, moveDead)
			}, ""},
		{"2.2", "unhealthy-draining", "unhealthy -> draining: agent sends drain request while unhealthy.", 0,
			func(t *Trial) {
				a := t.newUnhealthyAgent(nil)
				r := a.drain(600)
				t.assert(r.str("status") == "draining" || r.str("status") == "deregistered", r, "status draining")
			}, ""},
		{"2.2", "draining-deregistered", "draining -> deregistered: all current tasks completed.", Tasks | Events,
			func(t *Trial) {
				a, l := t.newDrainingHolder(nil)
				t.expectStatus(l.release(), 200)
				a.awaitStatus("deregistered", t.cfg.Slack)
				a.expectLifecycle(moveRegistered, moveDrain, moveDrained)
			}, ""},
		{"2.2", "draining-deregistered-by-time",
			"draining -> deregistered: drain timeout expired, no task in progress.", 0, func(t *Trial) {
				a := t.register(nil)
				a.drain(t.cfg.DrainTimeout)
				t.sleep(seconds(t.cfg.DrainTimeout))
				a.awaitStatus("deregistered", t.cfg.Slack)
			}, ""},
		{"2.2", "draining-dead",
			"draining -> dead: drain timeout expired with tasks still in progress and no heartbeats.", Tasks,
			func(t *Trial) {
				a, _ := t.newHolder(nil)
				a.drain(t.cfg.DrainTimeout)
				t.sleep(seconds(t.cfg.DrainTimeout))
				a.awaitStatus("dead", t.cfg.Slack)
			}, ""},
		{"2.2", "draining-dead-in-silence",
			"A draining agent that falls silent skips unhealthy: silent for longer than dead_after_seconds it is dead, before its deadline.", Tasks | Events | Settled, func(t *Trial) {
				a, _ := t.newHolder(t.shortThresholds())
				a.drain(100_000)
				a.fallSilent("dead")
				a.expectLifecycle(moveRegistered, moveDrain, moveSilent)
			}, ""},
		{"2.2", "dead-active", "dead -> active: agent re-registers with the same agent_id.", 0, func(t *Trial) {
			a := t.newDeadAgent(nil)
			t.expectStatus(a.reregister(owner), 201)
			a.expect("active")
			a.mustHeartbeat()
		}, ""},
		{"2.2", "dead-active-starts-fresh", "dead -> active: previous leases remain expired; agent starts fresh.",
			Tasks, func(t *Trial) {
				a := t.register(t.shortThresholds())
				t.expectStatus(a.heartbeat(owner, "active", fields{"current_load": 4}), 200)
				l := t.newLease(a)
				a.fallSilent("dead")
				a.body = merge(a.body, fields{"heartbeat_config": fields{}})
				r := t.expectStatus(a.reregister(owner), 201)
				t.expectMember(r, "capacity.current_load", 0)
				t.expectCode(l.write(), 412, "lease_expired")
				t.expectCode(l.renew(), 412, "lease_expired")
				t.expectEqual("task", a.mustAcquire().task, l.task)
				t.expectCode(l.write(), 412, "stale_fence")
			}, ""},
		{"2.2", "deregistered-active", "deregistered -> active: allowed by a new registration.", Settled,
			func(t *Trial) {
				a := t.newDeregisteredAgent(nil)
				t.expectStatus(a.reregister(owner), 201)
				a.expect("active")
				a.mustHeartbeat()
			}, ""},
	}
	for _, from := range []struct {
		status string
		legal  []string
		make   func(*Trial, fields) *agent
		needs  Needs
	}{
		{"active", []string{"draining", "deregistered"}, (*Trial).register, 0},
		{"unhealthy", []string{"draining", "deregistered"}, func(t *Trial, _ fields) *agent {
			a, _ := t.newSilentHolder("unhealthy")
			return a
		}, Tasks},
		{"draining", []string{"deregistered"}, (*Trial).newDrainingAgent, Tasks},
		{"dead", nil, (*Trial).newDeadAgent, 0},
		{"deregistered", nil, (*Trial).newDeregisteredAgent, 0},
	} {
		for _, to := range []string{"registering", "active", "unhealthy", "draining", "dead", "deregistered"} {
			switch {
			case from.status == to:
				rules = append(rules, sameStatus(to, from.needs, from.make))
			case slices.Contains(from.legal, to):
				rules = append(rules, legal(from.status, to, from.needs, from.make))
			default:
				rules = append(rules, illegal(from.status, to, from.needs, from.make))
			}
		}
	}
	return rules
}

func illegal(from, to string, needs Needs, make func(*Trial, fields) *agent) Rule {
	return Rule{"2.2", "no-" + from + "-to-" + to,
		"PATCH from " + from + " to " + to + " is refused with 409, changes nothing and writes no event.",
		needs | Events | Settled, func(t *Trial) {
			a := make(t, nil)
			before, moves := a.expect(from), len(a.lifecycleEvents())
			t.expectCode(a.changeIf(owner, before.header.Get("ETag"), fields{"status": to}), 409, "state_conflict")
			t.expectMember(a.expect(from), "version", before.num("version"))
			t.expectEqual("number of lifecycle events", len(a.lifecycleEvents()), moves)
		}, ""}
}

func legal(from, to string, needs Needs, make func(*Trial, fields) *agent) Rule {
	return Rule{"2.2", from + "-to-" + to + "-by-patch",
		"PATCH from " + from + " to " + to +
			" answers 200 with the record, its ETag and the next version, and writes one event.",
		needs | Events | Settled, func(t *Trial) {
			a := make(t, nil)
			before, moves := a.expect(from), len(a.lifecycleEvents())
			r := t.expectStatus(a.changeIf(owner, before.header.Get("ETag"), fields{"status": to}), 200)
			t.expectMember(r, "status", to)
			t.expectMember(r, "version", before.num("version")+1)
			t.expectEqual("ETag", r.header.Get("ETag"), `"`+oneLineJSON(before.num("version")+1)+`"`)
			life := a.lifecycleEvents()
			reason := map[string]string{"draining": "drain_initiated", "deregistered": "deregistered"}[to]
			t.expectEqual("number of lifecycle events", len(life), moves+1)
			t.expectEqual("the last one", life[len(life)-1].move(), from+" "+to+" "+reason)
		}, ""}
}

func sameStatus(status string, needs Needs, make func(*Trial, fields) *agent) Rule {
	return Rule{"2.2", status + "-again",
		"PATCH to " + status + ", which it is already, answers 200, changes nothing and writes no event.",
		needs | Events | Settled, func(t *Trial) {
			a := make(t, nil)
			before, moves := a.expect(status), len(a.lifecycleEvents())
			r := t.expectStatus(a.changeIf(owner, before.header.Get("ETag"), fields{"status": status}), 200)
			t.expectMember(r, "version", before.num("version"))
			t.expectEqual("drain_deadline_at", r.str("drain_deadline_at"), before.str("drain_deadline_at"))
			t.expectEqual("number of lifecycle events", len(a.lifecycleEvents()), moves)
		}, ""}
}
