package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/internal/agentheartbeat"
	"github.com/picket-dev/picket/internal/conformance"
	"github.com/picket-dev/picket/internal/rig"
)

// heartbeatMistake is one thing that a server does wrong, and the rules that are about it.
type heartbeatMistake struct {
	name  string
	rules []string
	// request may change a request before it goes on; a status above 0 answers it here.
	request func(m *faultyTransport, r *http.Request, body object) int
	// answer may change an answer; body is nil if it is not a JSON object.
	answer func(m *faultyTransport, r *http.Request, res *http.Response, body object)
}

// atPolicy reports whether a request is one about a policy.
func atPolicy(r *http.Request, method, rest string) bool {
	return r.Method == method && strings.HasSuffix(r.URL.Path, "/heartbeat"+rest)
}

// asWritten sends the digest that is right instead of the one that was sent.
func asWritten(m *faultyTransport, r *http.Request, body object) int {
	changes := atPolicy(r, "PUT", "") || atPolicy(r, "DELETE", "") || atPolicy(r, "POST", "/rollback")
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/agents/"), "/")
	if digest, ok := m.seen["digest "+name].(string); ok && changes {
		body["expected_digest"] = digest
	}
	return 0
}

// notesDigests remembers the digest of each policy in an answer.
func notesDigests(m *faultyTransport, _ *http.Request, res *http.Response, body object) {
	name, _ := body["agent_name"].(string)
	digest, _ := body["digest"].(string)
	if _, policy := body["revision_id"]; policy && res.StatusCode == http.StatusOK {
		m.seen["digest "+name] = digest
	}
}

// changeHealth changes the health in an answer.
func changeHealth(change func(object)) func(*faultyTransport, *http.Request, *http.Response, object) {
	return func(_ *faultyTransport, _ *http.Request, _ *http.Response, body object) {
		if health, ok := body["health"].(object); ok {
			change(health)
		}
	}
}

// changeDecision changes the decisions about wakes.
func changeDecision(change func(object)) func(*faultyTransport, *http.Request, *http.Response, object) {
	return func(_ *faultyTransport, r *http.Request, _ *http.Response, body object) {
		if atPolicy(r, "POST", "/wake") && body["result"] != nil {
			change(body)
		}
	}
}

// changeCommands changes the commands that an adapter gets.
func changeCommands(change func([]any) []any) func(*faultyTransport, *http.Request, *http.Response, object) {
	return func(_ *faultyTransport, r *http.Request, _ *http.Response, body object) {
		if list, ok := body["sessions"].([]any); ok && strings.HasSuffix(r.URL.Path, "/commands/pending") {
			body["sessions"] = change(list)
		}
	}
}

// withoutText takes a part out of the texts of commands.
func withoutText(part string) func(*faultyTransport, *http.Request, *http.Response, object) {
	return changeCommands(func(list []any) []any {
		for _, c := range list {
			text, _ := c.(object)["text"].(string)
			c.(object)["text"] = strings.ReplaceAll(text, part, "")
		}
		return list
	})
}

// replacing changes the texts of policies on their way to the server.
func replacing(old, replacement string) func(*faultyTransport, *http.Request, object) int {
	return func(_ *faultyTransport, _ *http.Request, body object) int {
		if text, ok := body["body"].(string); ok {
			body["body"] = strings.ReplaceAll(text, old, replacement)
		}
		return 0
	}
}

// withoutDiagnostic leaves diagnostics with a code out of answers.
func withoutDiagnostic(code string) func(*faultyTransport, *http.Request, *http.Response, object) {
	return func(_ *faultyTransport, _ *http.Request, _ *http.Response, body object) {
		list, _ := body["diagnostics"].([]any)
		body["diagnostics"] = slices.DeleteFunc(list, func(d any) bool { return d.(object)["code"] == code })
	}
}

func heartbeatMistakes() []heartbeatMistake {
	return slices.Concat(policyMistakes(), wakeMistakes(), fileMistakes(), capabilityMistakes(), schedulerMistakes())
}

func policyMistakes() []heartbeatMistake {
	return []heartbeatMistake{
		{name: "accepts If-Match", rules: []string{"7/if-match-write", "7/if-match-delete", "7/if-match-rollback",
			"7/if-match-wake", "8/heartbeat_if_match_header_unsupported"},
			request: func(_ *faultyTransport, r *http.Request, _ object) int {
				r.Header.Del("If-Match")
				return 0
			}},
		{name: "changes a policy without its digest", rules: []string{"7/cas-write", "7/cas-delete", "7/cas-rollback",
			"8/heartbeat_conflict"}, request: asWritten, answer: notesDigests},
		{name: "does not say the present digest", rules: []string{"7/cas-write", "7/cas-create"},
			answer: func(_ *faultyTransport, _ *http.Request, _ *http.Response, body object) {
				delete(body, "currentDigest")
			}},
		{name: "rolls back to another revision", rules: []string{"7/rollback-http", "7/rollback-digest"},
			answer: func(_ *faultyTransport, r *http.Request, _ *http.Response, body object) {
				if atPolicy(r, "GET", "") && body["body"] == "First.\r\n" || body["body"] == "First.\n" {
					body["body"] = "Second.\n"
				}
			}},
		{name: "accepts a fixed offset", rules: []string{"2/timezone-fixed", "8/heartbeat_invalid_timezone",
			"10/heartbeat_invalid_timezone"},
			request: func(_ *faultyTransport, _ *http.Request, body object) int {
				if text, ok := body["body"].(string); ok {
					body["body"] = strings.NewReplacer(`"+02:00"`, "UTC", `"-03:00"`, "UTC").Replace(text)
				}
				return 0
			}},
		{name: "clamps silently", rules: []string{"2/min_interval-clamped", "8/heartbeat_preference_clamped",
			"12/min_interval"}, answer: withoutDiagnostic("heartbeat_preference_clamped")},
		{name: "accepts models", rules: []string{"3/provider", "3/any-depth"},
			request: replacing("model:", "summary:")},
		{name: "does not say who owns a field", rules: []string{"3/leases", "3/tasks", "2/reserved-section"},
			answer: func(_ *faultyTransport, _ *http.Request, _ *http.Response, body object) {
				policy, _ := body["policy"].(object)
				list, _ := policy["diagnostics"].([]any)
				for _, d := range list {
					d.(object)["owner_surface"] = ""
				}
			}},
		{name: "accepts unknown fields", rules: []string{"2/strict"}, request: replacing("color: red", "")},
		{name: "ignores quiet windows", rules: []string{"2/quiet_windows", "2/quiet_windows-subtracted",
			"6/quiet_window"},
			request: replacing("quiet_windows:", "active_hours:")},
		{name: "has another digest for another line end", rules: []string{"4/body-normalized"},
			answer: func(_ *faultyTransport, _ *http.Request, _ *http.Response, body object) {
				if text, _ := body["body"].(string); strings.Contains(text, "\r") {
					body["digest"] = "sha256:" + strings.Repeat("0", 64)
				}
			}},
		{name: "has one digest for all bodies", rules: []string{"4/body", "4/frontmatter"},
			answer: func(_ *faultyTransport, _ *http.Request, _ *http.Response, body object) {
				if body["digest"] != nil {
					body["digest"] = "sha256:" + strings.Repeat("0", 64)
				}
			}},
		{name: "lets agents write policies", rules: []string{"7/scope-agent-writes"},
			request: func(m *faultyTransport, r *http.Request, _ object) int {
				if !atPolicy(r, "PUT", "") {
					return 0
				}
				if key, ok := m.seen["operator"].(string); ok {
					r.Header.Set("X-API-Key", key)
				}
				m.seen["operator"] = r.Header.Get("X-API-Key") // the first who writes
				return 0
			}},
		{name: "lists the oldest revision first", rules: []string{"7/history-http"},
			answer: func(_ *faultyTransport, _ *http.Request, _ *http.Response, body object) {
				list, _ := body["revisions"].([]any)
				slices.Reverse(list)
			}},
		{name: "deletes what is not there", rules: []string{"7/delete-absent"},
			answer: func(_ *faultyTransport, r *http.Request, res *http.Response, body object) {
				if atPolicy(r, "DELETE", "") && !strings.Contains(r.URL.Path, "-none/") {
					res.StatusCode = http.StatusOK
				}
			}},
		{name: "shows camel case", rules: []string{"13/snake-case"},
			answer: func(_ *faultyTransport, r *http.Request, _ *http.Response, body object) {
				if atPolicy(r, "GET", "") {
					body["minInterval"] = body["min_interval"]
				}
			}},
	}
}

func wakeMistakes() []heartbeatMistake {
	return []heartbeatMistake{
		{name: "leaves next_allowed_at out", rules: []string{"6/boundary", "8/cooldown_active", "6/quiet_window",
			"10/heartbeat_rate_limited"}, answer: changeDecision(func(d object) { d["next_allowed_at"] = nil })},
		{name: "sends two prompts for two wakes", rules: []string{"6/sent-once", "6/wake_coalesced"},
			answer: changeDecision(func(d object) {
				if d["result"] == "coalesced" {
					d["result"], d["reason"] = "sent", "wake_sent"
				}
			})},
		{name: "wakes while a prompt is active", rules: []string{"6/session_prompt_active", "8/session_prompt_active"},
			answer: changeDecision(func(d object) {
				if d["reason"] == "session_prompt_active" {
					d["result"], d["reason"] = "sent", "wake_sent"
				}
			})},
		{name: "has no cooldown", rules: []string{"6/cooldown_active", "6/result-rate_limited", "12/wake_cooldown"},
			answer: changeDecision(func(d object) {
				if d["reason"] == "cooldown_active" {
					d["result"], d["reason"] = "sent", "wake_sent"
				}
			})},
		{name: "says 200 for a failed wake", rules: []string{"6/result-failed", "6/synthetic_prompt_failed"},
			answer: func(_ *faultyTransport, _ *http.Request, res *http.Response, body object) {
				if body["code"] == "synthetic_prompt_failed" {
					res.StatusCode = http.StatusOK
				}
			}},
		{name: "calls a race a failure", rules: []string{"6/race", "6/person-first", "8/session_prompt_active_race"},
			answer: changeDecision(func(d object) {
				if d["reason"] == "session_prompt_active_race" {
					d["result"], d["reason"] = "failed", "synthetic_prompt_failed"
				}
			})},
		{name: "wakes for another agent's session", rules: []string{"6/stranger"},
			request: func(m *faultyTransport, r *http.Request, _ object) int {
				if atPolicy(r, "POST", "/wake") {
					for _, key := range m.owners {
						r.Header.Set("X-API-Key", key)
					}
				}
				return 0
			}},
		{name: "makes a dry run a wake", rules: []string{"6/dry-run"},
			request: func(_ *faultyTransport, r *http.Request, body object) int {
				if atPolicy(r, "POST", "/wake") {
					delete(body, "dry_run")
				}
				return 0
			}},
		{name: "decides by the first snapshot", rules: []string{"4/latest", "6/latest-snapshot"},
			answer: changeDecision(func(d object) { d["policy_snapshot_id"] = "sha256:" + strings.Repeat("0", 64) })},
		{name: "names no snapshot in the prompt", rules: []string{"6/names-snapshot"},
			answer: withoutText("Policy snapshot")},
		{name: "names no reason in the prompt", rules: []string{"6/names-reason"}, answer: withoutText("(manual)")},
		{name: "implies that there is work", rules: []string{"6/implies-no-work"},
			answer: withoutText("There may be nothing to claim.")},
		{name: "does not say what to do first", rules: []string{"6/says-what-to-do"},
			answer: withoutText("get_context")},
		{name: "quotes the policy as its own words", rules: []string{"6/quotes-policy", "4/latest"},
			answer: withoutText("> ")},
		{name: "gives a lease token with a wake", rules: []string{"6/no-tokens"},
			answer: changeCommands(func(list []any) []any {
				for _, c := range list {
					c.(object)["text"] = "Use pkl_secret."
				}
				return list
			})},
		{name: "delivers no wake", rules: []string{"6/wake_sent", "7/wake-http", "6/one-prompt"},
			answer: changeCommands(func([]any) []any { return []any{} })},
		{name: "delivers all prompts at once", rules: []string{"11/one-prompt-at-a-time"},
			answer: changeCommands(func(list []any) []any { return append(list, list...) })},
		{name: "is healthy whatever happens", rules: []string{"5/fact-hung", "5/fact-cannot-start", "5/health-degraded",
			"5/health-stale"}, answer: changeHealth(func(h object) { h["health"] = "healthy" })},
		{name: "is eligible whatever happens", rules: []string{"5/eligible_for_wake", "5/fact-draining"},
			answer: changeHealth(func(h object) { h["eligible_for_wake"] = true })},
		{name: "says why in free text", rules: []string{"5/ineligibility_reason", "5/fact-hung"},
			answer: changeHealth(func(h object) {
				if h["ineligibility_reason"] != nil {
					h["ineligibility_reason"] = "the agent is busy"
				}
			})},
		{name: "keeps sessions that were left out", rules: []string{"11/whole-list"},
			answer: func(_ *faultyTransport, _ *http.Request, _ *http.Response, body object) {
				if list, ok := body["sessions"].([]any); ok && len(list) == 1 {
					body["sessions"] = append(list, list[0])
				}
			}},
		{name: "writes actors into the rows", rules: []string{"8/redacted"},
			answer: func(_ *faultyTransport, _ *http.Request, _ *http.Response, body object) {
				if list, ok := body["wakes"].([]any); ok && len(list) > 0 {
					list[0].(object)["actor"] = "key_1"
				}
			}},
		{name: "forgets who repeats a wake", rules: []string{"13/repeated-wake"},
			request: func(_ *faultyTransport, r *http.Request, body object) int {
				if atPolicy(r, "POST", "/wake") {
					delete(body, "idempotency_key")
				}
				return 0
			}},
	}
}

// TestHeartbeatSuiteFindsEveryMistake holds a server that does one thing wrong against the rules that are
// about it: a third of the servers each day.
func TestHeartbeatSuiteFindsEveryMistake(t *testing.T) {
	rig.SkipShort(t)
	t.Parallel()
	names := map[string]bool{}
	for i, b := range heartbeatMistakes() {
		if names[b.name] {
			t.Errorf("%q is there twice", b.name)
		}
		names[b.name] = true
		if !rig.OfToday(i, 3) {
			continue
		}
		t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
			onVirtualHeartbeat(t, func(t *testing.T, cfg agentheartbeat.Config) {
				cfg.HTTP = &http.Client{Transport: &faultyTransport{next: cfg.HTTP.Transport, changeRequest: b.request,
					changeAnswer: b.answer, owners: map[string]string{}, seen: map[string]any{}}}
				cfg.Only = func(r agentheartbeat.Rule) bool { return slices.Contains(b.rules, r.Name()) }
				report, err := agentheartbeat.Run(t.Context(), cfg)
				if err != nil || len(report.Results) != len(b.rules) {
					t.Fatalf("%d results of %d rules, %v", len(report.Results), len(b.rules), err)
				}
				for _, r := range report.Results {
					if r.Outcome != conformance.Failed {
						t.Errorf("a server that %s passes %s/%s: %s %s", b.name, r.Section, r.ID, r.Outcome, r.Why)
					}
				}
			})
		})
	}
	if len(names) < 30 {
		t.Errorf("%d mistakes only", len(names))
	}
}

// senseless is a server that answers every request alike.
func senseless(status int, body object) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", "application/json")
		answer, code := object{}, status
		switch {
		case r.URL.Path == "/api/v1/keys":
			answer, code = object{"keyId": "key_1", "key": "pkk_made"}, http.StatusCreated
		case r.Method == "DELETE" && strings.HasSuffix(r.URL.Path, "-none/heartbeat"):
			answer, code = object{"code": "heartbeat_no_policy"}, http.StatusNotFound
		case r.Method == "POST" && r.URL.Path == "/api/v1/tasks" && status == http.StatusOK:
			code = http.StatusBadRequest
		default:
			answer = body
		}
		w.WriteHeader(code)
		raw, err := json.Marshal(answer)
		if err != nil {
			return nil, err
		}
		_, _ = w.Write(raw)
		res := w.Result()
		res.Request = r
		return res, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// No rule is one that cannot fail: each fails on a server that agrees to everything, or on one that refuses
// everything.
func TestEveryHeartbeatRuleFailsSomewhere(t *testing.T) {
	failed := map[string]bool{}
	for _, server := range []http.RoundTripper{
		senseless(http.StatusOK, object{"present": false}),
		senseless(http.StatusForbidden, object{"code": "forbidden"}),
	} {
		report, err := agentheartbeat.Run(t.Context(), agentheartbeat.Config{URL: "http://senseless.test", Key: "k",
			HTTP: &http.Client{Transport: server}, Exact: true, Picket: "/does/not/exist", Files: t.TempDir(),
			Slack: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range report.Results {
			if r.Outcome == conformance.Failed {
				failed[r.Section+"/"+r.ID] = true
			}
		}
	}
	for _, r := range agentheartbeat.Rules() {
		if r.Check != nil && !failed[r.Name()] {
			t.Errorf("%s passes on servers without any sense", r.Name())
		}
	}
}
