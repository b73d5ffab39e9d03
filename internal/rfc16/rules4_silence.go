package rfc16

import "time"

// sendHeartbeats sends n heartbeats, an interval apart each.
func (a *agent) sendHeartbeats(n int) {
	a.mustHeartbeat()
	for range n {
		a.t.Sleep(seconds(a.t.cfg.Interval))
		a.stillActive(nil)
	}
}

// stillActive looks at the agent and sends a heartbeat: both must find it
// active, unless this machine has let more time pass than its thresholds allow.
func (a *agent) stillActive(change fields) {
	t, before := a.t, a.sent
	seen := a.record()
	r := a.heartbeat(a.key, "active", change)
	if time.Since(before) > seconds(t.cfg.Unhealthy) {
		t.TooSlow("heartbeats came too late")
	}
	t.ExpectMember(seen, "status", "active")
	t.ExpectMember(t.ExpectStatus(r, 200), "agent_status", "active")
}

// expectSilence expects that the server judged an agent after a silence of more than a
// threshold in seconds, and not late.
func (t *Trial) expectSilence(e event, heard time.Time, threshold int) {
	s := e.at().Sub(heard)
	t.Assert(s > seconds(threshold), e.a, "the event more than %ds after the last heartbeat at %s, not %s", threshold,
		heard, s)
	t.Assert(s < seconds(threshold)+t.cfg.Slack, e.a, "the event at most %s late, not after %s", t.cfg.Slack, s)
}

// Section 4.5: thresholds.
var silenceChecks = checks{
	"4.5/unhealthy-threshold": func(t *Trial) {
		a := t.register(t.unhealthyOnlyThresholds())
		heard := t.ExpectTime(a.mustHeartbeat(), "server_timestamp")
		a.fallSilent("unhealthy")
		t.expectSilence(a.expectLifecycle(moveRegistered, moveUnhealthy)[1], heard, t.cfg.Unhealthy)
	},
	"4.5/dead-threshold": func(t *Trial) {
		a := t.register(t.shortThresholds())
		heard := t.ExpectTime(a.mustHeartbeat(), "server_timestamp")
		a.fallSilent("dead")
		t.expectSilence(a.expectLifecycle(moveRegistered, moveUnhealthy, moveDead)[2], heard, t.cfg.Dead)
	},
	"4.5/unhealthy-boundary": func(t *Trial) {
		a := t.register(t.unhealthyOnlyThresholds())
		for range 4 {
			t.Sleep(seconds(t.cfg.Unhealthy))
			a.expect("active")
			a.mustHeartbeat()
		}
		a.expectLifecycle(moveRegistered)
	},
	"4.5/unhealthy-beyond": func(t *Trial) {
		a := t.register(t.unhealthyOnlyThresholds())
		t.Sleep(seconds(t.cfg.Unhealthy) + time.Millisecond)
		t.ExpectMember(a.mustHeartbeat(), "agent_status", "active")
		a.expectLifecycle(moveRegistered, moveUnhealthy, moveResumed)
	},
	"4.5/dead-boundary": func(t *Trial) {
		a := t.register(t.shortThresholds())
		t.Sleep(seconds(t.cfg.Dead))
		a.expect("unhealthy")
		t.ExpectMember(a.mustHeartbeat(), "agent_status", "active")
		a.expectLifecycle(moveRegistered, moveUnhealthy, moveResumed)
	},
	"4.5/dead-beyond": func(t *Trial) {
		a := t.register(t.shortThresholds())
		t.Sleep(seconds(t.cfg.Dead) + time.Millisecond)
		t.ExpectStatus(a.heartbeat(owner, "active", nil), 410)
		a.expectLifecycle(moveRegistered, moveUnhealthy, moveDead)
	},
	"4.5/dead-beyond-acquire": func(t *Trial) {
		a := t.register(t.shortThresholds())
		t.submit(nil)
		t.Sleep(seconds(t.cfg.Dead))
		a.mustAcquire()
		t.Sleep(time.Millisecond)
		t.submit(nil)
		t.ExpectCode(a.acquire(owner, nil), 410, "agent_gone")
		a.expectLifecycle(moveRegistered, moveUnhealthy, moveDead)
	},
	"4.5/late-heartbeats": func(t *Trial) {
		a := t.register(t.unhealthyOnlyThresholds())
		late := seconds(t.cfg.Unhealthy) * 3 / 4
		a.mustHeartbeat()
		for range 3 {
			t.Sleep(late)
			a.stillActive(nil)
		}
		a.expectLifecycle(moveRegistered)
	},
	"4.5/growing-latency": func(t *Trial) {
		a := t.register(t.unhealthyOnlyThresholds())
		interval := seconds(t.cfg.Interval)
		a.mustHeartbeat()
		for _, latency := range []time.Duration{interval / 600, interval / 30, interval / 3, interval * 9 / 10} {
			t.Sleep(interval + latency)
			a.stillActive(nil)
		}
		a.expectLifecycle(moveRegistered)
	},
	"4.5/thresholds-of-each": func(t *Trial) {
		slow := t.register(thresholds(t.cfg.Interval, 50*t.cfg.Unhealthy, 100*t.cfg.Unhealthy))
		quick := t.register(t.unhealthyOnlyThresholds())
		quick.fallSilent("unhealthy")
		slow.expect("active")
	},
	"4.5/both-steps": func(t *Trial) {
		all := t.newDeadAgent(nil).expectLifecycle(moveRegistered, moveUnhealthy, moveDead)
		t.Assert(all[1].seq() < all[2].seq(), all[2].a, "unhealthy before dead in the log")
	},
}
