package rfc16

import (
	"fmt"
	"time"
)

// Sections 5.1 and 5.2, up to the end of a drain.
var drainChecks = checks{
	"5.1/request": func(t *Trial) {
		a := t.register(nil)
		r := t.expectStatus(a.changeIf(owner, `"1"`, fields{"status": "draining", "drain_timeout_seconds": 120}), 200)
		t.assert(r.str("status") == "draining" || r.str("status") == "deregistered", r, "status draining")
	},
	"5.1/version-conflict": func(t *Trial) {
		a := t.register(nil)
		for _, wrong := range []string{`"2"`, `"0"`, `"14"`} {
			t.expectStatus(a.changeIf(owner, wrong, fields{"status": "draining"}), 409, 412)
		}
		t.expectMember(a.expect("active"), "version", 1)
	},
	"5.1/version-conflict-409": func(t *Trial) {
		r := t.expectCode(t.register(nil).changeIf(owner, `"7"`, fields{"status": "draining"}), 409, "version_conflict")
		t.expectMember(r, "presented", 7)
		t.expectMember(r, "current", 1)
	},
	"5.1/if-match-required": func(t *Trial) {
		a := t.register(nil)
		t.expectCode(a.changeIf(owner, "", fields{"status": "draining"}), 428, "precondition_required")
		a.expect("active")
	},
	"5.1/if-match-forms": func(t *Trial) {
		for _, good := range []string{`"1"`, `W/"1"`, `1`, `*`} {
			t.expectStatus(t.register(nil).changeIf(owner, good, fields{"status": "draining"}), 200)
		}
	},
	"5.1/if-match-unparsable": func(t *Trial) {
		a := t.register(nil)
		for _, bad := range []string{`"one"`, `"1`, `"-1"`, `"1.5"`, `W/`} {
			t.expectCode(a.changeIf(owner, bad, fields{"status": "draining"}), 400, "validation_failed")
		}
		a.expect("active")
	},
	"5.1/answer": func(t *Trial) {
		a := t.register(nil)
		for n, r := range []*answer{a.drain(600), a.remove()} {
			t.expectStatus(r, 200)
			t.expectMember(r, "agent_id", a.id)
			t.expectEqual("ETag", r.header.Get("ETag"), fmt.Sprintf(`"%d"`, r.num("version")))
			t.expectEqual("version", r.num("version"), n+2)
		}
	},
	"5.1/timeout-optional": func(t *Trial) {
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
	},
	"5.1/timeout-checked": func(t *Trial) {
		a := t.register(nil)
		for _, bad := range []any{-1, "120", 1.5} {
			t.expectRefused(a.changeIf(owner, `"1"`, fields{"status": "draining", "drain_timeout_seconds": bad}))
		}
		a.expect("active")
	},
	"5.1/unknown-status": func(t *Trial) {
		a := t.register(nil)
		t.expectRefused(a.changeIf(owner, `"1"`, fields{"status": "asleep"}))
		t.expectRefused(a.changeIf(owner, `"1"`, fields{}))
		a.expect("active")
	},
	"5.1/unknown-agent": func(t *Trial) {
		t.expectStatus((&agent{t: t, id: t.id("never")}).changeIf(owner, `"1"`, fields{"status": "draining"}), 404)
	},
	"5.1/check-order": func(t *Trial) {
		a, never, to := t.register(nil), &agent{t: t, id: t.id("never")}, fields{"status": "draining"}
		t.expectCode(never.changeIf(nobody, "", to), 401, "unauthenticated")
		t.expectCode(never.changeIf(stranger, "", to), 428, "precondition_required")
		t.expectCode(never.changeIf(stranger, `"x"`, to), 400, "validation_failed")
		t.expectCode(never.changeIf(stranger, `"7"`, to), 404, "not_found")
		t.expectCode(a.changeIf(stranger, `"7"`, to), 403, "forbidden")
		t.expectCode(a.changeIf(owner, `"7"`, to), 409, "version_conflict")
		a.expect("active")
	},
	"5.2/1": func(t *Trial) {
		t.newDrainingAgent(nil).expect("draining")
	},
	"5.2/2": func(t *Trial) {
		a := t.register(nil)
		a.drain(600)
		life := a.lifecycleEvents()
		t.assert(len(life) >= 2 && life[1].move() == moveDrain, t.last, "an event %s", moveDrain)
	},
	"5.2/3": func(t *Trial) {
		tag := t.tag()
		a := t.register(fields{"capabilities": []string{tag}})
		b := t.register(fields{"capabilities": []string{tag}})
		a.drain(600)
		t.expectEqual("listed", t.listed("capabilities="+tag), []string{b.id})
	},
	"5.2/4": func(t *Trial) {
		a := t.newDrainingAgent(nil)
		for range 3 {
			t.expectMember(a.mustHeartbeat(), "agent_status", "draining")
		}
	},
	"5.2/5": func(t *Trial) {
		a := t.register(nil)
		l, m := t.newLease(a), t.newLease(a)
		a.drain(600)
		l.expectHeld()
		t.expectStatus(l.complete(), 200)
		m.expectHeld()
		t.expectStatus(m.release(), 200)
		t.expectMember(t.state(l.task), "failures", 0)
		t.expectMember(t.state(m.task), "failures", 0)
	},
	"5.2/6": func(t *Trial) {
		a := t.register(nil)
		l, m := t.newLease(a), t.newLease(a)
		a.drain(600)
		t.expectStatus(l.release(), 200)
		a.expect("draining")
		t.expectStatus(m.release(), 200)
		a.awaitStatus("deregistered", t.cfg.Slack)
		a.expectLifecycle(moveRegistered, moveDrain, moveDrained)
	},
	"5.2/6-at-once": func(t *Trial) {
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
	},
}
