package rfc16

import (
	"maps"
	"slices"
	"strings"
)

// Sections 4.1 to 4.4.
func heartbeatRules() []Rule {
	return []Rule{
		{"4.1", "request",
			"POST /api/v1/agents/{agent_id}/heartbeat takes status, current_load, tasks_in_progress and client_timestamp.", 0, func(t *Trial) {
				a := t.register(nil)
				t.expectStatus(a.heartbeat(owner, "active",
					fields{
						"current_load":      3,
						"tasks_in_progress": []string{"task_01H001", "task_01H002", "task_01H003"},
					}), 200)
			}, ""},
		{"4.2", "200", "A heartbeat answers 200 OK, application/json.", 0, func(t *Trial) {
			r := t.register(nil).mustHeartbeat()
			t.assert(strings.HasPrefix(r.header.Get("Content-Type"), "application/json"), r,
				"Content-Type application/json")
		}, ""},
		{"4.2", "acknowledged", "The answer has acknowledged: true.", 0,
			func(t *Trial) { t.expectMember(t.register(nil).mustHeartbeat(), "acknowledged", true) }, ""},
		{"4.2", "server_timestamp", "The answer has server_timestamp, ISO 8601.", 0,
			func(t *Trial) { t.expectTime(t.register(nil).mustHeartbeat(), "server_timestamp") }, ""},
		{"4.2", "agent_status", "The answer has agent_status, the server's.", 0,
			func(t *Trial) { t.expectMember(t.register(nil).mustHeartbeat(), "agent_status", "active") }, ""},
		{"4.2", "pending_commands", "The answer has pending_commands, an array, empty when there are none.", 0,
			func(t *Trial) {
				t.expectMember(t.register(nil).mustHeartbeat(), "pending_commands", []any{})
			}, ""},
		{"4.2", "four-members", "The answer has these four members and no other.", Settled, func(t *Trial) {
			r := t.register(nil).mustHeartbeat()
			t.expectEqual("members", slices.Sorted(maps.Keys(r.body)),
				[]string{"acknowledged", "agent_status", "pending_commands", "server_timestamp"})
		}, ""},
		{"4.3", "status-required", "status is required.", 0, func(t *Trial) {
			t.expectRefused(t.register(nil).heartbeat(owner, "active", fields{"status": nil}))
		}, ""},
		{"4.3", "status-active-or-draining", "status must be active or draining.", 0, func(t *Trial) {
			a := t.register(nil)
			for _, bad := range []any{"unhealthy", "dead", "deregistered", "registering", "ACTIVE", "", 1} {
				t.expectRefused(a.heartbeat(owner, "active", fields{"status": bad}))
			}
			a.expect("active")
		}, ""},
		{"4.3", "current_load", "current_load: integer, not required.", 0, func(t *Trial) {
			a := t.register(nil)
			t.expectStatus(a.heartbeat(owner, "active", fields{"current_load": 3}), 200)
			a.mustHeartbeat()
			t.expectRefused(a.heartbeat(owner, "active", fields{"current_load": "3"}))
			t.expectRefused(a.heartbeat(owner, "active", fields{"current_load": -1}))
			t.expectMember(a.record(), "capacity.current_load", 3)
		}, ""},
		{"4.3", "tasks_in_progress", "tasks_in_progress: string[], not required.", 0, func(t *Trial) {
			a := t.register(nil)
			a.mustHeartbeat()
			t.expectStatus(a.heartbeat(owner, "active", fields{"tasks_in_progress": []string{}}), 200)
			t.expectRefused(a.heartbeat(owner, "active", fields{"tasks_in_progress": "task_01H001"}))
		}, ""},
		{"4.3", "tasks-without-lease",
			"tasks_in_progress enables the server to cross-reference with lease records: a task that the agent holds no lease of comes back as a pending stop_task, for as long as it is listed.", Settled | Tasks, func(t *Trial) {
				a := t.register(nil)
				mine := t.newLease(a).task
				none := t.submit(nil)
				for range 2 {
					r := t.expectStatus(a.heartbeat(owner, "active", fields{"tasks_in_progress": []string{mine, none}}),
						200)
					all := r.list("pending_commands")
					t.assert(len(all) == 1, r, "one pending command, stop_task of %s", none)
					t.expectMember(&answer{raw: r.raw, status: r.status, body: all[0]}, "command", "stop_task")
					t.expectEqual("task_id", text(all[0], "task_id"), none)
					t.expectEqual("command_id", text(all[0], "command_id"), "stop_"+none)
					t.expectEqual("reason", text(all[0], "reason"), "no_lease")
				}
				t.expectMember(t.expectStatus(a.heartbeat(owner, "active", fields{"tasks_in_progress": []string{mine}}),
					200),
					"pending_commands", []any{})
			}, ""},
		{"4.3", "client_timestamp-required", "client_timestamp: string (ISO 8601), required.", 0, func(t *Trial) {
			a := t.register(nil)
			for _, bad := range []any{nil, "", "now", "2026-02-08", 1770546600} {
				t.expectRefused(a.heartbeat(owner, "active", fields{"client_timestamp": bad}))
			}
		}, ""},
		{"4.3", "client_timestamp-forms", "client_timestamp may carry decimals and any offset.", 0, func(t *Trial) {
			a := t.register(nil)
			for _, good := range []string{"2026-02-08T10:30:00Z", "2026-02-08T10:30:00.123456Z",
				"2026-02-08T12:30:00.5+02:00"} {
				t.expectStatus(a.heartbeat(owner, "active", fields{"client_timestamp": good}), 200)
			}
		}, ""},
		{"4.3", "refused-counts-nothing",
			"A refused heartbeat changes nothing: neither the load nor the time of the last heartbeat.", 0, func(t *Trial) {
				a := t.register(nil)
				before := a.record()
				t.sleep(t.cfg.Poll)
				t.expectRefused(a.heartbeat(owner, "asleep", fields{"current_load": 9}))
				after := a.record()
				t.expectMember(after, "capacity.current_load", 0)
				t.expectEqual("last_heartbeat_at", after.str("last_heartbeat_at"), before.str("last_heartbeat_at"))
			}, ""},
		{"4.3", "unknown-member", "An unknown member is refused with 400.", Settled, func(t *Trial) {
			a := t.register(nil)
			t.expectCode(a.heartbeat(owner, "active", fields{"load": 3}), 400, "validation_failed")
			t.expectCode(a.changeIf(owner, `"1"`, fields{"status": "draining", "timeout": 3}), 400, "validation_failed")
			a.expect("active")
		}, ""},
		{"4.4", "resets-timer", "A successful heartbeat resets the agent's silence timer.", 0, func(t *Trial) {
			a := t.register(t.unhealthyOnlyThresholds())
			a.sendHeartbeats(t.cfg.Dead / t.cfg.Interval)
			a.fallSilent("unhealthy")
		}, ""},
		{"4.4", "resumed", "A heartbeat of an unhealthy agent transitions it back to active.", 0, func(t *Trial) {
			a := t.newUnhealthyAgent(nil)
			t.expectMember(a.mustHeartbeat(), "agent_status", "active")
			a.expect("active")
		}, ""},
		{"4.4", "resumed-event", "The server emits an agent.lifecycle event with reason heartbeat_resumed.", Events,
			func(t *Trial) {
				a := t.newUnhealthyAgent(nil)
				a.mustHeartbeat()
				all := a.expectLifecycle(moveRegistered, moveUnhealthy, moveResumed)
				t.expectEqual("reason", all[2].str("reason"), "heartbeat_resumed")
			}, ""},
		{"4.4", "gone-when-dead", "Heartbeats from a dead agent are rejected with 410 Gone.", 0, func(t *Trial) {
			a := t.newDeadAgent(nil)
			t.expectStatus(a.heartbeat(owner, "active", nil), 410)
			t.expectStatus(a.heartbeat(owner, "draining", nil), 410)
			a.expect("dead")
		}, ""},
		{"4.4", "gone-when-deregistered", "Heartbeats from a deregistered agent are rejected with 410 Gone.", 0,
			func(t *Trial) {
				a := t.newDeregisteredAgent(nil)
				t.expectStatus(a.heartbeat(owner, "active", nil), 410)
				t.expectStatus(a.heartbeat(owner, "draining", nil), 410)
				a.expect("deregistered")
			}, ""},
		{"4.4", "gone-says-why",
			"The 410 has code agent_gone and says, as agent_status and reason, what the last transition was.", Settled,
			func(t *Trial) {
				a := t.newDeadAgent(nil)
				r := t.expectCode(a.heartbeat(owner, "active", nil), 410, "agent_gone")
				t.expectMember(r, "agent_status", "dead")
				t.expectMember(r, "reason", "heartbeat_timeout")
				b := t.newDeregisteredAgent(nil)
				r = t.expectCode(b.heartbeat(owner, "active", nil), 410, "agent_gone")
				t.expectMember(r, "agent_status", "deregistered")
				t.expectMember(r, "reason", "deregistered")
			}, ""},
		{"4.4", "must-register-again", "The agent must re-register; then heartbeats are acknowledged again.", 0,
			func(t *Trial) {
				a := t.newDeregisteredAgent(nil)
				t.expectStatus(a.heartbeat(owner, "active", nil), 410)
				t.expectStatus(a.reregister(owner), 201)
				a.mustHeartbeat()
			}, ""},
		{"4.4", "unknown-agent", "A heartbeat of an id that was never registered is 404.", Settled, func(t *Trial) {
			t.expectStatus((&agent{t: t, id: t.id("never")}).heartbeat(owner, "active", nil), 404)
		}, ""},
		{"4.4", "draining-by-itself",
			"A heartbeat with status draining transitions the agent to draining, as if it had asked for a drain.",
			Settled | Events | Tasks, func(t *Trial) {
				a, _ := t.newHolder(nil)
				t.expectMember(t.expectStatus(a.heartbeat(owner, "draining", nil), 200), "agent_status", "draining")
				t.expectStatus(a.heartbeat(owner, "draining", nil), 200)
				t.expectMember(a.expect("draining"), "version", 2)
				a.expectLifecycle(moveRegistered, moveDrain)
			}, ""},
		{"4.4", "active-does-not-undo", "A heartbeat with status active does not undo draining.", Settled | Tasks,
			func(t *Trial) {
				a := t.newDrainingAgent(nil)
				t.expectMember(a.mustHeartbeat(), "agent_status", "draining")
				a.expect("draining")
			}, ""},
		{"4.4", "unhealthy-says-draining",
			"A heartbeat with status draining of an unhealthy agent is two events: heartbeat_resumed, then drain_initiated.", Settled | Events | Tasks, func(t *Trial) {
				a, _ := t.newSilentHolder("unhealthy")
				t.expectMember(t.expectStatus(a.heartbeat(owner, "draining", nil), 200), "agent_status", "draining")
				a.expectLifecycle(moveRegistered, moveUnhealthy, moveResumed, moveDrain)
			}, ""},
	}
}
