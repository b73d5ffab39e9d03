package rfc16

import "time"

// skewed is a heartbeat whose client clock is off by some time from the
// server's, as of the answer before.
func (a *agent) skewed(server time.Time, by time.Duration) *answer {
	return a.t.status(a.beat(a.key, "active",
		fields{"client_timestamp": server.Add(by).UTC().Format(time.RFC3339Nano)}), 200)
}

// Section 4.5: clock drift.
func driftRules() []Rule {
	return []Rule{
		{"4.5", "drift-warning",
			"If client_timestamp and the server's receipt timestamp differ by more than twice interval_seconds, the server SHOULD log a drift warning.", Events, func(t *Trial) {
				// the interval is 30 s
				for _, off := range []time.Duration{-time.Hour, -80 * time.Second, 80 * time.Second, time.Hour} {
					a := t.register(nil)
					a.skewed(t.isTime(a.alive(), "server_timestamp"), off)
					t.awaitEvent(a.id, "", "agent.drift", t.cfg.Slack)
				}
			}, ""},
		{"4.5", "drift-within", "A difference within twice interval_seconds is no drift.", Events, func(t *Trial) {
			a := t.register(nil) // an interval of 30 s
			now := t.isTime(a.alive(), "server_timestamp")
			for _, off := range []time.Duration{0, 40 * time.Second, -40 * time.Second} {
				a.skewed(now, off)
			}
			t.equal("number of agent.drift events", len(t.events(a.id, "", "agent.drift")), 0)
		}, ""},
		{"4.5", "drift-boundary", "A difference of exactly twice interval_seconds is no drift, a millisecond more is.",
			Events | Exact, func(t *Trial) {
				a := t.register(nil)
				now := t.isTime(a.alive(), "server_timestamp")
				a.skewed(now, time.Minute)
				a.skewed(now, -time.Minute)
				t.equal("number of agent.drift events", len(t.events(a.id, "", "agent.drift")), 0)
				a.skewed(now, -time.Minute-time.Millisecond)
				t.equal("number of agent.drift events", len(t.events(a.id, "", "agent.drift")), 1)
			}, ""},
		{"4.5", "drift-once", "One event when the drift begins, another only after it had ended.", Events | Settled,
			func(t *Trial) {
				a := t.register(nil)
				for want := 1; want <= 2; want++ {
					now := t.isTime(a.alive(), "server_timestamp")
					for range 3 {
						a.skewed(now, time.Hour)
					}
					t.equal("number of agent.drift events", len(t.events(a.id, "", "agent.drift")), want)
				}
			}, ""},
		{"4.5", "client-clock-behind",
			"The server MUST NOT use client timestamps for health decisions: a clock that is years behind makes no agent unhealthy.", 0, func(t *Trial) {
				a := t.register(t.mortal())
				for range 3 {
					t.sleep(seconds(t.cfg.Interval))
					a.stillActive(fields{"client_timestamp": "1999-01-01T00:00:00Z"})
				}
			}, ""},
		{"4.5", "client-clock-ahead",
			"The server MUST NOT use client timestamps for health decisions: a clock that is years ahead keeps no agent alive.", 0, func(t *Trial) {
				a := t.register(t.mortal())
				t.status(a.beat(owner, "active", fields{"client_timestamp": "2199-01-01T00:00:00Z"}), 200)
				a.falls("dead")
			}, ""},
		{"4.5", "receipt-timestamps",
			"Only server-side receipt timestamps govern: last_heartbeat_at is when the server received it.", 0,
			func(t *Trial) {
				a := t.register(nil)
				for _, off := range []time.Duration{-1000 * time.Hour, 1000 * time.Hour} {
					before := t.isTime(a.alive(), "server_timestamp")
					after := t.isTime(a.skewed(before, off), "server_timestamp")
					t.that(after.Sub(before).Abs() < time.Hour, t.last, "server_timestamp by the server's clock")
					at := t.isTime(a.record(), "last_heartbeat_at")
					t.that(!at.Before(before) && !at.After(after), t.last, "last_heartbeat_at between %s and %s",
						before, after)
				}
			}, ""},
	}
}
