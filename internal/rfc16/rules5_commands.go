package rfc16

import "time"

// postCommand posts a command as an operator and answers its id.
func (a *agent) postCommand(body fields) string {
	r := a.t.ExpectStatus(a.t.Call(operator, "POST", a.path("/commands"), body), 202)
	a.t.Assert(r.Str("command_id") != "", r, "a command_id")
	return r.Str("command_id")
}

// pending is the list of commands in the answer to a heartbeat.
func (a *agent) pending(change fields) []fields {
	return a.t.ExpectStatus(a.heartbeat(a.key, "active", change), 200).List("pending_commands")
}

// drainCommand is what an operator posts.
var drainCommand = fields{"command": "drain", "reason": "maintenance_window", "drain_timeout_seconds": 120}

// Section 5.3 and the commands of 4.4.
var commandChecks = checks{
	"4.4/pending-commands": func(t *Trial) {
		a := t.register(nil)
		a.postCommand(drainCommand)
		t.ExpectEqual("number of pending commands", len(a.pending(nil)), 1)
	},
	"5.3/drain-command": func(t *Trial) {
		a := t.register(nil)
		a.postCommand(drainCommand)
		all := a.pending(nil)
		t.ExpectEqual("number of pending commands", len(all), 1)
		for member, want := range drainCommand {
			t.ExpectEqual(member, all[0][member], want)
		}
		t.ExpectMember(a.record(), "status", "active")
	},
	"5.3/honoured": func(t *Trial) {
		a, _ := t.newHolder(nil)
		a.postCommand(drainCommand)
		t.ExpectEqual("number of pending commands", len(a.pending(nil)), 1)
		r := t.ExpectStatus(a.heartbeat(owner, "draining", nil), 200)
		t.ExpectMember(r, "agent_status", "draining")
		t.ExpectMember(r, "pending_commands", []any{})
		t.ExpectMember(a.mustHeartbeat(), "pending_commands", []any{})
	},
	"5.3/honoured-by-patch": func(t *Trial) {
		a, _ := t.newHolder(nil)
		a.postCommand(drainCommand)
		a.drain(600)
		t.ExpectMember(a.mustHeartbeat(), "pending_commands", []any{})
	},
	"5.3/until-honoured": func(t *Trial) {
		a := t.register(nil)
		id := a.postCommand(drainCommand)
		for range 4 {
			all := a.pending(nil)
			t.ExpectEqual("number of pending commands", len(all), 1)
			t.ExpectEqual("command_id", all[0]["command_id"], id)
		}
	},
	"5.3/command-timeout": func(t *Trial) {
		a, _ := t.newHolder(fields{"drain_timeout_seconds": 7000})
		a.postCommand(fields{"command": "drain", "drain_timeout_seconds": 500})
		at := t.ExpectTime(t.ExpectStatus(a.heartbeat(owner, "draining", nil), 200), "server_timestamp")
		left := t.ExpectTime(a.record(), "drain_deadline_at").Sub(at)
		t.Assert(left > seconds(500)-t.cfg.Slack && left <= seconds(500)+t.cfg.Slack, t.Last,
			"drain_deadline_at 500 s after the heartbeat")
	},
	"5.3/drain-once": func(t *Trial) {
		a := t.register(nil)
		id := a.postCommand(drainCommand)
		t.ExpectEqual("command_id", a.postCommand(fields{"command": "drain", "drain_timeout_seconds": 9}), id)
		all := a.pending(nil)
		t.ExpectEqual("number of pending commands", len(all), 1)
		t.ExpectEqual("drain_timeout_seconds", all[0]["drain_timeout_seconds"], 9)
	},
	"5.3/not-while-draining": func(t *Trial) {
		a := t.newDrainingAgent(nil)
		t.ExpectCode(t.Call(operator, "POST", a.path("/commands"), drainCommand), 409, "state_conflict")
		a.remove()
		t.ExpectCode(t.Call(operator, "POST", a.path("/commands"), fields{"command": "ping"}), 410, "agent_gone")
	},
	"5.3/handled": func(t *Trial) {
		a := t.register(nil)
		ping, stop := a.postCommand(fields{"command": "ping", "reason": "there?"}),
			a.postCommand(fields{"command": "stop_task", "task_id": t.ID("task")})
		t.ExpectEqual("number of pending commands", len(a.pending(nil)), 2)
		left := a.pending(fields{"handled_commands": []string{ping}})
		t.ExpectEqual("number of pending commands", len(left), 1)
		t.ExpectEqual("command_id", left[0]["command_id"], stop)
		t.ExpectEqual("number of pending commands", len(a.pending(fields{"handled_commands": []string{stop}})), 0)
	},
	"5.3/dropped-by-registration": func(t *Trial) {
		a := t.register(nil)
		a.postCommand(drainCommand)
		a.remove()
		t.ExpectStatus(a.reregister(owner), 201)
		t.ExpectEqual("number of pending commands", len(a.pending(nil)), 0)
	},
	"5.3/bounded": func(t *Trial) {
		a := t.register(nil)
		for range 32 {
			a.postCommand(fields{"command": "ping"})
		}
		t.ExpectCode(t.Call(operator, "POST", a.path("/commands"), fields{"command": "ping"}), 429, "rate_limited")
		t.ExpectEqual("number of pending commands", len(a.pending(nil)), 32)
	},
	"5.3/checked": func(t *Trial) {
		a := t.register(nil)
		for _, bad := range []fields{{"command": "reboot"}, {}, {"command": "stop_task"},
			{"command": "ping", "task_id": "task_1"}, {"command": "ping", "drain_timeout_seconds": 1},
			{"command": "drain", "drain_timeout_seconds": -1}} {
			t.ExpectCode(t.Call(operator, "POST", a.path("/commands"), bad), 400, "validation_failed")
		}
	},
	"5.3/events": func(t *Trial) {
		a := t.register(nil)
		id := a.postCommand(fields{"command": "ping"})
		t.ExpectEqual("number of agent.command events", len(t.events(a.id, "", "agent.command")), 1)
		a.pending(fields{"handled_commands": []string{id}})
		t.ExpectEqual("number of agent.command events", len(t.events(a.id, "", "agent.command")), 2)
	},
	"5.3/escalation": func(t *Trial) {
		made := t.ExpectStatus(t.Call(admin, "POST", "/api/v1/keys",
			fields{"name": t.Prefix, "scopes": []string{"agent"}}), 201)
		id, secret := made.Str("keyId"), made.Str("key")
		t.s.AlsoRevoke(id)
		revoke := func() *answer { return t.Call(admin, "DELETE", "/api/v1/keys/"+id, nil) }
		a := &agent{t: t, id: t.ID("a1"), key: operator}
		ask := func(path string, body any) *answer {
			return t.Send(request{By: owner, Secret: secret, Method: "POST", URL: t.s.Base + path, Body: body})
		}
		reg := ask(agentsPath, fields{"agent_id": a.id})
		t.agents = append(t.agents, a)
		t.ExpectStatus(revoke(), 200)
		t.ExpectStatus(reg, 201)
		for end := t.Now().Add(t.cfg.Slack); ; t.Sleep(t.cfg.Poll) {
			r := ask(a.path("/heartbeat"),
				fields{"status": "active", "client_timestamp": t.Now().UTC().Format(time.RFC3339)})
			if r.Status == 401 {
				return
			}
			t.Assert(t.Now().Before(end), r, "401 within %s of the revocation", t.cfg.Slack)
		}
	},
	"5.3/operators-only": func(t *Trial) {
		a := t.register(nil)
		t.ExpectCode(t.Call(owner, "POST", a.path("/commands"), drainCommand), 403, "forbidden")
		t.ExpectEqual("number of pending commands", len(a.pending(nil)), 0)
	},
}
