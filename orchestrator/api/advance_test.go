package api_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

const advancePath = "/api/v1/leases/advance"

// advanceBody is the body that completes a lease and asks for the next.
func advanceBody(l picket.Lease, acquire string) string {
	return fmt.Sprintf(`{"leaseToken":%q,"fencingToken":%d,"output":{"n":1.50},"summary":"done","acquire":%s}`,
		l.LeaseToken.Reveal(), l.FencingToken, acquire)
}

func (p *fixture) decodeAdvanced(a response) picket.Advanced {
	p.t.Helper()
	var got picket.Advanced
	must(p.t, json.Unmarshal([]byte(a.raw), &got))
	return got
}

func TestAdvanceOverHTTP(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		first := p.submit(`{"title":"x"}`)
		lease, _ := p.lease()
		second, third := p.submit(`{"title":"y","input":{"k":1}}`), p.submit(`{"title":"z","review":"none"}`)
		body := advanceBody(lease, `{"agentId":"a1"}`)
		a := p.want(200, "POST", advancePath, "agent", body, "Idempotency-Key", "k")
		got := p.decodeAdvanced(a)
		if got.State != picket.TaskReview || len(got.Leases) != 1 || got.Leases[0].TaskID != second ||
			string(got.Leases[0].Task.Input) != `{"k":1}` {
			t.Fatalf("advanced: %s", a.raw)
		}
		if a := p.want(200, "GET", "/api/v1/tasks/"+first, "agent", ""); a.text("state") != "review" ||
			!strings.Contains(a.raw, `{"n":1.50}`) || !strings.Contains(a.raw, `"done"`) {
			t.Errorf("completed: %s", a.raw)
		}
		// The same request again is one effect and one answer.
		if again := p.decodeAdvanced(p.want(200, "POST", advancePath, "agent", body, "Idempotency-Key",
			"k")); again.State != got.State ||
			len(again.Leases) != 1 || again.Leases[0].LeaseToken != got.Leases[0].LeaseToken {
			t.Errorf("again: %+v", again)
		}
		p.wantCode(picket.CodeIdempotencyConflict, "POST", advancePath, "agent", advanceBody(lease, `{}`),
			"Idempotency-Key", "k")
		// Without a key it tells the same state and grants what is left.
		if fresh := p.decodeAdvanced(p.want(200, "POST", advancePath, "agent", body)); fresh.State != got.State ||
			len(fresh.Leases) != 1 || fresh.Leases[0].TaskID != third {
			t.Errorf("without a key: %+v", fresh)
		}
		p.wantCode(picket.CodeLeaseReleased, "POST", advancePath, "agent", strings.Replace(body, "1.50", "2", 1))
		if a := p.want(200, "POST", advancePath, "operator",
			advanceBody(got.Leases[0], `{}`)); a.raw != `{"state":"review","leases":[]}` {
			t.Errorf("nothing is left: %s", a.raw)
		}
	})
}

// A lease that was lost is not completed, its holder gets no new task, and the log records it.
func TestAdvanceUnderALostLease(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		id := p.submit(`{"title":"x"}`)
		lost, _ := p.lease()
		p.want(200, "POST", "/api/v1/leases/"+id+"/expire", "operator", `{}`)
		held, _ := p.lease()
		other := p.submit(`{"title":"y"}`)
		a := p.wantCode(picket.CodeStaleFence, "POST", advancePath, "agent", advanceBody(lost, `{"agentId":"a1"}`))
		if a.status != 412 {
			t.Errorf("status %d", a.status)
		}
		p.wantCode(picket.CodeUnknownFence, "POST", advancePath, "agent",
			strings.Replace(advanceBody(held, `{}`), `"fencingToken":2`, `"fencingToken":9`, 1))
		events := p.want(200, "GET", "/api/v1/events?type=write.refused", "operator", "")
		if n := strings.Count(events.raw, `"verb":"advance"`); n != 2 || !strings.Contains(events.raw, lost.RunID) ||
			!strings.Contains(events.raw, `"stale_fence"`) {
			t.Errorf("%d refused writes in the log: %s", n, events.raw)
		}
		for task, want := range map[string]string{id: "leased", other: "queued"} {
			if a := p.want(200, "GET", "/api/v1/tasks/"+task, "agent", ""); a.text("state") != want {
				t.Errorf("%s is %s, want %s", task, a.text("state"), want)
			}
		}
	})
}

func TestAdvanceBodiesThatAreRefused(t *testing.T) {
	p := newMemoryFixture(t)
	id := p.submit(`{"title":"x"}`)
	lease, _ := p.lease()
	next := p.submit(`{"title":"y"}`)
	token := lease.LeaseToken.Reveal()
	elsewhere := p.sealer.LeaseToken("other", lease.TaskID, lease.RunID).Reveal()
	for _, tt := range []struct {
		name  string
		body  string
		code  picket.Code
		field string
	}{
		{"no token", `{}`, picket.CodeValidation, "/leaseToken"},
		{"a forged token", `{"leaseToken":"` + flipLastByte(token) + `"}`, picket.CodeValidation, "/leaseToken"},
		{"a key for a token", `{"leaseToken":"` + p.keys["agent"] + `"}`, picket.CodeValidation, "/leaseToken"},
		{"another namespace's", `{"leaseToken":"` + elsewhere + `"}`, picket.CodeValidation, "/leaseToken"},
		{"negative fence", `{"leaseToken":"` + token + `","fencingToken":-1}`, picket.CodeValidation, "/fencingToken"},
		{"fence too large", `{"leaseToken":"` + token + `","fencingToken":9007199254740992}`, picket.CodeValidation,
			"/fencingToken"},
		{"bad wait", advanceBody(lease, `{"waitSeconds":51}`), picket.CodeValidation, "/acquire/waitSeconds"},
		{"bad max", advanceBody(lease, `{"max":0}`), picket.CodeValidation, "/acquire/max"},
		{"bad capability", advanceBody(lease, `{"capabilities":["a,b"]}`), picket.CodeValidation,
			"/acquire/capabilities/0"},
		{"unknown field", advanceBody(lease, `{"wait":1}`), picket.CodeValidation, "/acquire/wait"},
		{"large output", `{"leaseToken":"` + token + `","output":"` + strings.Repeat("x", picket.MaxPayload) + `"}`,
			picket.CodeTooLarge, "/output"},
		{"large summary", `{"leaseToken":"` + token + `","summary":"` + strings.Repeat("x", 17_000) + `"}`,
			picket.CodeTooLarge, "/summary"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := p.wantCode(tt.code, "POST", advancePath, "agent", tt.body)
			if a.text("field") != tt.field {
				t.Errorf("field %q, want %q: %s", a.text("field"), tt.field, a.raw)
			}
			if strings.Contains(a.raw, token) || strings.Contains(p.log.String(), token) {
				t.Error("the token is shown")
			}
		})
	}
	for task, want := range map[string]string{id: "leased", next: "queued"} {
		if a := p.want(200, "GET", "/api/v1/tasks/"+task, "agent", ""); a.text("state") != want {
			t.Errorf("a refused body has changed %s to %s", task, a.text("state"))
		}
	}
}

// When the answer cannot be delivered what was completed stays so, and what was
// granted is given back.
func TestAnAdvanceThatCannotBeDelivered(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		first := p.submit(`{"title":"x"}`)
		lease, _ := p.lease()
		second := p.submit(`{"title":"y"}`)
		r := httptest.NewRequest("POST", "http://localhost"+advancePath, strings.NewReader(advanceBody(lease, `{}`)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-API-Key", p.keys["agent"])
		p.handler.ServeHTTP(&brokenPipe{}, r)
		for task, want := range map[string]string{first: "review", second: "queued"} {
			if a := p.want(200, "GET", "/api/v1/tasks/"+task, "agent", ""); a.text("state") != want ||
				a.body["failures"] != 0.0 {
				t.Errorf("after the broken delivery: %s", a.raw)
			}
		}
		// The client, which knows nothing, asks again.
		got := p.decodeAdvanced(p.want(200, "POST", advancePath, "agent", advanceBody(lease, `{}`)))
		if got.State != picket.TaskReview || len(got.Leases) != 1 || got.Leases[0].TaskID != second ||
			got.Leases[0].FencingToken != 2 {
			t.Errorf("asked again: %+v", got)
		}
	})
}

func TestAdvanceWhilePausedOverHTTP(t *testing.T) {
	p := newMemoryFixture(t)
	p.submit(`{"title":"x","review":"none"}`)
	lease, _ := p.lease()
	p.submit(`{"title":"y"}`)
	p.want(200, "POST", "/api/v1/pause", "operator", `{}`)
	if a := p.want(200, "POST", advancePath, "agent",
		advanceBody(lease, `{}`)); a.raw != `{"state":"completed","leases":[]}` {
		t.Errorf("advanced while paused: %s", a.raw)
	}
}

// A full store lets the lease end and grants nothing; when there is room again
// the same request is granted the next.
func TestAdvanceOnAFullStoreReal(t *testing.T) {
	for _, trouble := range rig.Outages {
		if !trouble.MemoryFull {
			continue
		}
		t.Run(trouble.Name, func(t *testing.T) {
			n := rig.StartOutageNode(t)
			p := newFixture(t, n.Store(), api.Config{})
			first := p.submit(`{"title":"x"}`)
			lease, _ := p.lease()
			second := p.submit(`{"title":"y"}`)
			end := trouble.Begin(t, n)
			a := p.call("POST", advancePath, "agent", advanceBody(lease, `{}`), "Idempotency-Key", "k")
			state := p.call("GET", "/api/v1/tasks/"+first, "agent", "").text("state")
			end()
			if a.raw != `{"state":"review","leases":[]}` || state != "review" {
				t.Errorf("while it was full: %s, and the task is in %s", a.raw, state)
			}
			got := p.decodeAdvanced(p.want(200, "POST", advancePath, "agent", advanceBody(lease, `{}`),
				"Idempotency-Key", "k"))
			if got.State != picket.TaskReview || len(got.Leases) != 1 || got.Leases[0].TaskID != second {
				t.Errorf("afterwards: %+v", got)
			}
		})
	}
}
