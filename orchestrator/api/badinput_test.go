package api_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

func TestBadInput(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		const task = "/api/v1/tasks/task_" + aULID
		nested := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
		for _, tt := range []struct {
			name   string
			method string
			path   string
			body   string
			code   picket.Code
			field  string
		}{
			{"unknown field", "POST", "/api/v1/tasks", `{"title":"x","colour":"red"}`, picket.CodeValidation,
				"/colour"},
			{"unknown field deep", "POST", "/api/v1/tasks", `{"title":"x","retry":{"max":3}}`, picket.CodeValidation,
				"/retry/max"},
			{"wrong case", "POST", "/api/v1/tasks", `{"Title":"x"}`, picket.CodeValidation, "/Title"},
			{"duplicate field", "POST", "/api/v1/tasks", `{"title":"x","title":"y"}`, picket.CodeValidation, "/title"},
			{"duplicate in input", "POST", "/api/v1/tasks", `{"title":"x","input":{"a":1,"a":2}}`,
				picket.CodeValidation, "/input/a"},
			{"wrong type", "POST", "/api/v1/tasks", `{"title":7}`, picket.CodeValidation, "/title"},
			{"wrong type in array", "POST", "/api/v1/tasks", `{"title":"x","needs":[1]}`, picket.CodeValidation,
				"/needs/0"},
			{"missing title", "POST", "/api/v1/tasks", `{}`, picket.CodeValidation, "/title"},
			{"blank title", "POST", "/api/v1/tasks", `{"title":" \n"}`, picket.CodeValidation, "/title"},
			{"negative window", "POST", "/api/v1/tasks", `{"title":"x","leaseWindowSeconds":-1}`, picket.CodeValidation,
				"/leaseWindowSeconds"},
			{"huge window", "POST", "/api/v1/tasks", `{"title":"x","leaseWindowSeconds":86401}`, picket.CodeValidation,
				"/leaseWindowSeconds"},
			{"fraction", "POST", "/api/v1/tasks", `{"title":"x","priority":1.5}`, picket.CodeValidation, "/priority"},
			{"brace in role", "POST", "/api/v1/tasks", `{"title":"x","role":"a}b"}`, picket.CodeValidation, "/role"},
			{"bad id in body", "POST", "/api/v1/tasks", `{"title":"x","fixes":"task_1"}`, picket.CodeValidation,
				"/fixes"},
			{"bad time", "POST", "/api/v1/tasks", `{"title":"x","notBefore":"soon"}`, picket.CodeValidation,
				"/notBefore"},
			{"bad money", "POST", "/api/v1/tasks", `{"title":"x","budgetEnvelope":{"usd":"lots"}}`,
				picket.CodeValidation, "/budgetEnvelope/usd"},
			{"negative money", "POST", "/api/v1/tasks", `{"title":"x","budgetEnvelope":{"usd":-1}}`,
				picket.CodeValidation, "/budgetEnvelope"},
			{"unknown class", "POST", "/api/v1/tasks", `{"title":"x","retry":{"on":["rain"]}}`, picket.CodeValidation,
				"/retry/on/0"},
			{"stall too soon", "POST", "/api/v1/tasks", `{"title":"x","stallAfterSeconds":1}`, picket.CodeValidation,
				"/stallAfterSeconds"},
			{"review without a parent", "POST", "/api/v1/tasks", `{"title":"x","review":"parent"}`,
				picket.CodeValidation, "/review"},
			{"10k deep", "POST", "/api/v1/tasks", `{"title":"x","input":` + nested + `}`, picket.CodeValidation, ""},
			{"bad UTF-8", "POST", "/api/v1/tasks", "{\"title\":\"\xff\"}", picket.CodeValidation, "/title"},
			{"not JSON", "POST", "/api/v1/tasks", `{`, picket.CodeValidation, ""},
			{"array", "POST", "/api/v1/tasks", `[]`, picket.CodeValidation, ""},
			{"oversize body", "POST", "/api/v1/tasks", `{"title":"` + strings.Repeat("x", 1<<20) + `"}`,
				picket.CodeTooLarge, ""},
			{"oversize input", "POST", "/api/v1/tasks",
				`{"title":"x","input":"` + strings.Repeat("x", picket.MaxPayload) + `"}`, picket.CodeTooLarge,
				"/input"},
			{"oversize reason", "POST", task + "/cancel", `{"reason":"` + strings.Repeat("x", 5000) + `"}`,
				picket.CodeValidation, "/reason"},
			{"bad id", "GET", "/api/v1/tasks/42", "", picket.CodeValidation, "id"},
			{"brace in id", "GET", "/api/v1/tasks/task_%7B01%7D", "", picket.CodeValidation, "id"},
			{"id of another kind", "GET", "/api/v1/tasks/run_" + aULID, "", picket.CodeValidation, "id"},
			{"unknown task", "GET", task, "", picket.CodeNotFound, ""},
			{"unknown handoff", "GET", "/api/v1/handoffs/handoff_" + aULID, "", picket.CodeNotFound, ""},
			{"unknown key", "GET", "/api/v1/keys/key_" + aULID, "", picket.CodeNotFound, ""},
			{"unknown state", "GET", "/api/v1/tasks?state=queued,asleep", "", picket.CodeValidation, "?state"},
			{"unknown parameter", "GET", "/api/v1/tasks?colour=red", "", picket.CodeValidation, "?colour"},
			{"parameter where none is", "GET", task + "?x=1", "", picket.CodeValidation, "?x"},
			{"parent", "GET", "/api/v1/tasks?parent=" + aULID, "", picket.CodeValidation, "?parent"},
			{"bad way to follow a log", "GET", task + "/logs?follow=true", "", picket.CodeValidation, "?follow"},
			{"wait without follow", "GET", task + "/logs?waitSeconds=5", "", picket.CodeValidation, "?waitSeconds"},
			{"bad timestamps", "GET", task + "/logs?timestamps=1", "", picket.CodeValidation, "?timestamps"},
			{"parameter twice", "GET", "/api/v1/tasks?limit=1&limit=2", "", picket.CodeValidation, "?limit"},
			{"bad limit", "GET", "/api/v1/tasks?limit=0", "", picket.CodeValidation, "?limit"},
			{"bad cursor", "GET", "/api/v1/tasks?cursor=yesterday", "", picket.CodeValidation, "?cursor"},
			{"bad label", "GET", "/api/v1/tasks?label=team", "", picket.CodeValidation, "?label"},
			{"bad since", "GET", "/api/v1/tasks?since=yesterday", "", picket.CodeValidation, "?since"},
			{"bad query", "GET", "/api/v1/tasks?limit=%zz", "", picket.CodeValidation, ""},
			{"bad stream", "GET", task + "/logs?stream=stdin", "", picket.CodeValidation, "?stream"},
			{"negative offset", "GET", task + "/logs?offset=-1", "", picket.CodeValidation, "?offset"},
			{"negative cursor of events", "GET", "/api/v1/events?after=-1", "", picket.CodeValidation, "?after"},
			{"bad event type", "GET", "/api/v1/events?type=a%20b", "", picket.CodeValidation, "?type"},
			{"bad task of events", "GET", "/api/v1/events?task=x", "", picket.CodeValidation, "?task"},
			{"unknown state of handoffs", "GET", "/api/v1/handoffs?state=lost", "", picket.CodeValidation, "?state"},
			{"too long a wait", "POST", "/api/v1/leases", `{"waitSeconds":51}`, picket.CodeValidation, "/waitSeconds"},
			{"relative root", "POST", "/api/v1/leases", `{"workspaceRoot":"runs"}`, picket.CodeValidation,
				"/workspaceRoot"},
			{"bad capability", "POST", "/api/v1/leases", `{"capabilities":["a,b"]}`, picket.CodeValidation,
				"/capabilities/0"},
			{"key without a name", "POST", "/api/v1/keys", `{"scopes":["agent"]}`, picket.CodeValidation, "/name"},
			{"key without scopes", "POST", "/api/v1/keys", `{"name":"x"}`, picket.CodeValidation, "/scopes"},
			{"key with an unknown scope", "POST", "/api/v1/keys", `{"name":"x","scopes":["god"]}`,
				picket.CodeValidation, "/scopes/0"},
			{"client key without limits", "POST", "/api/v1/keys", `{"name":"x","scopes":["client"]}`,
				picket.CodeValidation, "/client"},
			{"client key with another scope", "POST", "/api/v1/keys",
				`{"name":"x","scopes":["client","admin"],"client":{"roles":["a"]}}`, picket.CodeValidation, "/scopes"},
			{"limits of clients for an agent", "POST", "/api/v1/keys",
				`{"name":"x","scopes":["agent"],"client":{"roles":["a"]}}`, picket.CodeValidation, "/client"},
			{"client key without roles", "POST", "/api/v1/keys",
				`{"name":"x","scopes":["client"],"client":{"maxOpen":1}}`, picket.CodeValidation, "/client/roles"},
			{"key that has ended", "POST", "/api/v1/keys",
				`{"name":"x","scopes":["agent"],"expiresAt":"2001-01-01T00:00:00Z"}`, picket.CodeValidation,
				"/expiresAt"},
			{"unknown event type", "GET", "/api/v1/events?type=task.nonsense", ``, picket.CodeValidation, "?type"},
			{"unknown path", "GET", "/api/v2/tasks", "", picket.CodeNotFound, ""},
			{"path of a later part", "GET", "/api/v1/envelopes", "", picket.CodeNotFound, ""},
			{"wrong method", "PUT", "/api/v1/tasks", `{}`, picket.CodeMethodNotAllowed, ""},
		} {
			t.Run(tt.name, func(t *testing.T) {
				a := p.wantCode(tt.code, tt.method, tt.path, "admin", tt.body)
				if a.text("field") != tt.field {
					t.Errorf("field %q, want %q: %s", a.text("field"), tt.field, a.raw)
				}
			})
		}
		stats := p.want(200, "GET", "/api/v1/stats", "admin", "")
		if tasks, _ := stats.body["tasks"].(map[string]any); tasks["queued"] != 0.0 {
			t.Errorf("a refused request has left a task: %s", stats.raw)
		}
	})
}

func TestBadHeaders(t *testing.T) {
	p := newMemoryFixture(t)
	for _, ct := range []string{"text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16",
		"nonsense;;"} {
		p.wantCode(picket.CodeUnsupportedMedia, "POST", "/api/v1/tasks", "operator", `{"title":"x"}`, "Content-Type",
			ct)
	}
	p.wantCode(picket.CodeUnsupportedMedia, "POST", "/api/v1/tasks", "operator", `{"title":"x"}`, "Content-Encoding",
		"gzip")
	for _, key := range []string{strings.Repeat("k", 256), "tab\there", "ünicode"} {
		if a := p.wantCode(picket.CodeValidation, "POST", "/api/v1/tasks", "operator", `{"title":"x"}`,
			"Idempotency-Key", key); a.text("field") != "Idempotency-Key" {
			t.Errorf("field: %s", a.raw)
		}
	}
	if a := p.wantCode(picket.CodeMethodNotAllowed, "PATCH", "/api/v1/tasks", "operator",
		""); !strings.Contains(a.header.Get("Allow"), "POST") {
		t.Errorf("Allow: %q", a.header.Get("Allow"))
	}
}

func TestTheSameRequestTwiceIsOneEffect(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		const body = `{"title":"once"}`
		first := p.want(201, "POST", "/api/v1/tasks", "operator", body, "Idempotency-Key", "k 1")
		again := p.want(201, "POST", "/api/v1/tasks", "operator", body, "Idempotency-Key", "k 1")
		if first.text("taskId") != again.text("taskId") || again.header.Get("Location") == "" {
			t.Errorf("first %s, again %s", first.raw, again.raw)
		}
		p.wantCode(picket.CodeIdempotencyConflict, "POST", "/api/v1/tasks", "operator", `{"title":"other"}`,
			"Idempotency-Key", "k 1")
		other := p.want(201, "POST", "/api/v1/tasks", "admin", body, "Idempotency-Key", "k 1")
		if other.text("taskId") == first.text("taskId") {
			t.Error("another caller's key is the same key")
		}

		lease := p.want(200, "POST", "/api/v1/leases", "agent", `{}`, "Idempotency-Key", "l")
		replay := p.want(200, "POST", "/api/v1/leases", "agent", `{}`, "Idempotency-Key", "l")
		if a, b := leaseTokens(lease), leaseTokens(replay); len(a) != 1 || len(b) != 1 || a[0] != b[0] {
			t.Errorf("acquired %v, replayed %v", a, b)
		}

		cancel := "/api/v1/tasks/" + first.text("taskId") + "/cancel"
		p.want(200, "POST", cancel, "operator", `{}`, "Idempotency-Key", "c")
		p.want(200, "POST", cancel, "operator", `{}`, "Idempotency-Key", "c")
		p.wantCode(picket.CodeTaskClosed, "POST", cancel, "operator", `{}`)
		// The key is the route's: the same text elsewhere is another request.
		p.want(200, "POST", "/api/v1/tasks/"+other.text("taskId")+"/cancel", "operator", `{"reason":"r"}`,
			"Idempotency-Key", "c")

		key := p.want(201, "POST", "/api/v1/keys", "admin", `{"name":"n","scopes":["agent"]}`, "Idempotency-Key", "n")
		if same := p.want(201, "POST", "/api/v1/keys", "admin", `{"name":"n","scopes":["agent"]}`, "Idempotency-Key",
			"n"); same.text("key") != key.text("key") {
			t.Error("a repeated request has made another key")
		}
		// A refusal is not stored under its key.
		p.wantCode(picket.CodeValidation, "POST", "/api/v1/tasks", "operator", `{}`, "Idempotency-Key", "r")
		p.want(201, "POST", "/api/v1/tasks", "operator", body, "Idempotency-Key", "r")
	})
}

func leaseTokens(a response) (tokens []string) {
	leases, _ := a.body["leases"].([]any)
	for _, l := range leases {
		lease, _ := l.(map[string]any)
		token, _ := lease["leaseToken"].(string)
		tokens = append(tokens, token)
	}
	return tokens
}
