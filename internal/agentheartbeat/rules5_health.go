package agentheartbeat

import (
	"fmt"
	"slices"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// ineligible are the reasons for which a session may be ineligible.
var ineligible = []string{"session_not_found", "session_unhealthy", "session_not_attachable", "session_prompt_active"}

// oneOf expects a member that is one of some texts.
func (t *Trial) oneOf(a *answer, path string, list ...string) {
	t.Assert(slices.Contains(list, a.Str(path)), a, "%s one of %v", path, list)
}

// Section 5: the fields of session health, and their values.
var healthChecks = checks{
	"5/state": func(t *Trial) {
		t.oneOf(t.keep(t.name(), 1).look(), "health.state", "idle", "prompting", "stopped", "detached")
	},
	"5/health": func(t *Trial) {
		t.oneOf(t.keep(t.name(), 1).look(), "health.health", "healthy", "degraded", "stale", "dead", "unknown")
	},
	"5/active_prompt": func(t *Trial) {
		k := t.keep(t.name(), 1)
		t.ExpectMember(k.look(), "health.active_prompt", false)
		id := k.prompted()
		t.ExpectMember(k.look(), "health.active_prompt", true)
		k.answers(id)
		t.ExpectMember(k.look(), "health.active_prompt", false)
	},
	"5/attachable": func(t *Trial) {
		k := t.keep(t.name(), 1)
		t.ExpectMember(k.look(), "health.attachable", true)
		k.report(detached(k.session(), "cannot_start"))
		t.ExpectMember(k.look(), "health.attachable", false)
	},
	"5/eligible_for_wake": func(t *Trial) {
		k := t.keep(t.name(), 1)
		t.ExpectMember(k.look(), "health.eligible_for_wake", true)
		k.report(detached(k.session(), "cannot_start"))
		t.ExpectMember(k.look(), "health.eligible_for_wake", false)
	},
	"5/ineligibility_reason": func(t *Trial) {
		k := t.keep(t.name(), 1)
		t.ExpectMember(k.look(), "health.ineligibility_reason", nil)
		for _, s := range []fields{detached(k.session(), "cannot_start"), prompting(k.session(), false),
			prompting(k.session(), true)} {
			k.report(s)
			t.oneOf(k.look(), "health.ineligibility_reason", ineligible...)
		}
	},
	"5/last_activity_at": func(t *Trial) {
		k := t.keep(t.name(), 1)
		t.ExpectMember(k.look(), "health.last_activity_at", nil)
		k.report(merge(idle(k.session()), fields{"idleMs": 5000}))
		at := t.ExpectTime(k.look(), "health.last_activity_at")
		t.holds(t.Last, "an activity 5 s ago", near(t.Now().Sub(at), 5*time.Second, t.s.cfg.Slack))
	},
	"5/last_presence_at": func(t *Trial) {
		a := t.keep(t.name(), 1).look()
		age := t.Now().Sub(t.ExpectTime(a, "health.last_presence_at"))
		t.holds(a, "a presence just now", near(age, 0, t.s.cfg.Slack))
	},
	"5/updated_at": func(t *Trial) {
		k := t.keep(t.name(), 1)
		first := t.ExpectTime(k.look(), "health.updated_at")
		t.Sleep(20 * time.Millisecond)
		k.reportIdle()
		second := t.ExpectTime(k.look(), "health.updated_at")
		t.holds(t.Last, "a later updated_at after a report", second.After(first))
	},
	"5/state-idle":       func(t *Trial) { t.ExpectMember(t.keep(t.name(), 1).look(), "health.state", "idle") },
	"5/health-healthy":   func(t *Trial) { t.ExpectMember(t.keep(t.name(), 1).look(), "health.health", "healthy") },
	"5/state-prompting":  func(t *Trial) { t.becomes("state", "prompting", "prompting") },
	"5/state-detached":   func(t *Trial) { t.becomes("state", "detached", "detached") },
	"5/health-degraded":  func(t *Trial) { t.becomes("health", "degraded", "detached") },
	"5/state-stopped":    func(t *Trial) { t.ExpectMember(t.ended(), "health.state", "stopped") },
	"5/health-dead":      func(t *Trial) { t.ExpectMember(t.ended(), "health.health", "dead") },
	"5/health-stale":     func(t *Trial) { t.ExpectMember(t.stale().look(), "health.health", "stale") },
	"5/without-a-policy": func(t *Trial) { t.keep(t.name(), 1).expectHealth("idle", "healthy", "", "") },
	"5/decides": func(t *Trial) {
		k := t.wakeable(plain)
		t.ExpectMember(k.dryRun(""), "result", "sent")
		k.report(detached(k.session(), "conversation_lost"))
		reason := k.look().Str("health.ineligibility_reason")
		t.expectDecision(k.dryRun(""), "skipped", reason)
	},
	"5/no-prompts": func(t *Trial) {
		k := t.wakeable(plain)
		for range 3 {
			k.reportIdle()
			k.look()
		}
		t.ExpectEqual("number of prompts", len(k.prompts()), 0)
	},
	"5/no-renewals": func(t *Trial) {
		k := t.keep(t.name(), 1)
		before := k.lease()
		for range 3 {
			k.reportIdle()
			k.look()
		}
		t.ExpectEqual("leaseExpiresAt", k.lease()["leaseExpiresAt"], before["leaseExpiresAt"])
	},
	"5/reading-writes-nothing": func(t *Trial) {
		k := t.keep(t.name(), 1)
		after := t.mark()
		first := k.look().Str("health.updated_at")
		t.ExpectEqual("updated_at", k.look().Str("health.updated_at"), first)
		t.ExpectEqual("number of events", len(k.events(after, "")), 0)
	},
	"5/null": func(t *Trial) {
		a := t.keep(t.name(), 1).look()
		t.ExpectMember(a, "health.ineligibility_reason", nil)
		t.ExpectMember(a, "health.detail_code", nil)
	},
}

func detached(id, because string) fields {
	return merge(idle(id), fields{"state": "detached", "detachedBecause": because})
}

func prompting(id string, silent bool) fields {
	return merge(idle(id), fields{"state": "prompting", "promptId": newPrompt(), "silent": silent})
}

func near(d, want, slack time.Duration) bool { return d >= want-slack && d <= want+slack }

// becomes expects a value of health after a report with a state.
func (t *Trial) becomes(member, value, state string) {
	k := t.keep(t.name(), 1)
	report := prompting(k.session(), false)
	if state == "detached" {
		report = detached(k.session(), "cannot_start")
	}
	k.report(report)
	t.ExpectMember(k.look(), "health."+member, value)
}

// ended is a session that was prompted and has ended.
func (t *Trial) ended() *answer {
	k := t.keep(t.name(), 1)
	k.answers(k.prompted())
	k.report(merge(idle(k.session()), fields{"state": "stopped"}))
	return k.look()
}

// stale keeps a session of an agent that has fallen silent.
func (t *Trial) stale() *keeper {
	k := t.keepWith(t.name(), 1, hasty)
	t.Sleep(2 * time.Second)
	t.await("health stale", k.look, func(a *answer) bool { return a.Str("health.health") == "stale" })
	return k
}

// lease is one that the agent holds; it acquires one if it has none.
func (k *keeper) lease() fields {
	t := k.t
	if len(t.tasks) == 0 {
		a := t.ExpectStatus(t.Call(operator, "POST", "/api/v1/tasks", fields{"title": "conformance " + t.Prefix,
			"needs": []string{t.ID("t")}, "leaseWindowSeconds": 7200}), 201)
		t.tasks = append(t.tasks, a.Str("taskId"))
		a = t.ExpectStatus(t.Call(owner, "POST", "/api/v1/leases", fields{"agentId": k.id,
			"capabilities": []string{t.ID("t")}, "waitSeconds": 10}), 200)
		t.holds(a, "one lease", len(a.List("leases")) == 1)
	}
	for cursor := ""; ; {
		a := t.ExpectStatus(t.Call(operator, "GET", "/api/v1/leases"+cursor, nil), 200)
		for _, l := range a.List("leases") {
			if l["taskId"] == t.tasks[0] {
				return l
			}
		}
		next, more := a.At("cursor")
		t.holds(a, "the lease of the agent", more)
		cursor = "?cursor=" + fmt.Sprint(next)
	}
}

// Section 5, settled: health follows from the facts.
var factChecks = checks{
	"5/fact-idle": func(t *Trial) {
		t.expectHealth(t.keep(t.name(), 1).look(), "idle", "healthy", "", "")
	},
	"5/fact-ended": func(t *Trial) {
		t.expectHealth(t.ended(), "stopped", "dead", "session_unhealthy", "health_dead")
	},
	"5/fact-deregistered": func(t *Trial) {
		k := t.keep(t.name(), 1)
		k.answers(k.prompted())
		t.retired = true // the server may find later that its sessions are lost
		t.ExpectStatus(t.Call(owner, "DELETE", agentsPath+"/"+k.id, nil), 200, 204)
		k.expectHealth("stopped", "dead", "session_unhealthy", "health_dead")
	},
	"5/fact-agent-unhealthy": func(t *Trial) {
		t.stale().expectHealth("idle", "stale", "session_unhealthy", "health_stale")
	},
	"5/fact-report-old": func(t *Trial) {
		k := t.keep(t.name(), 1)
		t.Sleep(119 * time.Second)
		k.expectHealth("idle", "healthy", "", "")
		t.Sleep(2 * time.Second)
		k.expectHealth("idle", "stale", "session_unhealthy", "health_stale")
		k.reportIdle()
		k.expectHealth("idle", "healthy", "", "")
	},
	"5/fact-hung": func(t *Trial) {
		k := t.keep(t.name(), 1)
		k.report(prompting(k.session(), true))
		k.expectHealth("prompting", "degraded", "session_unhealthy", "health_hung")
	},
	"5/fact-prompting": func(t *Trial) {
		k := t.keep(t.name(), 1)
		id := k.prompted()
		k.expectHealth("prompting", "healthy", "session_prompt_active", "")
		k.answers(id)
		k.report(prompting(k.session(), false))
		k.expectHealth("prompting", "healthy", "session_prompt_active", "")
	},
	"5/fact-prompt-accepted": func(t *Trial) {
		k := t.keep(t.name(), 1)
		id := k.prompt()
		k.next("prompt")
		k.mustResult(id, "accepted")
		k.expectHealth("prompting", "healthy", "session_prompt_active", "")
	},
	"5/fact-draining": func(t *Trial) {
		k := t.keep(t.name(), 1)
		k.drain()
		k.expectHealth("detached", "degraded", "session_not_attachable", "")
	},
	"5/fact-cannot-start": func(t *Trial) {
		k := t.keep(t.name(), 1)
		k.report(detached(k.session(), "cannot_start"))
		k.expectHealth("detached", "degraded", "session_not_attachable", "")
	},
	"5/fact-conversation-lost": func(t *Trial) {
		k := t.keep(t.name(), 1)
		k.report(detached(k.session(), "conversation_lost"))
		k.expectHealth("detached", "degraded", "session_not_attachable", "")
	},
	"5/presence-is-not-health": func(t *Trial) {
		k := t.wakeable(plain)
		k.report(detached(k.session(), "cannot_start"))
		a := t.ExpectStatus(t.Call(owner, "POST", agentsPath+"/"+k.id+"/heartbeat",
			fields{"status": "active", "client_timestamp": instant(t.Now())}), 200)
		t.ExpectMember(a, "agent_status", "active")
		k.refuses("session_not_attachable")
	},
}

// drain lets the agent drain. It holds a lease, so that the drain does not end.
func (k *keeper) drain() {
	t := k.t
	k.lease()
	a := t.ExpectStatus(t.Call(owner, "GET", agentsPath+"/"+k.id, nil), 200)
	a = t.Call(owner, "PATCH", agentsPath+"/"+k.id+"/status",
		fields{"status": "draining", "drain_timeout_seconds": 3600}, "If-Match", fmt.Sprintf(`"%d"`, a.Num("version")))
	t.ExpectMember(t.ExpectStatus(a, 200), "status", "draining")
}

// text is a text member of an object.
func text(in fields, path string) string { return conformance.Text(in, path) }
