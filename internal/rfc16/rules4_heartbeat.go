package rfc16

import (
	"maps"
	"slices"
	"strings"
)

// Sections 4.1 to 4.4.
var heartbeatChecks = checks{
	"4.1/request": func(t *Trial) {
		a := t.register(nil)
		t.ExpectStatus(a.heartbeat(owner, "active",
			fields{
				"current_load":      3,
				"tasks_in_progress": []string{"task_01H001", "task_01H002", "task_01H003"},
			}), 200)
	},
	"4.2/200": func(t *Trial) {
		r := t.register(nil).mustHeartbeat()
		t.Assert(strings.HasPrefix(r.Header.Get("Content-Type"), "application/json"), r,
			"Content-Type application/json")
	},
	"4.2/acknowledged":     func(t *Trial) { t.ExpectMember(t.register(nil).mustHeartbeat(), "acknowledged", true) },
	"4.2/server_timestamp": func(t *Trial) { t.ExpectTime(t.register(nil).mustHeartbeat(), "server_timestamp") },
	"4.2/agent_status":     func(t *Trial) { t.ExpectMember(t.register(nil).mustHeartbeat(), "agent_status", "active") },
	"4.2/pending_commands": func(t *Trial) {
		t.ExpectMember(t.register(nil).mustHeartbeat(), "pending_commands", []any{})
	},
	"4.2/four-members": func(t *Trial) {
		r := t.register(nil).mustHeartbeat()
		t.ExpectEqual("members", slices.Sorted(maps.Keys(r.Body)),
			[]string{"acknowledged", "agent_status", "pending_commands", "server_timestamp"})
	},
	"4.3/status-required": func(t *Trial) {
		t.ExpectRefused(t.register(nil).heartbeat(owner, "active", fields{"status": nil}))
	},
	"4.3/status-active-or-draining": func(t *Trial) {
		a := t.register(nil)
		for _, bad := range []any{"unhealthy", "dead", "deregistered", "registering", "ACTIVE", "", 1} {
			t.ExpectRefused(a.heartbeat(owner, "active", fields{"status": bad}))
		}
		a.expect("active")
	},
	"4.3/current_load": func(t *Trial) {
		a := t.register(nil)
		t.ExpectStatus(a.heartbeat(owner, "active", fields{"current_load": 3}), 200)
		a.mustHeartbeat()
		t.ExpectRefused(a.heartbeat(owner, "active", fields{"current_load": "3"}))
		t.ExpectRefused(a.heartbeat(owner, "active", fields{"current_load": -1}))
		t.ExpectMember(a.record(), "capacity.current_load", 3)
	},
	"4.3/tasks_in_progress": func(t *Trial) {
		a := t.register(nil)
		a.mustHeartbeat()
		t.ExpectStatus(a.heartbeat(owner, "active", fields{"tasks_in_progress": []string{}}), 200)
		t.ExpectRefused(a.heartbeat(owner, "active", fields{"tasks_in_progress": "task_01H001"}))
	},
	"4.3/tasks-without-lease": func(t *Trial) {
		a := t.register(nil)
		mine := t.newLease(a).task
		none := t.submit(nil)
		for range 2 {
			r := t.ExpectStatus(a.heartbeat(owner, "active", fields{"tasks_in_progress": []string{mine, none}}), 200)
			all := r.List("pending_commands")
			t.Assert(len(all) == 1, r, "one pending command, stop_task of %s", none)
			t.ExpectMember(&answer{Raw: r.Raw, Status: r.Status, Body: all[0]}, "command", "stop_task")
			t.ExpectEqual("task_id", text(all[0], "task_id"), none)
			t.ExpectEqual("command_id", text(all[0], "command_id"), "stop_"+none)
			t.ExpectEqual("reason", text(all[0], "reason"), "no_lease")
		}
		t.ExpectMember(t.ExpectStatus(a.heartbeat(owner, "active", fields{"tasks_in_progress": []string{mine}}),
			200),
			"pending_commands", []any{})
	},
	"4.3/client_timestamp-required": func(t *Trial) {
		a := t.register(nil)
		for _, bad := range []any{nil, "", "now", "2026-02-08", 1770546600} {
			t.ExpectRefused(a.heartbeat(owner, "active", fields{"client_timestamp": bad}))
		}
	},
	"4.3/client_timestamp-forms": func(t *Trial) {
		a := t.register(nil)
		for _, good := range []string{"2026-02-08T10:30:00Z", "2026-02-08T10:30:00.123456Z",
			"2026-02-08T12:30:00.5+02:00"} {
			t.ExpectStatus(a.heartbeat(owner, "active", fields{"client_timestamp": good}), 200)
		}
	},
	"4.3/refused-counts-nothing": func(t *Trial) {
		a := t.register(nil)
		before := a.record()
		t.Sleep(t.cfg.Poll)
		t.ExpectRefused(a.heartbeat(owner, "asleep", fields{"current_load": 9}))
		after := a.record()
		t.ExpectMember(after, "capacity.current_load", 0)
		t.ExpectEqual("last_heartbeat_at", after.Str("last_heartbeat_at"), before.Str("last_heartbeat_at"))
	},
	"4.3/unknown-member": func(t *Trial) {
		a := t.register(nil)
		t.ExpectCode(a.heartbeat(owner, "active", fields{"load": 3}), 400, "validation_failed")
		t.ExpectCode(a.changeIf(owner, `"1"`, fields{"status": "draining", "timeout": 3}), 400, "validation_failed")
		a.expect("active")
	},
	"4.4/resets-timer": func(t *Trial) {
		a := t.register(t.unhealthyOnlyThresholds())
		a.sendHeartbeats(t.cfg.Dead / t.cfg.Interval)
		a.fallSilent("unhealthy")
	},
	"4.4/resumed": recovers,
	"4.4/resumed-event": func(t *Trial) {
		a := t.newUnhealthyAgent(nil)
		a.mustHeartbeat()
		all := a.expectLifecycle(moveRegistered, moveUnhealthy, moveResumed)
		t.ExpectEqual("reason", all[2].str("reason"), "heartbeat_resumed")
	},
	"4.4/gone-when-dead":         refusesHeartbeats("dead", (*Trial).newDeadAgent),
	"4.4/gone-when-deregistered": refusesHeartbeats("deregistered", (*Trial).newDeregisteredAgent),
	"4.4/gone-says-why": func(t *Trial) {
		a := t.newDeadAgent(nil)
		r := t.ExpectCode(a.heartbeat(owner, "active", nil), 410, "agent_gone")
		t.ExpectMember(r, "agent_status", "dead")
		t.ExpectMember(r, "reason", "heartbeat_timeout")
		b := t.newDeregisteredAgent(nil)
		r = t.ExpectCode(b.heartbeat(owner, "active", nil), 410, "agent_gone")
		t.ExpectMember(r, "agent_status", "deregistered")
		t.ExpectMember(r, "reason", "deregistered")
	},
	"4.4/must-register-again": registersAgain,
	"4.4/unknown-agent": func(t *Trial) {
		t.ExpectStatus((&agent{t: t, id: t.ID("never")}).heartbeat(owner, "active", nil), 404)
	},
	"4.4/draining-by-itself": func(t *Trial) {
		a, _ := t.newHolder(nil)
		t.ExpectMember(t.ExpectStatus(a.heartbeat(owner, "draining", nil), 200), "agent_status", "draining")
		t.ExpectStatus(a.heartbeat(owner, "draining", nil), 200)
		t.ExpectMember(a.expect("draining"), "version", 2)
		a.expectLifecycle(moveRegistered, moveDrain)
	},
	"4.4/active-does-not-undo": func(t *Trial) {
		a := t.newDrainingAgent(nil)
		t.ExpectMember(a.mustHeartbeat(), "agent_status", "draining")
		a.expect("draining")
	},
	"4.4/unhealthy-says-draining": func(t *Trial) {
		a, _ := t.newSilentHolder("unhealthy")
		t.ExpectMember(t.ExpectStatus(a.heartbeat(owner, "draining", nil), 200), "agent_status", "draining")
		a.expectLifecycle(moveRegistered, moveUnhealthy, moveResumed, moveDrain)
	},
}

// refusesHeartbeats checks that an agent that is gone stays so, whatever it sends.
func refusesHeartbeats(status string, make func(*Trial, fields) *agent) func(*Trial) {
	return func(t *Trial) {
		a := make(t, nil)
		t.ExpectStatus(a.heartbeat(owner, "active", nil), 410)
		t.ExpectStatus(a.heartbeat(owner, "draining", nil), 410)
		a.expect(status)
	}
}

// registersAgain checks that a new registration ends the refusal of heartbeats.
func registersAgain(t *Trial) {
	a := t.newDeregisteredAgent(nil)
	t.ExpectStatus(a.heartbeat(owner, "active", nil), 410)
	t.ExpectStatus(a.reregister(owner), 201)
	a.mustHeartbeat()
}
