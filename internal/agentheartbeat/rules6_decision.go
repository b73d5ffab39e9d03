package agentheartbeat

import (
	"strings"
	"time"
)

// Section 6: the flow of a decision, and what wakes guarantee.
var decisionChecks = checks{
	"6/latest-snapshot": func(t *Trial) {
		k := t.wakeable(plain)
		t.replace(k.name, front("enabled: false"))
		k.refuses("heartbeat_disabled")
		digest := t.replace(k.name, front("summary: x")).Str("digest")
		_, decision := k.sent()
		t.ExpectMember(decision, "policy_snapshot_id", digest)
	},
	"6/one-prompt": func(t *Trial) {
		k := t.wakeable(plain)
		command, decision := k.sent()
		list := k.prompts()
		t.ExpectEqual("number of prompts", len(list), 1)
		t.ExpectEqual("wake", list[0]["wake"], true)
		t.ExpectEqual("promptId", list[0]["promptId"], decision.Str("wake_id"))
		t.ExpectEqual("commandId", command["commandId"], decision.Str("wake_id"))
	},
	"6/no-claim": func(t *Trial) {
		k := t.wakeable(plain)
		task := t.ExpectStatus(t.Call(operator, "POST", "/api/v1/tasks",
			fields{"title": "conformance " + t.Prefix, "needs": []string{t.ID("t")}}), 201).Str("taskId")
		t.tasks = append(t.tasks, task)
		k.sent()
		a := t.ExpectStatus(t.Call(operator, "GET", "/api/v1/tasks/"+task, nil), 200)
		t.ExpectMember(a, "state", "queued")
	},
	"6/no-tasks": func(t *Trial) {
		k := t.wakeable(plain)
		after := t.mark()
		k.sent()
		t.ExpectEqual("number of events of tasks and leases", len(k.events(after, "task.", "run.", "lease.")), 0)
	},
	"6/no-renewals": func(t *Trial) {
		k := t.wakeable(plain)
		before := k.lease()["leaseExpiresAt"]
		k.sent()
		t.ExpectEqual("leaseExpiresAt", k.lease()["leaseExpiresAt"], before)
	},
	"6/no-tokens": func(t *Trial) {
		k := t.wakeable(plain)
		k.lease()
		command, _ := k.sent()
		for _, form := range []string{"pkl_", "pkk_", "pks_"} {
			t.holds(t.Last, "a prompt without "+form, !strings.Contains(text(command, "text"), form))
		}
	},
	"6/race": func(t *Trial) {
		k := t.wakeable(plain)
		_, decision := k.deliver("refused", "prompt_active")
		t.expectDecision(decision, "skipped", "session_prompt_active_race")
		t.ExpectEqual("state of the prompt", k.prompts()[0]["state"], "refused")
	},
	"6/person-first": func(t *Trial) {
		k := t.wakeable(plain)
		decided := k.beginWake(operator)
		wake := k.next("wake")
		id := k.prompt()
		t.expectDecision(t.Accept(<-decided), "skipped", "session_prompt_active_race")
		t.ExpectCode(k.result(text(wake, "commandId"), "accepted", ""), 409, "state_conflict")
		t.ExpectEqual("commandId", k.next("prompt")["commandId"], id)
	},
	"6/names-reason": func(t *Trial) {
		command, _ := t.wakeable(plain).sent()
		t.contains(command, "Reason: ", "(manual)")
	},
	"6/names-snapshot": func(t *Trial) {
		command, decision := t.wakeable(plain).sent()
		t.contains(command, "Policy snapshot: "+decision.Str("policy_snapshot_id"))
	},
	"6/says-what-to-do": func(t *Trial) {
		command, _ := t.wakeable(plain).sent()
		t.contains(command, "get_context", "state of this session", "read_messages", "Before you act")
	},
	"6/names-task-api": func(t *Trial) {
		command, _ := t.wakeable(plain).sent()
		t.contains(command, "next_task")
	},
	"6/implies-no-work": func(t *Trial) {
		command, _ := t.wakeable(plain).sent()
		t.contains(command, "There may be nothing to claim.")
	},
	"6/no-op-is-fine": func(t *Trial) {
		command, _ := t.wakeable(plain).sent()
		t.contains(command, "If there is nothing to do, answer with one short sentence and end.")
	},
	"6/quotes-policy": func(t *Trial) {
		command, _ := t.wakeable("---\nsummary: Two lines.\n---\nFirst.\n# Second\n").sent()
		t.contains(command, "\n> Two lines.\n", "\n> First.\n> # Second\n")
	},
	"6/quotes-context": func(t *Trial) {
		k := t.wakeable(front("context: {include: [self, session_health]}"))
		command, _ := k.sent()
		t.contains(command, "self:\n> ", "session_health:\n> ")
	},
	"6/presence": func(t *Trial) {
		k := t.wakeable(plain)
		k.report(detached(k.session(), "conversation_lost"))
		t.ExpectMember(t.Call(owner, "GET", agentsPath+"/"+k.id, nil), "status", "active")
		k.refuses("session_not_attachable")
	},
}

// allDay is a policy that is quiet now and always.
var allDay = quiet(window("UTC", "00:00", "12:00"), window("UTC", "12:00", "00:00"))

// Section 6: each result, and each reason.
var reasonChecks = checks{
	"6/result-sent": func(t *Trial) { t.wakeable(plain).sent() },
	"6/result-skipped": func(t *Trial) {
		t.ExpectMember(t.wakeable(allDay).wake(), "result", "skipped")
	},
	"6/result-coalesced":    func(t *Trial) { t.ExpectMember(t.coalesced(), "result", "coalesced") },
	"6/result-rate_limited": func(t *Trial) { t.ExpectMember(t.cooling().wake(), "result", "rate_limited") },
	"6/result-failed": func(t *Trial) {
		_, a := t.wakeable(plain).deliver("refused", "cannot_start")
		t.ExpectCode(a, 502, "synthetic_prompt_failed")
		t.ExpectMember(a, "wake.result", "failed")
		t.ExpectMember(a, "wake.reason", "synthetic_prompt_failed")
	},
	"6/wake_sent": func(t *Trial) {
		_, decision := t.wakeable(plain).sent()
		t.ExpectMember(decision, "reason", "wake_sent")
		t.ExpectMember(decision, "next_allowed_at", nil)
	},
	"6/heartbeat_disabled":  func(t *Trial) { t.wakeable(front("enabled: false")).refuses("heartbeat_disabled") },
	"6/heartbeat_no_policy": func(t *Trial) { t.keep(t.name(), 1).refuses("heartbeat_no_policy") },
	"6/heartbeat_rate_limited": func(t *Trial) {
		a := t.overwoken()
		t.expectDecision(a, "rate_limited", "heartbeat_rate_limited")
		t.ExpectTime(a, "next_allowed_at")
	},
	"6/cooldown_active": func(t *Trial) { t.expectDecision(t.cooling().wake(), "rate_limited", "cooldown_active") },
	"6/quiet_window": func(t *Trial) {
		t.wakeable(allDay).refuses("quiet_window")
		k := t.wakeable(active(window("UTC", "08:00", "09:00")))
		a := t.expectDecision(k.dryRun("2026-05-01T07:59:59.999Z"), "skipped", "quiet_window")
		t.ExpectMember(a, "next_allowed_at", "2026-05-01T08:00:00.000Z")
	},
	"6/session_not_found": func(t *Trial) {
		k := t.wakeable(plain)
		t.expectDecision(k.wake(fields{"session_id": newSession()}), "skipped", "session_not_found")
		t.write(t.name(), plain)
		other := t.keep(t.names[len(t.names)-1], 1)
		t.expectDecision(k.wake(fields{"session_id": other.session()}), "skipped", "session_not_found")
	},
	"6/session_unhealthy": func(t *Trial) {
		k := t.wakeable(plain)
		k.report(prompting(k.session(), true))
		t.ExpectMember(k.refuses("session_unhealthy"), "detail_code", "health_hung")
	},
	"6/session_not_attachable": func(t *Trial) {
		k := t.wakeable(plain)
		k.report(detached(k.session(), "cannot_start"))
		k.refuses("session_not_attachable")
	},
	"6/agent_draining": func(t *Trial) {
		k := t.wakeable(plain)
		k.drain()
		k.refuses("agent_draining")
	},
	"6/session_prompt_active": func(t *Trial) {
		k := t.wakeable(plain)
		id := k.prompted()
		k.refuses("session_prompt_active")
		t.ExpectEqual("number of prompts", len(k.prompts()), 1)
		k.answers(id)
		k.sent()
	},
	"6/session_prompt_active_race": func(t *Trial) {
		_, decision := t.wakeable(plain).deliver("refused", "prompt_active")
		t.expectDecision(decision, "skipped", "session_prompt_active_race")
	},
	"6/synthetic_prompt_failed": func(t *Trial) {
		k := t.wakeable(plain)
		began := t.Now()
		t.ExpectCode(k.wake(), 502, "synthetic_prompt_failed") // no adapter takes it
		t.holds(t.Last, "about 10 s of patience", near(t.Now().Sub(began), 10*time.Second, t.s.cfg.Slack))
		t.ExpectEqual("state of the prompt", k.prompts()[0]["state"], "expired")
	},
	"6/wake_coalesced": func(t *Trial) { t.expectDecision(t.coalesced(), "coalesced", "wake_coalesced") },
}

// cooling keeps a session that has just been woken.
func (t *Trial) cooling() *keeper {
	k := t.wakeable(plain)
	k.sent()
	return k
}

// coalesced is the decision about a second wake while the first is under way.
func (t *Trial) coalesced() *answer {
	k := t.wakeable(plain)
	first := k.beginWake(operator)
	command := k.next("wake")
	second := k.wake()
	k.mustResult(text(command, "commandId"), "accepted")
	t.expectDecision(t.Accept(<-first), "sent", "wake_sent")
	return second
}

// mostWakes is how many sessions of one agent the suite wakes in one cycle.
const mostWakes = 60

// overwoken wakes sessions of one agent until one is refused, and answers that refusal. The agent is not woken
// any more in the cycle, so its name is not used again.
func (t *Trial) overwoken() *answer {
	t.retired = true
	name := t.name()
	t.write(name, plain)
	k := t.keep(name, mostWakes)
	for _, id := range k.sessions {
		decided := k.beginWake(operator, fields{"session_id": id})
		command, decision := k.reached(decided)
		if command == nil {
			return decision()
		}
		k.mustResult(text(command, "commandId"), "answered")
		t.expectDecision(decision(), "sent", "wake_sent")
	}
	t.NotRun("no wake of %d in a row was refused: wake.max_wakes_per_cycle is larger, or the cycle was over", mostWakes)
	return nil
}

// Section 6, settled: wakes.
var wakeChecks = checks{
	"6/boundary": func(t *Trial) {
		k := t.cooling()
		next := t.ExpectTime(t.expectDecision(k.wake(), "rate_limited", "cooldown_active"), "next_allowed_at")
		t.ExpectMember(k.dryRun(instant(next.Add(-time.Millisecond))), "reason", "cooldown_active")
		t.ExpectMember(k.dryRun(instant(next)), "reason", "wake_sent")
	},
	"6/own-interval": func(t *Trial) {
		k := t.wakeable(interval("8000h"))
		k.sent()
		a := t.expectDecision(k.wake(), "rate_limited", "cooldown_active")
		wait := t.ExpectTime(a, "next_allowed_at").Sub(t.ExpectTime(a, "at"))
		t.holds(a, "8000 h until the next wake", near(wait, 8000*time.Hour, t.s.cfg.Slack))
	},
	"6/refund": func(t *Trial) {
		k := t.wakeable(plain)
		_, a := k.deliver("refused", "cannot_start")
		t.ExpectCode(a, 502, "synthetic_prompt_failed")
		_, a = k.deliver("refused", "prompt_active")
		t.ExpectMember(a, "reason", "session_prompt_active_race")
		k.sent()
	},
	"6/late": func(t *Trial) {
		k := t.wakeable(plain)
		decided := k.beginWake(operator)
		command := k.next("wake")
		t.ExpectCode(t.Accept(<-decided), 502, "synthetic_prompt_failed")
		t.ExpectCode(k.result(text(command, "commandId"), "accepted", ""), 409, "state_conflict")
	},
	"6/dry-run": func(t *Trial) {
		k := t.wakeable(plain)
		for range 3 {
			a := t.expectDecision(k.dryRun(""), "sent", "wake_sent")
			t.ExpectMember(a, "dry_run", true)
			_, made := a.At("wake_id")
			t.holds(a, "no wake_id", !made)
		}
		t.ExpectEqual("number of prompts", len(k.prompts()), 0)
		t.ExpectEqual("number of rows", len(k.wakes()), 0)
		k.sent()
		t.ExpectMember(k.dryRun(""), "reason", "cooldown_active")
	},
	"6/sent-once": func(t *Trial) {
		k := t.wakeable(plain)
		var all []<-chan *answer
		for range 8 {
			all = append(all, k.beginWake(operator))
		}
		k.mustResult(text(k.next("wake"), "commandId"), "accepted")
		sent := 0
		for _, decided := range all {
			if a := t.ExpectStatus(t.Accept(<-decided), 200); a.Str("result") == "sent" {
				sent++
			}
		}
		t.ExpectEqual("number of wakes that are sent", sent, 1)
		t.ExpectEqual("number of prompts", len(k.prompts()), 1)
	},
	"6/order": func(t *Trial) {
		k := t.wakeable(front("enabled: false", "preferences:", "  active_hours:", window("UTC", "08:00", "09:00")))
		other := fields{"session_id": newSession(), "dry_run": true, "at": "2026-05-01T12:00:00Z"}
		t.ExpectMember(k.wake(other), "reason", "heartbeat_disabled")
		t.replace(k.name, active(window("UTC", "08:00", "09:00")))
		t.ExpectMember(k.wake(other), "reason", "quiet_window")
		other["at"] = "2026-05-01T08:00:00Z"
		t.ExpectMember(k.wake(other), "reason", "session_not_found")
		t.replace(k.name, plain)
		k.sent()
		k.report(detached(k.session(), "cannot_start"))
		k.refuses("session_not_attachable")
	},
	"6/rows": func(t *Trial) {
		k := t.cooling()
		k.wake()
		k.wake()
		list := k.wakes()
		t.ExpectEqual("number of rows", len(list), 2)
		for member, want := range (fields{"result": "rate_limited", "reason": "cooldown_active", "count": 2,
			"source": "manual", "occasion": "manual"}) {
			t.ExpectEqual(member, list[0][member], want)
		}
		t.ExpectEqual("result", list[1]["result"], "sent")
	},
	"6/agent": func(t *Trial) {
		k := t.wakeable(plain)
		decided := k.beginWake(owner)
		command := k.next("wake")
		k.mustResult(text(command, "commandId"), "accepted")
		t.ExpectMember(t.expectDecision(t.Accept(<-decided), "sent", "wake_sent"), "source", "agent")
		t.contains(command, "(agent)")
	},
	"6/stranger": func(t *Trial) {
		k := t.wakeable(plain)
		t.ExpectCode(t.Call(stranger, "POST", policyPath(k.name, "/wake"), k.wakeBody()), 403, "forbidden")
		t.ExpectEqual("number of prompts", len(k.prompts()), 0)
	},
	"6/events": func(t *Trial) {
		k := t.wakeable(plain)
		after := t.mark()
		k.sent()
		t.ExpectEqual("types of events", k.events(after, "agent_session.wo", "agent_session.wak"),
			[]string{"agent_session.waking", "agent_session.woken"})
	},
}
