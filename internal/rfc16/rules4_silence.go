package rfc16

import "time"

// sendHeartbeats sends n heartbeats, an interval apart each.
func (a *agent) sendHeartbeats(n int) {
	a.mustHeartbeat()
	for range n {
		a.t.sleep(seconds(a.t.cfg.Interval))
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
		t.tooSlow("heartbeats came too late")
	}
	t.expectMember(seen, "status", "active")
	t.expectMember(t.expectStatus(r, 200), "agent_status", "active")
}

// silence is how long the agent had been silent when the server judged it.
func (t *Trial) silence(e event, heard time.Time) time.Duration { return e.at().Sub(heard) }

// Section 4.5: thresholds.
func silenceRules() []Rule {
	return []Rule{
		{"4.5", "unhealthy-threshold",
			"The server marks an agent unhealthy when now - last_heartbeat_at > unhealthy_after_seconds: not earlier, and then soon.", Events, func(t *Trial) {
				a := t.register(t.unhealthyOnlyThresholds())
				heard := t.expectTime(a.mustHeartbeat(), "server_timestamp")
				a.fallSilent("unhealthy")
				e := a.expectLifecycle(moveRegistered, moveUnhealthy)[1]
				s := t.silence(e, heard)
				t.assert(s > seconds(t.cfg.Unhealthy), e.a,
					"the event more than %ds after the last heartbeat at %s, not %s", t.cfg.Unhealthy, heard, s)
				t.assert(s < seconds(t.cfg.Unhealthy)+t.cfg.Slack, e.a, "the event at most %s late, not after %s",
					t.cfg.Slack, s)
			}, ""},
		{"4.5", "dead-threshold",
			"The server marks an agent dead when now - last_heartbeat_at > dead_after_seconds: not earlier, and then soon.", Events, func(t *Trial) {
				a := t.register(t.shortThresholds())
				heard := t.expectTime(a.mustHeartbeat(), "server_timestamp")
				a.fallSilent("dead")
				e := a.expectLifecycle(moveRegistered, moveUnhealthy, moveDead)[2]
				s := t.silence(e, heard)
				t.assert(s > seconds(t.cfg.Dead), e.a, "the event more than %ds after the last heartbeat at %s, not %s",
					t.cfg.Dead, heard, s)
				t.assert(s < seconds(t.cfg.Dead)+t.cfg.Slack, e.a, "the event at most %s late, not after %s",
					t.cfg.Slack, s)
			}, ""},
		{"4.5", "unhealthy-boundary",
			"Silence of exactly unhealthy_after_seconds is still fine: two heartbeats are missed entirely, the third comes 30 seconds late (with 30 and 90).", Exact | Events, func(t *Trial) {
				a := t.register(t.unhealthyOnlyThresholds())
				for range 4 {
					t.sleep(seconds(t.cfg.Unhealthy))
					a.expect("active")
					a.mustHeartbeat()
				}
				a.expectLifecycle(moveRegistered)
			}, ""},
		{"4.5", "unhealthy-beyond",
			"A millisecond more than unhealthy_after_seconds is unhealthy, whether a sweep has seen it or not.",
			Exact | Events | Settled, func(t *Trial) {
				a := t.register(t.unhealthyOnlyThresholds())
				t.sleep(seconds(t.cfg.Unhealthy) + time.Millisecond)
				t.expectMember(a.mustHeartbeat(), "agent_status", "active")
				a.expectLifecycle(moveRegistered, moveUnhealthy, moveResumed)
			}, ""},
		{"4.5", "dead-boundary",
			"Silence of exactly dead_after_seconds is still not dead: the heartbeat is acknowledged.", Exact | Events,
			func(t *Trial) {
				a := t.register(t.shortThresholds())
				t.sleep(seconds(t.cfg.Dead))
				a.expect("unhealthy")
				t.expectMember(a.mustHeartbeat(), "agent_status", "active")
				a.expectLifecycle(moveRegistered, moveUnhealthy, moveResumed)
			}, ""},
		{"4.5", "dead-beyond",
			"A millisecond more than dead_after_seconds is dead: the heartbeat is refused with 410, whether a sweep has seen it or not.", Exact | Events | Settled, func(t *Trial) {
				a := t.register(t.shortThresholds())
				t.sleep(seconds(t.cfg.Dead) + time.Millisecond)
				t.expectStatus(a.heartbeat(owner, "active", nil), 410)
				a.expectLifecycle(moveRegistered, moveUnhealthy, moveDead)
			}, ""},
		{"4.5", "dead-beyond-acquire",
			"A millisecond more than dead_after_seconds is dead for an acquire too; less than that is not.",
			Exact | Events | Tasks | Settled, func(t *Trial) {
				a := t.register(t.shortThresholds())
				t.submit(nil)
				t.sleep(seconds(t.cfg.Dead))
				a.mustAcquire()
				t.sleep(time.Millisecond)
				t.submit(nil)
				t.expectCode(a.acquire(owner, nil), 410, "agent_gone")
				a.expectLifecycle(moveRegistered, moveUnhealthy, moveDead)
			}, ""},
		{"4.5", "late-heartbeats",
			"As long as heartbeats arrive within unhealthy_after_seconds of the previous one, the agent remains active.", Events, func(t *Trial) {
				a := t.register(t.unhealthyOnlyThresholds())
				late := seconds(t.cfg.Unhealthy) * 3 / 4
				a.mustHeartbeat()
				for range 3 {
					t.sleep(late)
					a.stillActive(nil)
				}
				a.expectLifecycle(moveRegistered)
			}, ""},
		{"4.5", "growing-latency",
			"Progressive latency (50 ms, 1 s, 10 s, 30 s of a 30 s interval) makes no agent unhealthy.", Events,
			func(t *Trial) {
				a := t.register(t.unhealthyOnlyThresholds())
				interval := seconds(t.cfg.Interval)
				a.mustHeartbeat()
				for _, latency := range []time.Duration{interval / 600, interval / 30, interval / 3,
					interval * 9 / 10} {
					t.sleep(interval + latency)
					a.stillActive(nil)
				}
				a.expectLifecycle(moveRegistered)
			}, ""},
		{"4.5", "thresholds-of-each", "Each agent is judged by its own thresholds, side by side with others.", 0,
			func(t *Trial) {
				slow := t.register(thresholds(t.cfg.Interval, 50*t.cfg.Unhealthy, 100*t.cfg.Unhealthy))
				quick := t.register(t.unhealthyOnlyThresholds())
				quick.fallSilent("unhealthy")
				slow.expect("active")
			}, ""},
		{"4.5", "both-steps", "An agent that dies was unhealthy first: both events, in this order.", Events | Settled,
			func(t *Trial) {
				all := t.newDeadAgent(nil).expectLifecycle(moveRegistered, moveUnhealthy, moveDead)
				t.assert(all[1].seq() < all[2].seq(), all[2].a, "unhealthy before dead in the log")
			}, ""},
	}
}
