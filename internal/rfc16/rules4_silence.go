package rfc16

import "time"

// keepsUp sends n heartbeats, an interval apart each.
func (a *agent) keepsUp(n int) {
	a.alive()
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
	r := a.beat(a.key, "active", change)
	if t.cfg.Clock.Now().Sub(before) > seconds(t.cfg.Unhealthy) {
		t.spoiled("heartbeats came too late")
	}
	t.member(seen, "status", "active")
	t.member(t.status(r, 200), "agent_status", "active")
}

// silence is how long the server had not heard of the agent when it judged.
func (t *Trial) silence(e event, heard time.Time) time.Duration { return e.at().Sub(heard) }

// Section 4.5: thresholds.
func silenceRules() []Rule {
	return []Rule{
		{"4.5", "unhealthy-threshold",
			"The server marks an agent unhealthy when now - last_heartbeat_at > unhealthy_after_seconds: not earlier, and then soon.", Events, func(t *Trial) {
				a := t.register(t.lingering())
				heard := t.isTime(a.alive(), "server_timestamp")
				a.falls("unhealthy")
				e := a.moved(moveIn, moveUnwell)[1]
				s := t.silence(e, heard)
				t.that(s > seconds(t.cfg.Unhealthy), e.a,
					"the event more than %ds after the last heartbeat at %s, not %s", t.cfg.Unhealthy, heard, s)
				t.that(s < seconds(t.cfg.Unhealthy)+t.cfg.Slack, e.a, "the event at most %s late, not after %s",
					t.cfg.Slack, s)
			}, ""},
		{"4.5", "dead-threshold",
			"The server marks an agent dead when now - last_heartbeat_at > dead_after_seconds: not earlier, and then soon.", Events, func(t *Trial) {
				a := t.register(t.mortal())
				heard := t.isTime(a.alive(), "server_timestamp")
				a.falls("dead")
				e := a.moved(moveIn, moveUnwell, moveDead)[2]
				s := t.silence(e, heard)
				t.that(s > seconds(t.cfg.Dead), e.a, "the event more than %ds after the last heartbeat at %s, not %s",
					t.cfg.Dead, heard, s)
				t.that(s < seconds(t.cfg.Dead)+t.cfg.Slack, e.a, "the event at most %s late, not after %s", t.cfg.Slack,
					s)
			}, ""},
		{"4.5", "unhealthy-boundary",
			"Silence of exactly unhealthy_after_seconds is still fine: two heartbeats are missed entirely, the third comes 30 seconds late (with 30 and 90).", Exact | Events, func(t *Trial) {
				a := t.register(t.lingering())
				for range 4 {
					t.sleep(seconds(t.cfg.Unhealthy))
					a.expect("active")
					a.alive()
				}
				a.moved(moveIn)
			}, ""},
		{"4.5", "unhealthy-beyond",
			"A millisecond more than unhealthy_after_seconds is unhealthy, whether a sweep has seen it or not.",
			Exact | Events | Settled, func(t *Trial) {
				a := t.register(t.lingering())
				t.sleep(seconds(t.cfg.Unhealthy) + time.Millisecond)
				t.member(a.alive(), "agent_status", "active")
				a.moved(moveIn, moveUnwell, moveBack)
			}, ""},
		{"4.5", "dead-boundary",
			"Silence of exactly dead_after_seconds is still not dead: the heartbeat is acknowledged.", Exact | Events,
			func(t *Trial) {
				a := t.register(t.mortal())
				t.sleep(seconds(t.cfg.Dead))
				a.expect("unhealthy")
				t.member(a.alive(), "agent_status", "active")
				a.moved(moveIn, moveUnwell, moveBack)
			}, ""},
		{"4.5", "dead-beyond",
			"A millisecond more than dead_after_seconds is dead: the heartbeat is refused with 410, whether a sweep has seen it or not.", Exact | Events | Settled, func(t *Trial) {
				a := t.register(t.mortal())
				t.sleep(seconds(t.cfg.Dead) + time.Millisecond)
				t.status(a.beat(owner, "active", nil), 410)
				a.moved(moveIn, moveUnwell, moveDead)
			}, ""},
		{"4.5", "dead-beyond-acquire",
			"A millisecond more than dead_after_seconds is dead for an acquire too; less than that is not.",
			Exact | Events | Tasks | Settled, func(t *Trial) {
				a := t.register(t.mortal())
				t.submit(nil)
				t.sleep(seconds(t.cfg.Dead))
				a.takes()
				t.sleep(time.Millisecond)
				t.submit(nil)
				t.code(a.acquire(owner, nil), 410, "agent_gone")
				a.moved(moveIn, moveUnwell, moveDead)
			}, ""},
		{"4.5", "late-heartbeats",
			"As long as heartbeats arrive within unhealthy_after_seconds of the previous one, the agent remains active.", Events, func(t *Trial) {
				a := t.register(t.lingering())
				late := seconds(t.cfg.Unhealthy) * 3 / 4
				a.alive()
				for range 3 {
					t.sleep(late)
					a.stillActive(nil)
				}
				a.moved(moveIn)
			}, ""},
		{"4.5", "growing-latency",
			"Progressive latency (50 ms, 1 s, 10 s, 30 s of a 30 s interval) makes no agent unhealthy.", Events,
			func(t *Trial) {
				a := t.register(t.lingering())
				interval := seconds(t.cfg.Interval)
				a.alive()
				for _, latency := range []time.Duration{interval / 600, interval / 30, interval / 3,
					interval * 9 / 10} {
					t.sleep(interval + latency)
					a.stillActive(nil)
				}
				a.moved(moveIn)
			}, ""},
		{"4.5", "thresholds-of-each", "Each agent is judged by its own thresholds, side by side with others.", 0,
			func(t *Trial) {
				slow := t.register(thresholds(t.cfg.Interval, 50*t.cfg.Unhealthy, 100*t.cfg.Unhealthy))
				quick := t.register(t.lingering())
				quick.falls("unhealthy")
				slow.expect("active")
			}, ""},
		{"4.5", "both-steps", "An agent that dies was unhealthy first: both events, in this order.", Events | Settled,
			func(t *Trial) {
				all := t.dying(nil).moved(moveIn, moveUnwell, moveDead)
				t.that(all[1].seq() < all[2].seq(), all[2].a, "unhealthy before dead in the log")
			}, ""},
	}
}
