package main

import (
	"net/http"
	"strings"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// anyWake makes a wake that was refused for one of some reasons one that was sent.
func anyWake(reasons ...string) func(*faultyTransport, *http.Request, *http.Response, object) {
	return changeDecision(func(d object) {
		for _, reason := range reasons {
			if d["reason"] == reason {
				d["result"], d["reason"] = "sent", "wake_sent"
			}
		}
	})
}

// fileMistakes are about the files of policies.
func fileMistakes() []heartbeatMistake {
	return []heartbeatMistake{
		{name: "writes another text into the file", rules: []string{"1/beside-agent", "1/store-is-truth", "12/dir"},
			request: replacing(".", "!")},
		{name: "decides by the store alone", rules: []string{"1/file-invalid", "1/file-removed", "1/file-escape",
			"1/file-conflict", "4/invalid", "4/invalid-others", "6/heartbeat_invalid"},
			answer: anyWake("heartbeat_invalid", "heartbeat_no_policy")},
		{name: "names the snapshot of the store", rules: []string{"1/file-edited"},
			answer: changeDecision(func(d object) { d["policy_snapshot_id"] = "sha256:" + strings.Repeat("0", 64) })},
		{name: "wakes in spite of a file that is disabled", rules: []string{"4/at-wake"},
			answer: anyWake("heartbeat_disabled")},
		{name: "shows an invalid file as a policy", rules: []string{"4/inspect-invalid", "7/cas-repair"},
			answer: func(_ *faultyTransport, r *http.Request, res *http.Response, _ object) {
				if atPolicy(r, "GET", "") && res.StatusCode == http.StatusUnprocessableEntity {
					res.StatusCode = http.StatusOK
				}
			}},
		{name: "truncates silently", rules: []string{"2/body-truncated"},
			answer: withoutDiagnostic("heartbeat_body_truncated")},
	}
}

// changing changes the answers to requests whose path has a part.
func changing(part string, change func(*http.Response, object)) func(*faultyTransport, *http.Request, *http.Response,
	object) {
	return func(_ *faultyTransport, r *http.Request, res *http.Response, body object) {
		if strings.Contains(r.URL.Path, part) && body != nil {
			change(res, body)
		}
	}
}

// capabilityMistakes are about what the capability of a session opens, and what its prompts may spend.
func capabilityMistakes() []heartbeatMistake {
	return []heartbeatMistake{
		{name: "admits a capability for ever", rules: []string{"11/capability"},
			answer: changing("/agent/context", func(res *http.Response, _ object) { res.StatusCode = http.StatusOK })},
		{name: "opens every tool to a session", rules: []string{"11/capability"},
			answer: changing("/v1/tools/mark_complete", func(res *http.Response, _ object) {
				res.StatusCode = http.StatusOK
			})},
		{name: "loses the turn that was reserved", rules: []string{"11/next-task"},
			answer: changing("/result", func(_ *http.Response, body object) { delete(body, "nextTask") })},
		{name: "reserves a turn without a task", rules: []string{"11/next-task"},
			answer: changing("/v1/tools/next_task", func(_ *http.Response, body object) { body["reserved"] = true })},
		{name: "hides the messages in the context", rules: []string{"11/get-context"},
			answer: changing("/agent/context", func(_ *http.Response, body object) {
				body["unread"] = object{"messages": 0}
			})},
		{name: "acknowledges what an agent peeks at", rules: []string{"13/peek"},
			request: func(_ *faultyTransport, r *http.Request, body object) int {
				if requestIs(r, "POST", "/read_messages") {
					delete(body, "peek")
				}
				return 0
			}},
		{name: "pays prompts from the envelope of wakes", rules: []string{"11/money"},
			answer: changing("/api/v1/envelopes/prompt:", func(_ *http.Response, body object) {
				body["children"] = []any{}
			})},
		{name: "keeps what a prompt has not spent", rules: []string{"11/money"},
			answer: changing("/api/v1/envelopes/prompt_", func(_ *http.Response, body object) {
				body["available"] = object{"tokens": 0, "usd": 0.1}
			})},
		{name: "has no budget of wakes", rules: []string{"6/wake_budget_exceeded"},
			answer: anyWake("wake_budget_exceeded")},
	}
}

// withoutWakes leaves out wakes whose text has a part.
func withoutWakes(part string) func(*faultyTransport, *http.Request, *http.Response, object) {
	return changeCommands(func(list []any) []any {
		kept := []any{}
		for _, c := range list {
			if text, _ := c.(object)["text"].(string); !strings.Contains(text, part) {
				kept = append(kept, c)
			}
		}
		return kept
	})
}

// explaining changes the reasons of explanations.
func explaining(old, replacement string) func(*faultyTransport, *http.Request, *http.Response, object) {
	return changing("/explain", func(_ *http.Response, body object) {
		list, _ := body["reasons"].([]any)
		for _, reason := range list {
			text, _ := reason.(object)["text"].(string)
			reason.(object)["text"] = strings.ReplaceAll(text, old, replacement)
		}
	})
}

// schedulerMistakes are about wakes that nobody asks for, and about what is told over minutes.
func schedulerMistakes() []heartbeatMistake {
	return []heartbeatMistake{
		{name: "wakes for no message", rules: []string{"6/scheduler-message", "6/scheduler-overdue"},
			answer: withoutWakes("(message)")},
		{name: "wakes for no work", rules: []string{"6/scheduler-due"}, answer: withoutWakes("(work)")},
		{name: "wakes for no hand-off", rules: []string{"6/scheduler-due"}, answer: withoutWakes("(handoff)")},
		{name: "wakes for no subtask", rules: []string{"6/scheduler-due"}, answer: withoutWakes("(subtask)")},
		{name: "wakes by the clock once", rules: []string{"6/scheduler-gate", "6/scheduler-backs-off"},
			answer: func(m *faultyTransport, r *http.Request, res *http.Response, body object) {
				first := m.seen["time "+agentOf(r)]
				if first == nil && strings.Contains(conformance.JSON(body["sessions"]), "(time)") {
					m.seen["time "+agentOf(r)] = conformance.JSON(body["sessions"])
				} else if first != nil && first != conformance.JSON(body["sessions"]) {
					withoutWakes("(time)")(m, r, res, body)
				}
			}},
		{name: "wakes although nothing is new", rules: []string{"6/scheduler-gate", "6/scheduler-overdue"},
			answer: func(m *faultyTransport, r *http.Request, _ *http.Response, body object) {
				if list, ok := body["sessions"].([]any); ok && requestIs(r, "GET", "/commands/pending") {
					if len(list) > 0 {
						m.seen["wake "+agentOf(r)] = list[0]
					} else if again := m.seen["wake "+agentOf(r)]; again != nil {
						body["sessions"] = []any{again}
					}
				}
			}},
		{name: "lets people wait like the scheduler", rules: []string{"12/default_interval"},
			answer: changeDecision(func(d object) {
				if d["reason"] == "cooldown_active" {
					d["next_allowed_at"] = time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano)
				}
			})},
		{name: "tells the scheduler what it tells people", rules: []string{"6/scheduler-coalesced"},
			answer: explaining("wake_coalesced", "cooldown_active")},
		{name: "wakes agents that nothing meters", rules: []string{"6/unmetered"},
			answer: explaining("is not woken for it: unmetered", "is idle; the scheduler wakes it within a minute")},
		{name: "tells no change of health", rules: []string{"12/session_health_hook_min_interval"},
			answer: droppingEvents(func(e object) bool { return e["type"] == "agent_session.health" })},
		{name: "does not say why an agent is asleep", rules: []string{"6/explained"},
			answer: explaining("quiet_window", "a reason")},
	}
}
