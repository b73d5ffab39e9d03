package agentheartbeat

import (
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// Section 11: agent sessions, as Picket has settled them.
var sessionChecks = checks{
	"11/id": func(t *Trial) {
		k := t.keep(t.name(), 1)
		t.ExpectMember(k.look(), "sessionId", k.session())
		t.ExpectStatus(k.tryReport(owner, idle("session_1")), 400)
	},
	"11/agent-name": func(t *Trial) {
		k := t.keep(t.name(), 1)
		a := k.look()
		t.ExpectMember(a, "agentName", k.name)
		t.ExpectMember(a, "agentId", k.id)
		t.ExpectMember(a, "incarnation", k.incarnation)
	},
	"11/whole-list": func(t *Trial) {
		k := t.keep(t.name(), 2)
		k.report(idle(k.sessions[0]))
		t.ExpectEqual("sessions", k.listed(), k.sessions[:1])
	},
	"11/at-most-64": func(t *Trial) {
		k := t.registerKeeper(t.name(), patient)
		var list []fields
		for range 65 {
			list = append(list, idle(newSession()))
		}
		t.ExpectStatus(k.tryReport(owner, list...), 400)
		k.report(list[:64]...)
	},
	"11/own-incarnation": func(t *Trial) {
		k := t.keep(t.name(), 1)
		k.incarnation++
		a := k.tryReport(owner, idle(k.session()))
		k.incarnation--
		t.ExpectCode(a, 410, "agent_gone")
	},
	"11/own-agent": func(t *Trial) {
		k := t.keep(t.name(), 1)
		t.ExpectCode(k.tryReport(stranger, idle(k.session())), 403, "forbidden")
		t.ExpectCode(t.Call(stranger, "GET", k.pendingPath(0), nil), 403, "forbidden")
	},
	"11/commands-at-once": func(t *Trial) {
		k := t.keep(t.name(), 1)
		polled := make(chan *answer, 1)
		path, ctx := k.pendingPath(20), t.Ctx
		go func() { polled <- t.s.Ask(ctx, owner, "GET", path, nil) }()
		began := t.Now()
		id := k.prompt()
		a := t.ExpectStatus(t.Accept(<-polled), 200)
		t.holds(a, "the prompt at once", len(a.List("sessions")) == 1 && a.List("sessions")[0]["commandId"] == id &&
			t.Now().Sub(began) < t.s.cfg.Slack)
	},
	"11/known": func(t *Trial) {
		k := t.keep(t.name(), 1)
		id := k.prompt()
		t.ExpectEqual("commandId", k.next("prompt")["commandId"], id)
		t.ExpectEqual("commandId again", k.next("prompt")["commandId"], id)
		t.ExpectEqual("number of commands", len(k.pending(0, id)), 0)
	},
	"11/results": func(t *Trial) {
		k := t.keep(t.name(), 1)
		for state, reason := range map[string]string{"answered": "", "refused": "cannot_start", "failed": "timeout"} {
			id := k.prompt()
			t.ExpectStatus(k.result(id, state, reason), 200, 204)
			p := k.prompts()[0]
			t.ExpectEqual("state", p["state"], state)
			t.ExpectEqual("reason", text(p, "reason"), reason)
		}
	},
	"11/one-prompt-at-a-time": func(t *Trial) {
		k := t.keep(t.name(), 1)
		first := k.prompt()
		second := k.prompt()
		t.ExpectEqual("number of commands", len(k.pending(0)), 1)
		t.ExpectEqual("commandId", k.next("prompt")["commandId"], first)
		k.mustResult(first, "answered")
		t.ExpectEqual("commandId", k.next("prompt")["commandId"], second)
	},
	"11/stop": func(t *Trial) {
		k := t.keep(t.name(), 1)
		t.ExpectStatus(t.Call(operator, "POST", sessionsPath+"/"+k.session()+"/stop", fields{}), 200)
		t.ExpectEqual("sessionId", k.next("stop_session")["sessionId"], k.session())
		k.report(merge(idle(k.session()), fields{"state": "stopped"}))
		t.ExpectEqual("number of sessions", len(k.listed()), 0)
	},
	"11/people-only": func(t *Trial) {
		k := t.keep(t.name(), 1)
		for _, rest := range []string{"/prompts", "/stop"} {
			body := fields{}
			if rest == "/prompts" {
				body["text"] = "hello"
			}
			t.ExpectCode(t.Call(owner, "POST", sessionsPath+"/"+k.session()+rest, body), 403, "forbidden")
		}
	},
	"11/no-right": func(t *Trial) {
		k := t.keep(t.name(), 1)
		a := t.Call(operator, "GET", sessionsPath+"/"+k.session(), nil)
		t.holds(a, "no lease token", !strings.Contains(string(a.Raw), "pkl_"))
		c := k.promptCommand()
		for member := range c {
			t.holds(t.Last, "no member "+member, slices.Contains(
				[]string{"commandId", "command", "sessionId", "text", "expiresInMs", "namespace", "proxyUrl"}, member))
		}
	},
	"11/events": func(t *Trial) {
		after := t.mark()
		k := t.keep(t.name(), 1)
		k.answers(k.prompted())
		k.report()
		t.ExpectEqual("types of events", k.events(after, "agent_session."),
			[]string{"agent_session.started", "agent_session.prompted", "agent_session.ended"})
	},
	"11/lost": func(t *Trial) {
		k := t.keep(t.name(), 1)
		after := t.mark()
		t.retired = true // the server may find later that its sessions are lost
		t.ExpectStatus(t.Call(owner, "DELETE", agentsPath+"/"+k.id, nil), 200, 204)
		lost := func() *answer {
			list := k.events(after, "agent_session.lost")
			return &answer{Status: t.Last.Status, Raw: t.Last.Raw, Body: fields{"lost": len(list)}, Curl: t.Last.Curl}
		}
		t.await("an event agent_session.lost", lost, func(a *answer) bool { return a.Body["lost"] == 1 })
	},
	"11/rfc-commands": func(t *Trial) {
		k := t.keep(t.name(), 1)
		a := t.ExpectStatus(t.Call(operator, "POST", agentsPath+"/"+k.id+"/commands", fields{"command": "ping"}), 202)
		id := a.Str("command_id")
		k.pending(8)
		list := t.Last.List("agent")
		t.holds(t.Last, "the command ping", len(list) == 1 && list[0]["command_id"] == id)
		a = t.ExpectStatus(t.Call(owner, "POST", agentsPath+"/"+k.id+"/heartbeat",
			fields{"status": "active", "client_timestamp": instant(t.Now())}), 200)
		list = a.List("pending_commands")
		t.holds(a, "the command ping", len(list) == 1 && list[0]["command_id"] == id)
	},
	"11/prompt-cli": func(t *Trial) {
		k := t.keep(t.name(), 1)
		ended := t.startPicket("", "session", "prompt", k.session(), "Are you there?")
		c := k.next("prompt")
		t.ExpectEqual("text", c["text"], "Are you there?")
		k.says(text(c, "commandId"), "Yes, I am.")
		o := t.expectExit(t.finish(ended), 0)
		t.holds(o.answer, "the answer", strings.Contains(string(o.Raw), "Yes, I am."))
	},
	"11/logs-cli": func(t *Trial) {
		k := t.keep(t.name(), 1)
		k.says(text(k.promptCommand(), "commandId"), "Yes, I am.")
		o := t.expectExit(t.picket("", "session", "logs", k.session()), 0)
		t.holds(o.answer, "the prompt and its answer", strings.Contains(string(o.Raw), "hello") &&
			strings.Contains(string(o.Raw), "Yes, I am."))
	},
	"11/list-cli": func(t *Trial) {
		k := t.keep(t.name(), 1)
		o := t.succeeds("", "session", "list", "--agent", k.id)
		t.holds(o.answer, "the session", strings.Contains(string(o.Raw), k.session()))
	},
}

// listed are the ids of the sessions of the agent.
func (k *keeper) listed() (ids []string) {
	a := k.t.ExpectStatus(k.t.Call(operator, "GET", sessionsPath+"?agentId="+k.id, nil), 200)
	for _, s := range a.List("sessions") {
		ids = append(ids, conformance.Text(s, "sessionId"))
	}
	return ids
}

// says answers a prompt with a text.
func (k *keeper) says(id, answer string) {
	a := k.t.Call(k.key, "POST", agentsPath+"/"+k.id+"/commands/"+id+"/result",
		fields{"incarnation": k.incarnation, "state": "answered", "output": answer, "offset": 0})
	k.t.ExpectStatus(a, 200, 204)
}

// promptCommand is the command of a prompt of a person.
func (k *keeper) promptCommand() fields {
	k.prompt()
	return k.next("prompt")
}

// Section 12: the settings of the server that can be seen.
var settingChecks = checks{
	"12/enabled":      func(t *Trial) { t.expectDecision(t.wakeable(plain).dryRun(""), "sent", "wake_sent") },
	"12/min_interval": errorChecks["10/heartbeat_preference_clamped"],
	"12/max_body_bytes": func(t *Trial) {
		message := text(t.invalid(strings.Repeat("x", 300<<10), "heartbeat_body_too_large"), "message")
		for _, n := range numbers.FindAllString(message, -1) {
			if size := atoi(n); size != 300<<10 && size >= 1<<10 {
				t.valid(strings.Repeat("x", size))
				t.invalid(strings.Repeat("x", size+1), "heartbeat_body_too_large")
				return
			}
		}
		t.Fail("the bound in the message", message)
	},
	"12/context_projection_bytes": func(t *Trial) {
		k := t.wakeable(strings.Repeat("word ", 1000))
		command, _ := k.sent()
		if quoted := strings.Count(text(command, "text"), "word"); quoted == 1000 {
			t.NotRun("the server quotes at least 5,000 bytes; it is checked in TestProjection of orchestrator/heartbeat")
		}
		t.contains(command, "The file is longer: its first ")
	},
	"12/wake_cooldown": func(t *Trial) {
		k := t.cooling()
		a := t.expectDecision(k.wake(), "rate_limited", "cooldown_active")
		next := t.ExpectTime(a, "next_allowed_at")
		t.ExpectMember(k.dryRun(instant(next)), "reason", "wake_sent")
		t.holds(a, "at most a day of cooldown", next.Sub(t.ExpectTime(a, "at")) <= 24*time.Hour)
	},
	"12/active_session_only": func(t *Trial) {
		name := t.name()
		t.write(name, plain)
		a := t.Call(operator, "POST", policyPath(name, "/wake"), fields{})
		t.ExpectCode(a, 400, "session_required")
	},
	"12/allow_active_hours_preferences": func(t *Trial) {
		t.allows(active(window("UTC", "08:00", "09:00")), "2026-05-01T08:30:00Z", "!2026-05-01T09:30:00Z")
	},
	"12/session_health_stale_after": factChecks["5/fact-report-old"],
}

func atoi(digits string) (n int) {
	for _, d := range digits {
		n = 10*n + int(d-'0')
	}
	return n
}

// Section 13: details that clients build on.
var memberChecks = checks{
	"13/snake-case": func(t *Trial) {
		k := t.wakeable(interval("1ms"))
		for _, a := range []*answer{t.read(k.name), t.status(k.name, ""), k.dryRun("")} {
			t.holds(a, "members in snake case", !camelMember.MatchString(string(a.Raw)))
		}
		a := k.look()
		t.holds(a, "health in snake case", conformance.JSON(a.Body["health"]) != "null" &&
			!camelMember.MatchString(conformance.JSON(a.Body["health"])))
	},
	"13/write-members": func(t *Trial) {
		name := t.name()
		t.ExpectStatus(t.change("PUT", name, "", fields{"body": plain, "idempotency_key": t.ID("k")}), 200)
		t.ExpectStatus(t.change("PUT", name, "", fields{"body": plain, "text": "x"}), 400)
		t.ExpectStatus(t.change("PUT", name, "", fields{}), 400)
	},
	"13/oversized": func(t *Trial) {
		a := t.change("PUT", t.name(), "", fields{"body": strings.Repeat("x", 300<<10)})
		t.ExpectCode(a, 422, "heartbeat_invalid")
	},
	"13/one-session": func(t *Trial) {
		k := t.wakeable(plain)
		t.ExpectMember(k.wake(fields{"session_id": nil, "dry_run": true}), "session_id", k.session())
	},
	"13/session_required": func(t *Trial) {
		name := t.name()
		t.write(name, plain)
		k := t.keep(name, 2)
		a := t.ExpectCode(k.wake(fields{"session_id": nil}), 400, "session_required")
		t.ExpectMember(a, "sessions", 2)
	},
	"13/at": func(t *Trial) {
		k := t.wakeable(plain)
		t.ExpectStatus(k.wake(fields{"at": "2026-05-01T12:00:00Z"}), 400)
		t.ExpectMember(k.dryRun("2026-05-01T12:00:00Z"), "at", "2026-05-01T12:00:00.000Z")
	},
	"13/at-operator": func(t *Trial) {
		k := t.wakeable(plain)
		body := k.wakeBody(fields{"dry_run": true, "at": "2026-05-01T12:00:00Z"})
		t.ExpectStatus(t.Call(owner, "POST", policyPath(k.name, "/wake"), body), 400, 403)
	},
	"13/source": func(t *Trial) {
		k := t.wakeable(plain)
		t.ExpectStatus(k.wake(fields{"source": "scheduler"}), 400)
		t.ExpectStatus(t.Call(owner, "POST", policyPath(k.name, "/wake"), k.wakeBody(fields{"source": "manual"})), 400)
		t.ExpectEqual("number of prompts", len(k.prompts()), 0)
	},
	"13/repeated-wake": func(t *Trial) {
		k := t.wakeable(plain)
		key := fields{"idempotency_key": t.ID("k")}
		_, first := k.sent(key)
		again := t.expectDecision(k.wake(key), "sent", "wake_sent")
		t.ExpectMember(again, "wake_id", first.Str("wake_id"))
		t.ExpectEqual("number of prompts", len(k.prompts()), 1)
	},
	"13/manual-spacing": func(t *Trial) {
		k := t.wakeable(front("summary: x"))
		k.sent()
		a := t.expectDecision(k.wake(), "rate_limited", "cooldown_active")
		short := t.ExpectTime(a, "next_allowed_at").Sub(t.ExpectTime(a, "at"))
		other := t.wakeable(interval("8000h"))
		other.sent()
		a = t.expectDecision(other.wake(), "rate_limited", "cooldown_active")
		long := t.ExpectTime(a, "next_allowed_at").Sub(t.ExpectTime(a, "at"))
		t.holds(a, "a longer wait with min_interval", long > short)
	},
	"13/empty-file": func(t *Trial) { t.wakeable("").refuses("heartbeat_disabled") },
}
