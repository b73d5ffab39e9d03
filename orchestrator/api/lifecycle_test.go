package api_test

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

func TestTaskLifecycle(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		a := p.want(201, "POST", "/api/v1/tasks", "operator",
			`{"title":"fix it","input":{"n":12345678901234567890.10},"labels":{"team":"a"},"priority":9,"notBefore":null,"budgetEnvelope":{"tokens":250000,"usd":"1.5"}}`)
		id := a.text("taskId")
		if a.header.Get("Location") != "/api/v1/tasks/"+id || a.text("state") != "queued" ||
			!strings.Contains(a.raw, "12345678901234567890.10") || !strings.Contains(a.raw, `"usd":1.5`) {
			t.Errorf("submitted: %s", a.raw)
		}
		p.want(200, "GET", a.header.Get("Location"), "agent", "")
		p.want(200, "GET", "/api/v1/tasks/"+id+"/explain", "agent", "")
		if got := p.want(200, "GET",
			"/api/v1/tasks?state=queued,leased&label=team=a&since=2026-01-01T00:00:00Z&limit=1", "agent",
			""); !strings.Contains(got.raw, id) {
			t.Errorf("list: %s", got.raw)
		}
		if got := p.want(200, "GET", "/api/v1/tasks?label=team=b", "agent", ""); strings.Contains(got.raw, id) {
			t.Errorf("list by another label: %s", got.raw)
		}
		lease, held := p.lease()
		if lease.TaskID != id || lease.FencingToken != 1 || lease.ProxyURL != "http://proxy" {
			t.Errorf("lease: %+v", lease)
		}
		if got := p.want(200, "GET", "/api/v1/leases", "reviewer", ""); !strings.Contains(got.raw, lease.RunID) {
			t.Errorf("leases: %s", got.raw)
		}
		_, err := p.Report(t.Context(), held, "r1", picket.Progress{Summary: "half way"})
		must(t, err)
		if got := p.want(200, "GET", "/api/v1/tasks/"+id+"/reports", "agent", ""); !strings.Contains(got.raw,
			"half way") {
			t.Errorf("reports: %s", got.raw)
		}
		_, err = p.Complete(t.Context(), held,
			picket.Completion{Output: picket.RawJSON(`"done"`), Summary: "all of it"})
		must(t, err)
		if got := p.want(200, "GET", "/api/v1/reviews", "reviewer", ""); !strings.Contains(got.raw, id) {
			t.Errorf("reviews: %s", got.raw)
		}
		if got := p.want(200, "POST", "/api/v1/reviews/"+id+"/approve", "reviewer",
			`{"note":"fine"}`); got.text("state") != "completed" {
			t.Errorf("approved: %s", got.raw)
		}
		for _, path := range []string{"/tasks/" + id + "/cancel", "/reviews/" + id + "/approve",
			"/reviews/" + id + "/reject", "/leases/" + id + "/expire"} {
			p.wantCode(picket.CodeTaskClosed, "POST", "/api/v1"+path, "admin", `{}`)
		}
	})
}

func TestRejectMakesTheFixInTheSameStep(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		id := p.toReview()
		if a := p.wantCode(picket.CodeValidation, "POST", "/api/v1/reviews/"+id+"/reject", "reviewer",
			`{"note":"no","fix":{"title":" "}}`); a.text("field") != "/fix/title" {
			t.Errorf("field: %s", a.raw)
		}
		p.wantCode(picket.CodeValidation, "POST", "/api/v1/reviews/"+id+"/reject", "reviewer",
			`{"fix":{"title":"x","review":"parent"}}`)
		a := p.want(200, "POST", "/api/v1/reviews/"+id+"/reject", "reviewer", `{"note":"no","fix":{"title":"again"}}`)
		fix := p.want(200, "GET", "/api/v1/tasks/"+a.text("fixTaskId"), "reviewer", "")
		if a.text("state") != "rejected" || fix.text("fixes") != id || fix.text("title") != "again" {
			t.Errorf("rejected %s, fix %s", a.raw, fix.raw)
		}
		other := p.submit(`{"title":"y","review":"none"}`)
		p.want(200, "POST", "/api/v1/tasks/"+other+"/cancel", "operator", `{}`)
		again := p.toReviewOf(a.text("fixTaskId"))
		if got := p.want(200, "POST", "/api/v1/reviews/"+again+"/reject", "reviewer",
			`{"note":"no","fix":null}`); got.body["fixTaskId"] != nil {
			t.Errorf("rejected without a fix: %s", got.raw)
		}
	})
}

// toReviewOf brings a task that is queued already to review.
func (p *fixture) toReviewOf(id string) string {
	p.t.Helper()
	lease, held := p.lease()
	if lease.TaskID != id {
		p.t.Fatalf("leased %s, want %s", lease.TaskID, id)
	}
	_, err := p.Complete(p.t.Context(), held, picket.Completion{Output: picket.RawJSON(`1`)})
	must(p.t, err)
	return id
}

func TestHandoffs(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		task, handoff := p.toHandoff()
		path := "/api/v1/handoffs/" + handoff
		if a := p.want(200, "GET", "/api/v1/handoffs", "reviewer", ""); !strings.Contains(a.raw, handoff) {
			t.Errorf("open: %s", a.raw)
		}
		if a := p.want(200, "GET", path, "reviewer", ""); a.text("question") != "Which?" || a.text("taskId") != task {
			t.Errorf("hand-off: %s", a.raw)
		}
		if a := p.want(200, "POST", path+"/claim", "reviewer", ""); a.text("claimedBy") == "" {
			t.Errorf("claimed: %s", a.raw)
		}
		p.wantCode(picket.CodeValidation, "POST", path+"/answer", "reviewer", `{}`)
		p.wantCode(picket.CodeValidation, "POST", path+"/answer", "reviewer", `{"option":"c"}`)
		if a := p.want(200, "POST", path+"/answer", "reviewer",
			`{"answer":{"why":1.0},"option":"a"}`); a.text("state") != "queued" || a.text("taskId") != task {
			t.Errorf("answered: %s", a.raw)
		}
		p.wantCode(picket.CodeStateConflict, "POST", path+"/answer", "reviewer", `{"answer":"b"}`)
		if a := p.want(200, "GET", "/api/v1/handoffs?state=answered", "reviewer", ""); !strings.Contains(a.raw,
			handoff) {
			t.Errorf("answered: %s", a.raw)
		}
		lease, held := p.lease()
		if lease.TaskID != task || lease.FencingToken != 2 || len(lease.Answers) != 1 {
			t.Errorf("lease after the answer: %+v", lease)
		}
		help, err := p.RequestHelp(t.Context(), held, picket.HelpRequest{Question: "And now?"})
		must(t, err)
		if a := p.want(200, "POST", "/api/v1/handoffs/"+help.HandoffID+"/finish", "reviewer",
			`{"output":"by hand"}`); a.text("state") != "completed" {
			t.Errorf("finished: %s", a.raw)
		}
		_, third := p.toHandoff()
		if a := p.want(200, "POST", "/api/v1/handoffs/"+third+"/cancel", "reviewer",
			`{"reason":"no need"}`); a.text("state") != "cancelled" {
			t.Errorf("cancelled: %s", a.raw)
		}
	})
}

func TestOperatorActions(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		id := p.submit(`{"title":"x"}`)
		p.wantCode(picket.CodeStateConflict, "POST", "/api/v1/leases/"+id+"/expire", "operator", `{}`)
		first, _ := p.lease()
		if a := p.want(200, "POST", "/api/v1/leases/"+id+"/expire", "operator",
			`{"reason":"stuck"}`); a.text("state") != "queued" || a.body["failures"] != 0.0 {
			t.Errorf("expired: %s", a.raw)
		}
		second, _ := p.lease()
		if second.TaskID != first.TaskID || second.FencingToken != 2 {
			t.Errorf("second lease: %+v", second)
		}
		expire := func(run string) string { return `{"reason":"stuck","runId":"` + run + `"}` }
		p.wantCode(picket.CodeStateConflict, "POST", "/api/v1/leases/"+id+"/expire", "operator", expire(first.RunID))
		p.wantCode(picket.CodeValidation, "POST", "/api/v1/leases/"+id+"/expire", "operator", expire("run_x"))
		if a := p.want(200, "GET", "/api/v1/leases", "operator", ""); !strings.Contains(a.raw, second.RunID) {
			t.Errorf("the other run lost its lease: %s", a.raw)
		}
		if a := p.want(200, "POST", "/api/v1/tasks/"+id+"/cancel", "operator",
			`{"reason":"enough"}`); a.text("state") != "cancelled" || a.text("reason") != "enough" {
			t.Errorf("cancelled: %s", a.raw)
		}
		if a := p.want(200, "POST", "/api/v1/tasks/"+id+"/retry", "operator", `{}`); a.text("retries") != id ||
			a.text("state") != "queued" {
			t.Errorf("retried: %s", a.raw)
		}
		if a := p.want(200, "POST", "/api/v1/pause", "operator",
			`{"hard":true,"reason":"stop"}`); a.body["paused"] != true || a.body["hard"] != true {
			t.Errorf("paused: %s", a.raw)
		}
		if a := p.want(200, "POST", "/api/v1/leases", "agent", `{}`); a.raw != `{"leases":[]}` {
			t.Errorf("acquired while paused: %s", a.raw)
		}
		p.wantCode(picket.CodeStateConflict, "POST", "/api/v1/resume", "operator",
			`{"pausedAt":"2020-01-01T00:00:00Z"}`)
		if a := p.want(200, "POST", "/api/v1/resume", "operator", ``); a.body["paused"] != false {
			t.Errorf("resumed: %s", a.raw)
		}
		p.want(200, "GET", "/api/v1/stats", "reviewer", "")
	})
}

func TestKeys(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		a := p.want(201, "POST", "/api/v1/keys", "admin",
			`{"name":"ci","scopes":["agent"],"expiresAt":"2999-01-01T00:00:00Z"}`)
		p.keys["ci"] = a.text("key")
		path := a.header.Get("Location")
		if path != "/api/v1/keys/"+a.text("keyId") {
			t.Errorf("Location %q", path)
		}
		p.want(200, "GET", "/api/v1/tasks", "ci", "")
		for _, read := range []string{path, "/api/v1/keys"} {
			if got := p.want(200, "GET", read, "admin", ""); strings.Contains(got.raw, p.keys["ci"]) ||
				!strings.Contains(got.raw, `"name":"ci"`) {
				t.Errorf("%s: %s", read, got.raw)
			}
		}
		if got := p.want(200, "DELETE", path, "admin", ""); got.body["revokedAt"] == nil {
			t.Errorf("revoked: %s", got.raw)
		}
		p.wantCode(picket.CodeUnauthenticated, "GET", "/api/v1/tasks", "ci", "")
	})
}

func TestLogs(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		id := p.submit(`{"title":"x"}`)
		path := "/api/v1/tasks/" + id + "/logs"
		if a := p.want(200, "GET", path, "agent", ""); a.raw != "" || a.header.Get("X-Picket-Run") != "" {
			t.Errorf("no run yet: %q %v", a.raw, a.header)
		}
		lease, held := p.lease()
		if a := p.want(200, "GET", path, "agent", ""); a.raw != "" || a.header.Get("X-Picket-Next") != "0" {
			t.Errorf("no output yet: %q %v", a.raw, a.header)
		}
		out := "one\ntwo \xff\x00 three\n"
		_, err := p.RunLog(t.Context(), held, picket.LogWrite{Stream: "stdout", Offset: 0, Data: []byte(out)})
		must(t, err)
		a := p.want(200, "GET", path+"?offset=4&limit=5&run="+lease.RunID, "agent", "")
		if a.raw != out[4:9] || a.header.Get("X-Picket-Run") != lease.RunID || a.header.Get("X-Picket-Offset") != "4" ||
			a.header.Get("X-Picket-Next") != "9" {
			t.Errorf("a piece: %q %v", a.raw, a.header)
		}
		if a := p.want(200, "GET", path+"?stream=stderr", "agent", ""); a.raw != "" ||
			a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("the other stream: %q %v", a.raw, a.header)
		}
	})
}

func TestAKeySelectsItsNamespace(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		made, err := p.other.CreateKey(t.Context(), root,
			picket.KeyRequest{Name: "o", Scopes: []picket.Scope{picket.ScopeAdmin}})
		must(t, err)
		p.keys["other"] = made.Key.Reveal()
		here, there := p.submit(`{"title":"x"}`), p.want(201, "POST", "/api/v1/tasks", "other", `{"title":"x"}`).
			text("taskId")
		p.wantCode(picket.CodeNotFound, "GET", "/api/v1/tasks/"+here, "other", "")
		p.wantCode(picket.CodeNotFound, "GET", "/api/v1/tasks/"+there, "admin", "")
		p.want(200, "GET", "/api/v1/tasks/"+there, "other", "")
		// A key of one namespace under the name of another is not a key.
		p.keys["forged"] = strings.Replace(p.keys["other"], "pkk_other_", "pkk_default_", 1)
		p.wantCode(picket.CodeUnauthenticated, "GET", "/api/v1/tasks", "forged", "")
	})
}
