package rfc16

import (
	"fmt"
	"time"
)

// Sections 5.1 and 5.2, up to the end of a drain.
func drainRules() []Rule {
	return []Rule{
		{"5.1", "request",
			"PATCH /api/v1/agents/{agent_id}/status with If-Match and {status: draining, drain_timeout_seconds} starts a drain.", 0, func(t *Trial) {
				a := t.register(nil)
				r := t.expectStatus(a.changeIf(owner, `"1"`,
					fields{"status": "draining", "drain_timeout_seconds": 120}), 200)
				t.assert(r.str("status") == "draining" || r.str("status") == "deregistered", r, "status draining")
			}, ""},
		{"5.1", "version-conflict",
			"A version in If-Match that is not the current one is refused, and nothing changes.", 0, func(t *Trial) {
				a := t.register(nil)
				for _, wrong := range []string{`"2"`, `"0"`, `"14"`} {
					t.expectStatus(a.changeIf(owner, wrong, fields{"status": "draining"}), 409, 412)
				}
				t.expectMember(a.expect("active"), "version", 1)
			}, ""},
		{"5.1", "version-conflict-409",
			"A version conflict is 409 version_conflict and says which version was presented and which is current.",
			Settled, func(t *Trial) {
				r := t.expectCode(t.register(nil).changeIf(owner, `"7"`, fields{"status": "draining"}), 409,
					"version_conflict")
				t.expectMember(r, "presented", 7)
				t.expectMember(r, "current", 1)
			}, ""},
		{"5.1", "if-match-required", "A status update without If-Match is refused with 428.", Settled, func(t *Trial) {
			a := t.register(nil)
			t.expectCode(a.changeIf(owner, "", fields{"status": "draining"}), 428, "precondition_required")
			a.expect("active")
		}, ""},
		{"5.1", "if-match-forms", `If-Match may be strong ("1"), weak (W/"1"), without quotes (1) or *.`, Settled,
			func(t *Trial) {
				for _, good := range []string{`"1"`, `W/"1"`, `1`, `*`} {
					t.expectStatus(t.register(nil).changeIf(owner, good, fields{"status": "draining"}), 200)
				}
			}, ""},
		{"5.1", "if-match-unparsable", "An If-Match without a valid version is 400.", Settled, func(t *Trial) {
			a := t.register(nil)
			for _, bad := range []string{`"one"`, `"1`, `"-1"`, `"1.5"`, `W/`} {
				t.expectCode(a.changeIf(owner, bad, fields{"status": "draining"}), 400, "validation_failed")
			}
			a.expect("active")
		}, ""},
		{"5.1", "answer", "PATCH and DELETE answer 200 with the record and its ETag.", Settled, func(t *Trial) {
			a := t.register(nil)
			for n, r := range []*answer{a.drain(600), a.remove()} {
				t.expectStatus(r, 200)
				t.expectMember(r, "agent_id", a.id)
				t.expectEqual("ETag", r.header.Get("ETag"), fmt.Sprintf(`"%d"`, r.num("version")))
				t.expectEqual("version", r.num("version"), n+2)
			}
		}, ""},
		{"5.1", "timeout-optional", "drain_timeout_seconds absent: the registered drain_timeout_seconds, else 120.",
			Settled, func(t *Trial) {
				for _, want := range []struct {
					body fields
					in   time.Duration
				}{{nil, 120 * time.Second}, {fields{"drain_timeout_seconds": 77}, 77 * time.Second}} {
					a := t.register(want.body)
					before := t.expectTime(a.mustHeartbeat(), "server_timestamp")
					r := t.expectStatus(a.change(owner, fields{"status": "draining"}), 200)
					left := t.expectTime(r, "drain_deadline_at").Sub(before)
					t.assert(left >= want.in && left < want.in+t.cfg.Slack, r, "drain_deadline_at %s from now", want.in)
				}
			}, ""},
		{"5.1", "timeout-checked", "A drain_timeout_seconds that is not a number of seconds is refused.", 0,
			func(t *Trial) {
				a := t.register(nil)
				for _, bad := range []any{-1, "120", 1.5} {
					t.expectRefused(a.changeIf(owner, `"1"`,
						fields{"status": "draining", "drain_timeout_seconds": bad}))
				}
				a.expect("active")
			}, ""},
		{"5.1", "unknown-status", "A status that is invalid is refused, and so is a body without one.", 0, func(t *Trial) {
			a := t.register(nil)
			t.expectRefused(a.changeIf(owner, `"1"`, fields{"status": "asleep"}))
			t.expectRefused(a.changeIf(owner, `"1"`, fields{}))
			a.expect("active")
		}, ""},
		{"5.1", "unknown-agent", "A status update of an id that was never registered is 404.", Settled, func(t *Trial) {
			t.expectStatus((&agent{t: t, id: t.id("never")}).changeIf(owner, `"1"`, fields{"status": "draining"}), 404)
		}, ""},
		{"5.1", "check-order",
			"The first of these that is wrong answers: the key (401), a missing If-Match (428), an unparsable one (400), the id (404), whose it is (403), the version (409).", Settled | Stranger, func(t *Trial) {
				a, never, to := t.register(nil), &agent{t: t, id: t.id("never")}, fields{"status": "draining"}
				t.expectCode(never.changeIf(nobody, "", to), 401, "unauthenticated")
				t.expectCode(never.changeIf(stranger, "", to), 428, "precondition_required")
				t.expectCode(never.changeIf(stranger, `"x"`, to), 400, "validation_failed")
				t.expectCode(never.changeIf(stranger, `"7"`, to), 404, "not_found")
				t.expectCode(a.changeIf(stranger, `"7"`, to), 403, "forbidden")
				t.expectCode(a.changeIf(owner, `"7"`, to), 409, "version_conflict")
				a.expect("active")
			}, ""},
		{"5.2", "1", "The server transitions the agent to draining status.", 0, func(t *Trial) {
			t.newDrainingAgent(nil).expect("draining")
		}, ""},
		{"5.2", "2", "An agent.lifecycle event is emitted with reason drain_initiated.", Events, func(t *Trial) {
			a := t.register(nil)
			a.drain(600)
			life := a.lifecycleEvents()
			t.assert(len(life) >= 2 && life[1].move() == moveDrain, t.last, "an event %s", moveDrain)
		}, ""},
		{"5.2", "3", "The server stops including this agent in capability discovery results.", 0, func(t *Trial) {
			tag := t.tag()
			a := t.register(fields{"capabilities": []string{tag}})
			b := t.register(fields{"capabilities": []string{tag}})
			a.drain(600)
			t.expectEqual("listed", t.listed("capabilities="+tag), []string{b.id})
		}, ""},
		{"5.2", "4", "The agent continues sending heartbeats during drain.", Tasks, func(t *Trial) {
			a := t.newDrainingAgent(nil)
			for range 3 {
				t.expectMember(a.mustHeartbeat(), "agent_status", "draining")
			}
		}, ""},
		{"5.2", "5", "The agent completes its current tasks and releases leases normally.", Tasks, func(t *Trial) {
			a := t.register(nil)
			l, m := t.newLease(a), t.newLease(a)
			a.drain(600)
			l.expectHeld()
			t.expectStatus(l.complete(), 200)
			m.expectHeld()
			t.expectStatus(m.release(), 200)
			t.expectMember(t.state(l.task), "failures", 0)
			t.expectMember(t.state(m.task), "failures", 0)
		}, ""},
		{"5.2", "6",
			"When all leases held by the agent are released, the server transitions to deregistered: not before the last one.", Tasks | Events, func(t *Trial) {
				a := t.register(nil)
				l, m := t.newLease(a), t.newLease(a)
				a.drain(600)
				t.expectStatus(l.release(), 200)
				a.expect("draining")
				t.expectStatus(m.release(), 200)
				a.awaitStatus("deregistered", t.cfg.Slack)
				a.expectLifecycle(moveRegistered, moveDrain, moveDrained)
			}, ""},
		{"5.2", "6-at-once",
			"The drain is complete in the step in which the last lease ends, after the lease's own event.",
			Tasks | Events | Settled, func(t *Trial) {
				a, l := t.newDrainingHolder(nil)
				t.expectStatus(l.complete(), 200)
				a.expect("deregistered")
				all := t.events("", "", "task.review", "task.completed", "agent.lifecycle")
				lease, done := 0, 0
				for _, e := range all {
					switch {
					case e.str("taskId") == l.task:
						lease = e.seq()
					case e.str("agent_id") == a.id && e.str("new_status") == "deregistered":
						done = e.seq()
					}
				}
				t.assert(lease > 0 && lease < done, t.last, "the task's event before the agent's")
			}, ""},
	}
}
