package rfc16

import "time"

// heartbeatSkewed is a heartbeat whose client clock is off by some time from the
// server's, as of the answer before.
func (a *agent) heartbeatSkewed(server time.Time, by time.Duration) *answer {
	return a.t.ExpectStatus(a.heartbeat(a.key, "active",
		fields{"client_timestamp": server.Add(by).UTC().Format(time.RFC3339Nano)}), 200)
}

// Section 4.5: clock drift.
var driftChecks = checks{
	"4.5/drift-warning": func(t *Trial) {
		// the interval is 30 s
		for _, off := range []time.Duration{-time.Hour, -80 * time.Second, 80 * time.Second, time.Hour} {
			a := t.register(nil)
			a.heartbeatSkewed(t.ExpectTime(a.mustHeartbeat(), "server_timestamp"), off)
			t.awaitEvent(a.id, "", "agent.drift", t.cfg.Slack)
		}
	},
	"4.5/drift-within": func(t *Trial) {
		a := t.register(nil) // an interval of 30 s
		now := t.ExpectTime(a.mustHeartbeat(), "server_timestamp")
		for _, off := range []time.Duration{0, 40 * time.Second, -40 * time.Second} {
			a.heartbeatSkewed(now, off)
		}
		t.ExpectEqual("number of agent.drift events", len(t.events(a.id, "", "agent.drift")), 0)
	},
	"4.5/drift-boundary": func(t *Trial) {
		a := t.register(nil)
		now := t.ExpectTime(a.mustHeartbeat(), "server_timestamp")
		a.heartbeatSkewed(now, time.Minute)
		a.heartbeatSkewed(now, -time.Minute)
		t.ExpectEqual("number of agent.drift events", len(t.events(a.id, "", "agent.drift")), 0)
		a.heartbeatSkewed(now, -time.Minute-time.Millisecond)
		t.ExpectEqual("number of agent.drift events", len(t.events(a.id, "", "agent.drift")), 1)
	},
	"4.5/drift-once": func(t *Trial) {
		a := t.register(nil)
		for want := 1; want <= 2; want++ {
			now := t.ExpectTime(a.mustHeartbeat(), "server_timestamp")
			for range 3 {
				a.heartbeatSkewed(now, time.Hour)
			}
			t.ExpectEqual("number of agent.drift events", len(t.events(a.id, "", "agent.drift")), want)
		}
	},
	"4.5/client-clock-behind": func(t *Trial) {
		a := t.register(t.shortThresholds())
		for range 3 {
			t.Sleep(seconds(t.cfg.Interval))
			a.stillActive(fields{"client_timestamp": "1999-01-01T00:00:00Z"})
		}
	},
	"4.5/client-clock-ahead": func(t *Trial) {
		a := t.register(t.shortThresholds())
		t.ExpectStatus(a.heartbeat(owner, "active", fields{"client_timestamp": "2199-01-01T00:00:00Z"}), 200)
		a.fallSilent("dead")
	},
	"4.5/receipt-timestamps": func(t *Trial) {
		a := t.register(nil)
		for _, off := range []time.Duration{-1000 * time.Hour, 1000 * time.Hour} {
			before := t.ExpectTime(a.mustHeartbeat(), "server_timestamp")
			after := t.ExpectTime(a.heartbeatSkewed(before, off), "server_timestamp")
			t.Assert(after.Sub(before).Abs() < time.Hour, t.Last, "server_timestamp by the server's clock")
			at := t.ExpectTime(a.record(), "last_heartbeat_at")
			t.Assert(!at.Before(before) && !at.After(after), t.Last, "last_heartbeat_at between %s and %s",
				before, after)
		}
	},
}
