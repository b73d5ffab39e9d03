package rfc16

// Section 2.1: what each state means.
func stateRules() []Rule {
	return []Rule{
		{"2.1", "registering",
			"registering is transient and exists only during the registration handshake: no record ever shows it.", 0,
			func(t *Trial) {
				a := t.register(nil)
				t.member(a.reg, "status", "active")
				a.expect("active")
				all := t.status(t.call(owner, "GET", agentsPath+"?status=registering", nil), 200, 400, 403)
				t.that(len(all.list("agents")) == 0, all, "no agent that is registering")
				t.refused(a.change(owner, fields{"status": "registering"}))
			}, ""},
		{"2.1", "active",
			"active: agent is healthy and accepting tasks; heartbeats are arriving within the configured threshold.",
			Tasks, func(t *Trial) {
				a := t.register(nil)
				t.leased(a).held()
				a.alive()
				a.expect("active")
			}, ""},
		{"2.1", "draining", "draining: not accepting new tasks, finishing current work.", Tasks, func(t *Trial) {
			a := t.register(nil)
			l := t.leased(a)
			a.drain(600)
			t.submit(nil)
			t.refused(a.acquire(owner, nil))
			l.held()
		}, ""},
		{"2.1", "draining-ends", "draining transitions to deregistered when all tasks complete.", Tasks,
			func(t *Trial) {
				a := t.register(nil)
				l := t.leased(a)
				a.drain(600)
				a.expect("draining")
				t.status(l.complete(), 200)
				a.becomes("deregistered", t.cfg.Slack)
			}, ""},
		{"2.1", "unhealthy", "unhealthy: agent has missed heartbeats beyond unhealthy_after_seconds.", 0,
			func(t *Trial) {
				t.unwell(nil).expect("unhealthy")
			}, ""},
		{"2.1", "unhealthy-warns", "unhealthy: the server emits a warning event.", Events, func(t *Trial) {
			a := t.unwell(nil)
			a.moved(moveIn, moveUnwell)
		}, ""},
		{"2.1", "unhealthy-keeps-tasks", "unhealthy: the server does not reassign tasks.", Tasks, func(t *Trial) {
			a := t.register(t.lingering())
			l := t.leased(a)
			a.falls("unhealthy")
			t.register(nil).findsNothing()
			t.member(t.state(l.task), "state", "leased")
			l.held()
		}, ""},
		{"2.1", "unhealthy-recovers", "unhealthy: if heartbeats resume, transitions back to active.", 0,
			func(t *Trial) {
				a := t.unwell(nil)
				t.member(a.alive(), "agent_status", "active")
				a.expect("active")
			}, ""},
		{"2.1", "unhealthy-dies", "unhealthy: if silence continues, transitions to dead.", 0, func(t *Trial) {
			a := t.register(t.mortal())
			a.falls("unhealthy")
			t.sleep(seconds(t.cfg.Dead - t.cfg.Unhealthy))
			a.becomes("dead", t.cfg.Slack)
		}, ""},
		{"2.1", "dead", "dead: agent has missed heartbeats beyond dead_after_seconds; all held leases are expired.",
			Tasks, func(t *Trial) {
				a := t.register(t.mortal())
				l, m := t.leased(a), t.leased(a)
				a.falls("dead")
				for _, lost := range []*lease{l, m} {
					t.code(lost.write(), 412, "lease_expired")
				}
			}, ""},
		{"2.1", "dead-frees-tasks", "dead: tasks are eligible for reassignment.", Tasks, func(t *Trial) {
			a := t.register(t.mortal())
			l := t.leased(a)
			a.falls("dead")
			again := t.register(nil).takes()
			t.equal("task", again.task, l.task)
		}, ""},
		{"2.1", "dead-record-kept", "dead: the agent record is retained for audit.", 0, func(t *Trial) {
			a := t.dying(fields{"name": "for audit", "metadata": fields{"n": 1}})
			r := a.expect("dead")
			t.member(r, "name", "for audit")
			t.member(r, "metadata", fields{"n": 1})
		}, ""},
		{"2.1", "deregistered-record-kept", "deregistered: the agent record is retained for audit.", 0, func(t *Trial) {
			a := t.register(fields{"name": "for audit", "metadata": fields{"n": 1}})
			a.remove()
			r := a.expect("deregistered")
			t.member(r, "name", "for audit")
			t.member(r, "metadata", fields{"n": 1})
		}, ""},
		{"2.1", "deregistered-is-out", "deregistered: the agent is no longer a participant.", 0, func(t *Trial) {
			tag := t.tag()
			a := t.register(fields{"capabilities": []string{tag}, "role_id": tag})
			t.equal("listed", t.listed("capabilities="+tag+"&role_id="+tag), []string{a.id})
			a.remove()
			t.status(a.beat(owner, "active", nil), 410)
			t.equal("listed", t.listed("capabilities="+tag+"&role_id="+tag), []string{})
		}, ""},
		{"2.1", "deregistered-gets-no-work", "deregistered: an acquire of the agent is refused with 410.",
			Tasks | Settled, func(t *Trial) {
				a := t.register(nil)
				a.remove()
				t.submit(nil)
				t.code(a.acquire(owner, nil), 410, "agent_gone")
			}, ""},
	}
}
