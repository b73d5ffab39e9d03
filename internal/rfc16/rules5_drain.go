package rfc16

import (
	"fmt"
	"time"
)

// Sections 5.1 and 5.2, up to the end of a drain.
var drainChecks = checks{
	"5.1/request": func(t *Trial) {
		a := t.register(nil)
		r := t.ExpectStatus(a.changeIf(owner, `"1"`, fields{"status": "draining", "drain_timeout_seconds": 120}), 200)
		t.Assert(r.Str("status") == "draining" || r.Str("status") == "deregistered", r, "status draining")
	},
	"5.1/version-conflict": func(t *Trial) {
		a := t.register(nil)
		for _, wrong := range []string{`"2"`, `"0"`, `"14"`} {
			t.ExpectStatus(a.changeIf(owner, wrong, fields{"status": "draining"}), 409, 412)
		}
		t.ExpectMember(a.expect("active"), "version", 1)
	},
	"5.1/version-conflict-409": func(t *Trial) {
		r := t.ExpectCode(t.register(nil).changeIf(owner, `"7"`, fields{"status": "draining"}), 409, "version_conflict")
		t.ExpectMember(r, "presented", 7)
		t.ExpectMember(r, "current", 1)
	},
	"5.1/if-match-required": func(t *Trial) {
		a := t.register(nil)
		t.ExpectCode(a.changeIf(owner, "", fields{"status": "draining"}), 428, "precondition_required")
		a.expect("active")
	},
	"5.1/if-match-forms": func(t *Trial) {
		for _, good := range []string{`"1"`, `W/"1"`, `1`, `*`} {
			t.ExpectStatus(t.register(nil).changeIf(owner, good, fields{"status": "draining"}), 200)
		}
	},
	"5.1/if-match-unparsable": func(t *Trial) {
		a := t.register(nil)
		for _, bad := range []string{`"one"`, `"1`, `"-1"`, `"1.5"`, `W/`} {
			t.ExpectCode(a.changeIf(owner, bad, fields{"status": "draining"}), 400, "validation_failed")
		}
		a.expect("active")
	},
	"5.1/answer": func(t *Trial) {
		a := t.register(nil)
		for n, r := range []*answer{a.drain(600), a.remove()} {
			t.ExpectStatus(r, 200)
			t.ExpectMember(r, "agent_id", a.id)
			t.ExpectEqual("ETag", r.Header.Get("ETag"), fmt.Sprintf(`"%d"`, r.Num("version")))
			t.ExpectEqual("version", r.Num("version"), n+2)
		}
	},
	"5.1/timeout-optional": func(t *Trial) {
		for _, want := range []struct {
			body fields
			in   time.Duration
		}{{nil, 120 * time.Second}, {fields{"drain_timeout_seconds": 77}, 77 * time.Second}} {
			a := t.register(want.body)
			before := t.ExpectTime(a.mustHeartbeat(), "server_timestamp")
			r := t.ExpectStatus(a.change(owner, fields{"status": "draining"}), 200)
			left := t.ExpectTime(r, "drain_deadline_at").Sub(before)
			t.Assert(left >= want.in && left < want.in+t.cfg.Slack, r, "drain_deadline_at %s from now", want.in)
		}
	},
	"5.1/timeout-checked": func(t *Trial) {
		a := t.register(nil)
		for _, bad := range []any{-1, "120", 1.5} {
			t.ExpectRefused(a.changeIf(owner, `"1"`, fields{"status": "draining", "drain_timeout_seconds": bad}))
		}
		a.expect("active")
	},
	"5.1/unknown-status": func(t *Trial) {
		a := t.register(nil)
		t.ExpectRefused(a.changeIf(owner, `"1"`, fields{"status": "asleep"}))
		t.ExpectRefused(a.changeIf(owner, `"1"`, fields{}))
		a.expect("active")
	},
	"5.1/unknown-agent": func(t *Trial) {
		t.ExpectStatus((&agent{t: t, id: t.ID("never")}).changeIf(owner, `"1"`, fields{"status": "draining"}), 404)
	},
	"5.1/check-order": func(t *Trial) {
		a, never, to := t.register(nil), &agent{t: t, id: t.ID("never")}, fields{"status": "draining"}
		t.ExpectCode(never.changeIf(nobody, "", to), 401, "unauthenticated")
		t.ExpectCode(never.changeIf(stranger, "", to), 428, "precondition_required")
		t.ExpectCode(never.changeIf(stranger, `"x"`, to), 400, "validation_failed")
		t.ExpectCode(never.changeIf(stranger, `"7"`, to), 404, "not_found")
		t.ExpectCode(a.changeIf(stranger, `"7"`, to), 403, "forbidden")
		t.ExpectCode(a.changeIf(owner, `"7"`, to), 409, "version_conflict")
		a.expect("active")
	},
	"5.2/1": func(t *Trial) {
		t.newDrainingAgent(nil).expect("draining")
	},
	"5.2/2": func(t *Trial) {
		a := t.register(nil)
		a.drain(600)
		life := a.lifecycleEvents()
		t.Assert(len(life) >= 2 && life[1].move() == moveDrain, t.Last, "an event %s", moveDrain)
	},
	"5.2/3": func(t *Trial) {
		tag := t.tag()
		a := t.register(fields{"capabilities": []string{tag}})
		b := t.register(fields{"capabilities": []string{tag}})
		a.drain(600)
		t.ExpectEqual("listed", t.listed("capabilities="+tag), []string{b.id})
	},
	"5.2/4": func(t *Trial) {
		a := t.newDrainingAgent(nil)
		for range 3 {
			t.ExpectMember(a.mustHeartbeat(), "agent_status", "draining")
		}
	},
	"5.2/5": func(t *Trial) {
		a := t.register(nil)
		l, m := t.newLease(a), t.newLease(a)
		a.drain(600)
		l.expectHeld()
		t.ExpectStatus(l.complete(), 200)
		m.expectHeld()
		t.ExpectStatus(m.release(), 200)
		t.ExpectMember(t.state(l.task), "failures", 0)
		t.ExpectMember(t.state(m.task), "failures", 0)
	},
	"5.2/6": func(t *Trial) {
		a := t.register(nil)
		l, m := t.newLease(a), t.newLease(a)
		a.drain(600)
		t.ExpectStatus(l.release(), 200)
		a.expect("draining")
		t.ExpectStatus(m.release(), 200)
		a.awaitStatus("deregistered", t.cfg.Slack)
		a.expectLifecycle(moveRegistered, moveDrain, moveDrained)
	},
	"5.2/6-at-once": func(t *Trial) {
		a, l := t.newDrainingHolder(nil)
		t.ExpectStatus(l.complete(), 200)
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
		t.Assert(lease > 0 && lease < done, t.Last, "the task's event before the agent's")
	},
}
