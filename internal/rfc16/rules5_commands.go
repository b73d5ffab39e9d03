package rfc16

import "time"

// postCommand posts a command as an operator and answers its id.
func (a *agent) postCommand(body fields) string {
	r := a.t.expectStatus(a.t.call(operator, "POST", a.path("/commands"), body), 202)
	a.t.assert(r.str("command_id") != "", r, "a command_id")
	return r.str("command_id")
}

// pending is the list of commands in the answer to a heartbeat.
func (a *agent) pending(change fields) []fields {
	return a.t.expectStatus(a.heartbeat(a.key, "active", change), 200).list("pending_commands")
}

// Section 5.3 and the commands of 4.4.
func commandRules() []Rule {
	drain := fields{"command": "drain", "reason": "maintenance_window", "drain_timeout_seconds": 120}
	return []Rule{
		{"4.4", "pending-commands",
			"pending_commands lets the server communicate directives without reaching the agent's endpoint.", Commands,
			func(t *Trial) {
				a := t.register(nil)
				a.postCommand(drain)
				t.expectEqual("number of pending commands", len(a.pending(nil)), 1)
			}, ""},
		{"5.3", "drain-command",
			"A coordinator or administrator may request a drain: the heartbeat answer has the command drain with its reason and drain_timeout_seconds.", Commands, func(t *Trial) {
				a := t.register(nil)
				a.postCommand(drain)
				all := a.pending(nil)
				t.expectEqual("number of pending commands", len(all), 1)
				for member, want := range drain {
					t.expectEqual(member, all[0][member], want)
				}
				t.expectMember(a.record(), "status", "active")
			}, ""},
		{"5.3", "honoured",
			"The agent honours it by transitioning to draining with its next heartbeat; then the command is gone.",
			Commands | Tasks, func(t *Trial) {
				a, _ := t.newHolder(nil)
				a.postCommand(drain)
				t.expectEqual("number of pending commands", len(a.pending(nil)), 1)
				r := t.expectStatus(a.heartbeat(owner, "draining", nil), 200)
				t.expectMember(r, "agent_status", "draining")
				t.expectMember(r, "pending_commands", []any{})
				t.expectMember(a.mustHeartbeat(), "pending_commands", []any{})
			}, ""},
		{"5.3", "honoured-by-patch", "A drain request honours it as well.", Commands | Tasks | Settled, func(t *Trial) {
			a, _ := t.newHolder(nil)
			a.postCommand(drain)
			a.drain(600)
			t.expectMember(a.mustHeartbeat(), "pending_commands", []any{})
		}, ""},
		{"5.3", "until-honoured",
			"A pending command comes with every answer until it is honoured, each time with its command_id.",
			Commands | Settled, func(t *Trial) {
				a := t.register(nil)
				id := a.postCommand(drain)
				for range 4 {
					all := a.pending(nil)
					t.expectEqual("number of pending commands", len(all), 1)
					t.expectEqual("command_id", all[0]["command_id"], id)
				}
			}, ""},
		{"5.3", "command-timeout", "The drain that honours a command takes its drain_timeout_seconds.",
			Commands | Tasks | Settled, func(t *Trial) {
				a, _ := t.newHolder(fields{"drain_timeout_seconds": 7000})
				a.postCommand(fields{"command": "drain", "drain_timeout_seconds": 500})
				at := t.expectTime(t.expectStatus(a.heartbeat(owner, "draining", nil), 200), "server_timestamp")
				left := t.expectTime(a.record(), "drain_deadline_at").Sub(at)
				t.assert(left > seconds(500)-t.cfg.Slack && left <= seconds(500)+t.cfg.Slack, t.last,
					"drain_deadline_at 500 s after the heartbeat")
			}, ""},
		{"5.3", "drain-once", "A drain posted again replaces the pending one and keeps its command_id.",
			Commands | Settled, func(t *Trial) {
				a := t.register(nil)
				id := a.postCommand(drain)
				t.expectEqual("command_id", a.postCommand(fields{"command": "drain", "drain_timeout_seconds": 9}), id)
				all := a.pending(nil)
				t.expectEqual("number of pending commands", len(all), 1)
				t.expectEqual("drain_timeout_seconds", all[0]["drain_timeout_seconds"], 9)
			}, ""},
		{"5.3", "not-while-draining",
			"A drain for an agent that drains already is 409, any command for one that is gone 410.",
			Commands | Tasks | Settled, func(t *Trial) {
				a := t.newDrainingAgent(nil)
				t.expectCode(t.call(operator, "POST", a.path("/commands"), drain), 409, "state_conflict")
				a.remove()
				t.expectCode(t.call(operator, "POST", a.path("/commands"), fields{"command": "ping"}), 410,
					"agent_gone")
			}, ""},
		{"5.3", "handled",
			"Commands other than drain are honoured by naming their ids in handled_commands of a heartbeat.",
			Commands | Settled, func(t *Trial) {
				a := t.register(nil)
				ping, stop := a.postCommand(fields{"command": "ping", "reason": "there?"}),
					a.postCommand(fields{"command": "stop_task", "task_id": t.id("task")})
				t.expectEqual("number of pending commands", len(a.pending(nil)), 2)
				left := a.pending(fields{"handled_commands": []string{ping}})
				t.expectEqual("number of pending commands", len(left), 1)
				t.expectEqual("command_id", left[0]["command_id"], stop)
				t.expectEqual("number of pending commands", len(a.pending(fields{"handled_commands": []string{stop}})),
					0)
			}, ""},
		{"5.3", "dropped-by-registration", "Commands of before are not delivered to a new registration.",
			Commands | Settled, func(t *Trial) {
				a := t.register(nil)
				a.postCommand(drain)
				a.remove()
				t.expectStatus(a.reregister(owner), 201)
				t.expectEqual("number of pending commands", len(a.pending(nil)), 0)
			}, ""},
		{"5.3", "bounded", "At most 32 commands wait for one agent; one more is 429.", Commands | Settled,
			func(t *Trial) {
				a := t.register(nil)
				for range 32 {
					a.postCommand(fields{"command": "ping"})
				}
				t.expectCode(t.call(operator, "POST", a.path("/commands"), fields{"command": "ping"}), 429,
					"rate_limited")
				t.expectEqual("number of pending commands", len(a.pending(nil)), 32)
			}, ""},
		{"5.3", "checked", "A command that is invalid, or has members of another, is refused with 400.",
			Commands | Settled, func(t *Trial) {
				a := t.register(nil)
				for _, bad := range []fields{{"command": "reboot"}, {}, {"command": "stop_task"},
					{"command": "ping", "task_id": "task_1"}, {"command": "ping", "drain_timeout_seconds": 1},
					{"command": "drain", "drain_timeout_seconds": -1}} {
					t.expectCode(t.call(operator, "POST", a.path("/commands"), bad), 400, "validation_failed")
				}
			}, ""},
		{"5.3", "events", "A command and its being handled stand in the log as agent.command.",
			Commands | Events | Settled, func(t *Trial) {
				a := t.register(nil)
				id := a.postCommand(fields{"command": "ping"})
				t.expectEqual("number of agent.command events", len(t.events(a.id, "", "agent.command")), 1)
				a.pending(fields{"handled_commands": []string{id}})
				t.expectEqual("number of agent.command events", len(t.events(a.id, "", "agent.command")), 2)
			}, ""},
		{"5.3", "should-honour", "The agent SHOULD honour drain commands.", Settled, nil,
			"it is a rule for agents; Picket's own adapter is tested against it"},
		{"5.3", "escalation",
			"If the agent ignores the command, the coordinator may escalate by revoking the agent's grants: a revoked key is refused.", Keys, func(t *Trial) {
				made := t.expectStatus(t.call(admin, "POST", "/api/v1/keys",
					fields{"name": t.prefix, "scopes": []string{"agent"}}), 201)
				id, secret := made.str("keyId"), made.str("key")
				t.s.alsoRevoke(id)
				revoke := func() *answer { return t.call(admin, "DELETE", "/api/v1/keys/"+id, nil) }
				a := &agent{t: t, id: t.id("a1"), key: operator}
				ask := func(path string, body any) *answer {
					return t.send(request{by: owner, secret: secret, method: "POST", url: t.cfg.URL + path, body: body})
				}
				reg := ask(agentsPath, fields{"agent_id": a.id})
				t.agents = append(t.agents, a)
				t.expectStatus(revoke(), 200)
				t.expectStatus(reg, 201)
				for end := t.now().Add(t.cfg.Slack); ; t.sleep(t.cfg.Poll) {
					r := ask(a.path("/heartbeat"),
						fields{"status": "active", "client_timestamp": t.now().UTC().Format(time.RFC3339)})
					if r.status == 401 {
						return
					}
					t.assert(t.now().Before(end), r, "401 within %s of the revocation", t.cfg.Slack)
				}
			}, ""},
		{"5.3", "operators-only", "Commands are an operator's: the agent's own key may not post them.",
			Commands | Operator | Settled, func(t *Trial) {
				a := t.register(nil)
				t.expectCode(t.call(owner, "POST", a.path("/commands"), drain), 403, "forbidden")
				t.expectEqual("number of pending commands", len(a.pending(nil)), 0)
			}, ""},
	}
}
