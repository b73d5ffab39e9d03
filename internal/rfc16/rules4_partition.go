package rfc16

// partition is the story of section 4.6: an agent that holds two tasks cannot be
// reached, another takes one of them over, and the first comes back.
type partition struct {
	a           *agent
	b           *agent
	old         *lease
	kept        *lease // of the first agent; kept stays queued until the end
	replacement *lease
	unhealthy   *answer // the record
	dead        *answer
	lost        []event // ends of both leases
	heartbeat   *answer // after the network has recovered
	write       *answer // of the old lease
	renewal     *answer
	taken       *answer // write under the lease that was taken over
	again       *answer // registration
	afterwards  *answer // write of the old lease after that
}

func partitionScenario(t *Trial) partition {
	return runShared(t, "partition", func(t *Trial) partition {
		t.markLog()
		a := t.register(t.shortThresholds())
		p := partition{a: a, old: t.newLease(a), kept: t.newLease(a)}
		p.unhealthy = a.fallSilent("unhealthy")
		t.Sleep(seconds(t.cfg.Dead - t.cfg.Unhealthy))
		p.dead = a.awaitStatus("dead", t.cfg.Slack)
		p.lost = []event{p.old.awaitExpired(t.cfg.Slack), p.kept.awaitExpired(t.cfg.Slack)}
		p.b = t.register(nil)
		p.replacement = p.b.mustAcquire()
		p.heartbeat = a.heartbeat(owner, "active", nil)
		p.write, p.renewal = p.old.write(), p.old.renew()
		p.taken = p.replacement.write()
		a.body = merge(a.body, fields{"heartbeat_config": fields{}})
		p.again = a.reregister(owner)
		p.afterwards = p.old.write()
		return p
	})
}

// Section 4.6: network partition behaviour.
var partitionChecks = checks{
	"4.6/2": func(t *Trial) {
		t.ExpectMember(partitionScenario(t).unhealthy, "status", "unhealthy")
	},
	"4.6/3": func(t *Trial) {
		p := partitionScenario(t)
		t.ExpectMember(p.dead, "status", "dead")
		for _, e := range p.lost {
			t.ExpectEqual("reason", e.str("reason"), "agent_dead")
		}
	},
	"4.6/4": func(t *Trial) {
		p := partitionScenario(t)
		t.Assert(p.replacement.task == p.old.task || p.replacement.task == p.kept.task, p.replacement.previous,
			"one of the dead agent's tasks")
		t.Assert(p.replacement.fence > p.old.fence, p.replacement.previous, "a fencing token above %d", p.old.fence)
	},
	"4.6/5-6": func(t *Trial) {
		t.ExpectStatus(partitionScenario(t).heartbeat, 410)
	},
	"4.6/7": func(t *Trial) {
		p := partitionScenario(t)
		t.ExpectStatus(p.again, 201)
		t.ExpectStatus(p.afterwards, 412)
	},
	"4.6/8": func(t *Trial) {
		p := partitionScenario(t)
		t.ExpectStatus(p.write, 412)
		t.ExpectStatus(p.renewal, 412)
		t.ExpectStatus(p.taken, 200)
	},
	"4.6/8-code": func(t *Trial) {
		p := partitionScenario(t)
		want := "lease_expired"
		if p.replacement.task == p.old.task {
			want = "stale_fence"
		}
		t.ExpectCode(p.write, 412, want)
	},
}
