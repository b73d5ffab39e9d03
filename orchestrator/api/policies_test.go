package api_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// A change of a wake policy has its condition in the body. A header that means one is refused, because
// it would be ignored.
func TestPoliciesRefuseIfMatch(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		const path = "/api/agents/ann/heartbeat"
		for _, r := range []struct{ method, path, body string }{
			{"GET", path, ""}, {"PUT", path, `{"body":"x"}`}, {"DELETE", path, `{}`},
			{"POST", path + "/validate", `{"body":"x"}`}, {"POST", path + "/rollback", `{"target_digest":"x"}`},
			{"GET", path + "/history", ""}, {"GET", path + "/status", ""},
		} {
			p.wantCode(picket.CodeIfMatchHeader, r.method, r.path, "operator", r.body, "If-Match", `"1"`)
		}
		if p.want(200, "GET", path, "reviewer", "").body["present"] != false {
			t.Error("a refused write was made")
		}
	})
}

// An agent's own key reads about the agent name under which it has registered an agent, and changes nothing.
func TestAnAgentReadsItsOwnPolicy(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		const path = "/api/agents/ann/heartbeat"
		p.want(200, "PUT", path, "operator", `{"body":"Look at your inbox.\n"}`)
		reads := []string{path, path + "/status", path + "/history", path + "/wakes"}
		for _, at := range reads {
			p.wantCode(picket.CodeForbidden, "GET", at, "agent", "")
		}
		p.addStranger()
		p.want(201, "POST", "/api/v1/agents", "agent", `{"agent_id":"a1","metadata":{"agent_name":"ann"}}`)
		for _, at := range reads {
			p.want(200, "GET", at, "agent", "")
			p.wantCode(picket.CodeForbidden, "GET", at, "stranger", "")
			p.want(200, "GET", at, "reviewer", "")
			p.wantCode(picket.CodeForbidden, "GET", strings.Replace(at, "ann", "bob", 1), "agent", "")
			p.wantCode(picket.CodeIfMatchHeader, "GET", at, "agent", "", "If-Match", `"1"`)
		}
		p.wantCode(picket.CodeForbidden, "PUT", path, "agent", `{"body":"x"}`)
		p.wantCode(picket.CodeForbidden, "POST", path+"/validate", "agent", `{"body":"x"}`)
		p.want(200, "DELETE", "/api/v1/agents/a1", "agent", "")
		for _, at := range reads {
			p.wantCode(picket.CodeForbidden, "GET", at, "agent", "")
		}
	})
}

// The answer to an invalid policy has the policy with its diagnostics, and none of the secret that is in it.
func TestTheAnswerToAnInvalidPolicyHasItsDiagnostics(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		const path = "/api/agents/ann/heartbeat"
		body := `{"body":"---\nmodel: large\nsummary: pkl_default_bbbbbbbbbbbb\n---\nUse pkl_default_aaaaaaaaaaaaaaaaaaaaaaaa\n"}`
		for _, r := range [][2]string{{"POST", path + "/validate"}, {"PUT", path}} {
			a := p.wantCode(picket.CodePolicyInvalid, r[0], r[1], "operator", body)
			for _, part := range []string{`"heartbeat_forbidden_field"`, `"owner_surface"`, `"line":2`,
				`"heartbeat_secret"`} {
				if !strings.Contains(a.raw, part) {
					t.Errorf("%s %s: the answer lacks %s: %s", r[0], r[1], part, a.raw)
				}
			}
			if strings.Contains(a.raw, "pkl_default") {
				t.Errorf("%s %s: the answer repeats the secret: %s", r[0], r[1], a.raw)
			}
		}
		p.wantNoSecretsInLog()
	})
}

// A key in the body makes a repeated request have its effect once, as the header does.
func TestAPolicyChangeIsRepeatedByTheKeyInItsBody(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		const path = "/api/agents/ann/heartbeat"
		write := `{"body":"one","idempotency_key":"k1"}`
		first := p.want(200, "PUT", path, "operator", write).text("revision_id")
		if again := p.want(200, "PUT", path, "operator", write).text("revision_id"); again != first {
			t.Errorf("the repeated request made %s, want %s", again, first)
		}
		p.wantCode(picket.CodeIdempotencyConflict, "PUT", path, "operator", `{"body":"two","idempotency_key":"k1"}`)
		p.wantCode(picket.CodeValidation, "PUT", path, "operator", `{"body":"two","idempotency_key":"a\nb"}`)
		p.wantCode(picket.CodePolicyConflict, "PUT", path, "operator", `{"body":"two"}`)
		// clients make a header for each attempt of their own, so the key in the body counts
		again := p.want(200, "PUT", path, "operator", write, "Idempotency-Key", "k2")
		if got := again.text("revision_id"); got != first {
			t.Errorf("the request with another header made %s, want %s", got, first)
		}
	})
}

// Names, members and parameters of requests are checked.
func TestPolicyRequestsAreChecked(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		const path = "/api/agents/ann/heartbeat"
		for _, r := range []struct{ method, path, body string }{
			{"GET", "/api/agents/a%20b/heartbeat", ""},
			{"GET", "/api/agents/" + strings.Repeat("a", 129) + "/heartbeat", ""},
			{"PUT", path, `{"body":1}`}, {"PUT", path, `{"text":"x"}`}, {"POST", path + "/rollback", `{}`},
			{"POST", path + "/rollback", `{"revision_id":"x"}`}, {"GET", path + "/history?limit=51", ""},
			{"GET", path + "/history?cursor=-1", ""}, {"GET", path + "/status?at=now", ""}, {"GET", path + "?at=1", ""},
			{"GET", path + "/status?at=1970-01-01T00:00:00Z", ""}, {"PUT", path, ""}, {"PUT", path, `{}`},
			{"PUT", path, `{"body":null}`}, {"POST", path + "/validate", `{}`},
		} {
			p.wantCode(picket.CodeValidation, r.method, r.path, "operator", r.body)
		}
		p.wantCode(picket.CodeTooLarge, "PUT", path, "operator", `{"body":"`+strings.Repeat("x", 1<<20)+`"}`)
		p.wantCode(picket.CodePolicyInvalid, "PUT", path, "operator", `{"body":"`+strings.Repeat("x", 40<<10)+`"}`)
	})
}
