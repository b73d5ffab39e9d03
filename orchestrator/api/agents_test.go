package api_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// exampleRegistration is the body of RFC-0016 section 3.1.
const exampleRegistration = `{
  "agent_id": "agent_billing_01",
  "role_id": "billing-processor",
  "name": "Billing Processor",
  "capabilities": ["billing", "invoicing", "stripe-integration"],
  "capacity": {
    "max_concurrent_tasks": 5
  },
  "endpoint": "https://billing-agent.example.com/webhook",
  "heartbeat_config": {
    "interval_seconds": 30,
    "unhealthy_after_seconds": 90,
    "dead_after_seconds": 300
  },
  "metadata": {
    "version": "1.2.0",
    "runtime": "python-3.11"
  }
}`

// exampleRecord is the answer of section 3.2, in the order of the wire and with the
// times cut out.
const exampleRecord = `{"agent_id":"agent_billing_01","role_id":"billing-processor","name":"Billing Processor",` +
	`"capabilities":["billing","invoicing","stripe-integration"],"capacity":{"max_concurrent_tasks":5,"current_load":0},"status":"active",` +
	`"endpoint":"https://billing-agent.example.com/webhook","heartbeat_config":{"interval_seconds":30,"unhealthy_after_seconds":90,"dead_after_seconds":300},` +
	`"metadata":{"version":"1.2.0","runtime":"python-3.11"},"registered_at":T,"last_heartbeat_at":T,"version":1,"incarnation":1}`

var anInstant = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`)

// heartbeatBody is a heartbeat of an agent whose clock is right.
func heartbeatBody() string {
	return fmt.Sprintf(`{"status":"active","client_timestamp":%q}`, time.Now().UTC().Format(time.RFC3339))
}

// register makes an agent with the key of a scope.
func (p *fixture) register(scope, body string) response {
	p.t.Helper()
	return p.want(201, "POST", "/api/v1/agents", scope, body)
}

// statusOf is an agent's status as an operator reads it.
func (p *fixture) statusOf(id string) string {
	p.t.Helper()
	return p.want(200, "GET", "/api/v1/agents/"+id, "operator", "").text("status")
}

func TestRegistrationIsAnsweredWithTheRecord(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		before := time.Now().Add(-time.Second)
		made := p.register("agent", exampleRegistration)
		if got := anInstant.ReplaceAllString(made.raw, "T"); got != exampleRecord {
			t.Errorf("got  %s\nwant %s", got, exampleRecord)
		}
		var a picket.Agent
		must(t, json.Unmarshal([]byte(made.raw), &a))
		if at := a.RegisteredAt.Time(); a.LastHeartbeatAt != a.RegisteredAt || at.Before(before) ||
			at.After(time.Now().Add(time.Second)) {
			t.Errorf("registered %s, last heartbeat %s", a.RegisteredAt, a.LastHeartbeatAt)
		}
		if made.header.Get("ETag") != `"1"` || made.header.Get("Location") != "/api/v1/agents/agent_billing_01" {
			t.Errorf("headers: %v", made.header)
		}
		for _, scope := range []string{"agent", "operator", "admin"} {
			if got := p.want(200, "GET", made.header.Get("Location"), scope, ""); got.raw != made.raw ||
				got.header.Get("ETag") != `"1"` {
				t.Errorf("%s reads %s %s", scope, got.header.Get("ETag"), got.raw)
			}
		}
	})
}

func TestTheLeastRegistration(t *testing.T) {
	p := newMemoryFixture(t)
	for _, body := range []string{"", "{}",
		`{"agent_id":null,"role_id":null,"capabilities":null,"capacity":null,"heartbeat_config":null,"metadata":null,"drain_timeout_seconds":null}`} {
		a := p.register("agent", body)
		id := a.text("agent_id")
		if !regexp.MustCompile(`^agent_[0-7][0-9A-HJKMNP-TV-Z]{25}$`).MatchString(id) ||
			a.header.Get("Location") != "/api/v1/agents/"+id {
			t.Errorf("id %q at %s", id, a.header.Get("Location"))
		}
		rest := regexp.MustCompile(`"incarnation":\d+`).
			ReplaceAllString(anInstant.ReplaceAllString(a.raw, "T"), `"incarnation":N`)
		want := `{"agent_id":"` + id + `","capabilities":[],"capacity":{"current_load":0},"status":"active",` +
			`"heartbeat_config":{"interval_seconds":30,"unhealthy_after_seconds":90,"dead_after_seconds":300},"metadata":{},"registered_at":T,"last_heartbeat_at":T,"version":1,"incarnation":N}`
		if rest != want {
			t.Errorf("got  %s\nwant %s", rest, want)
		}
	}
}

// The same request twice is one registration, even while its agent lives.
func TestARegistrationCountsOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		for _, body := range []string{`{"agent_id":"a1","role_id":"r"}`, `{"role_id":"r"}`} {
			key := []string{"Idempotency-Key", "once " + body}
			first, again := p.want(201, "POST", "/api/v1/agents", "agent", body, key...),
				p.want(201, "POST", "/api/v1/agents", "agent", body, key...)
			if first.raw != again.raw || again.header.Get("ETag") != `"1"` ||
				again.header.Get("Location") != first.header.Get("Location") {
				t.Errorf("first %s\nagain %s %v", first.raw, again.raw, again.header)
			}
			p.wantCode(picket.CodeIdempotencyConflict, "POST", "/api/v1/agents", "agent", `{"name":"x"}`, key...)
		}
		if a := p.wantCode(picket.CodeStateConflict, "POST", "/api/v1/agents", "agent",
			`{"agent_id":"a1"}`); a.text("agent_status") != "active" {
			t.Errorf("a live id: %s", a.raw)
		}
		// The answer is the same for everybody, so it does not tell to which key the agent belongs.
		for _, scope := range []string{"operator", "admin"} {
			p.wantCode(picket.CodeStateConflict, "POST", "/api/v1/agents", scope, `{"agent_id":"a1"}`)
		}
		lifecycle := p.want(200, "GET", "/api/v1/events?type=agent.lifecycle", "reviewer", "")
		if n := strings.Count(lifecycle.raw, `"new_status":"active"`); n != 2 {
			t.Errorf("%d agents became active, want 2: %s", n, lifecycle.raw)
		}
	})
}

// A record can be sent back as it was read: what the server owns is not taken
// from there.
func TestServerOwnedMembersAreIgnored(t *testing.T) {
	p := newMemoryFixture(t)
	a := p.register("agent",
		`{"agent_id":"a1","status":"dead","version":99,"registered_at":"1999-01-01T00:00:00Z","last_heartbeat_at":{"any":["thing"]},
		"incarnation":-5,"drain_deadline_at":true,"capacity":{"max_concurrent_tasks":2,"current_load":7}}`)
	if a.text("status") != "active" || a.body["version"] != 1.0 || a.body["incarnation"] != 1.0 ||
		strings.Contains(a.raw, "1999") || a.body["drain_deadline_at"] != nil ||
		!strings.Contains(a.raw, `"capacity":{"max_concurrent_tasks":2,"current_load":0}`) {
		t.Errorf("got %s", a.raw)
	}
	whole := strings.Replace(p.want(200, "GET", "/api/v1/agents/a1", "agent", "").raw, `"a1"`, `"a2"`, 1)
	b := p.register("agent", whole)
	if b.body["version"] != 1.0 || b.body["incarnation"] != 2.0 ||
		b.body["capacity"].(map[string]any)["max_concurrent_tasks"] != 2.0 {
		t.Errorf("sent back %s, got %s", whole, b.raw)
	}
}

// Metadata is nobody's but the agent's: digits, order and nesting stay.
func TestMetadataIsKeptDigitForDigit(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		for i, metadata := range []string{
			`{"z":1,"a":2,"m":{"y":[3,{"x":null}],"b":{}}}`,
			`{"n":[1.50,-0,0.1e-7,1E40,123456789012345678901234567890,9007199254740993,2.0]}`,
			`{"":"","é":"\t\u0000","emoji":"😀","k.v/~":false}`,
			`{"deep":` + strings.Repeat(`{"d":`, 100) + `1` + strings.Repeat(`}`, 100) + `}`,
			`{"fill":"` + strings.Repeat("x", picket.MaxMetadata-11) + `"}`,
		} {
			at := fmt.Sprintf("/api/v1/agents/m%d", i)
			made := p.register("agent", fmt.Sprintf(`{"agent_id":"m%d","metadata":%s}`, i, metadata))
			for _, a := range []response{made, p.want(200, "GET", at, "agent", "")} {
				if !strings.Contains(a.raw, `"metadata":`+metadata+`,"registered_at"`) {
					t.Errorf("sent %.300s\ngot  %.600s", metadata, a.raw)
				}
			}
		}
	})
}

func TestHeartbeatIsAnsweredAsTheDocumentShows(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.register("agent", exampleRegistration)
		const at = "/api/v1/agents/agent_billing_01"
		now := time.Now()
		a := p.want(200, "POST", at+"/heartbeat", "agent",
			fmt.Sprintf(`{"status":"active","current_load":3,"client_timestamp":%q}`, now.Format(time.RFC3339)))
		if got := anInstant.ReplaceAllString(a.raw,
			"T"); got != `{"acknowledged":true,"server_timestamp":T,"agent_status":"active","pending_commands":[]}` {
			t.Errorf("got %s", a.raw)
		}
		record := p.want(200, "GET", at, "agent", "")
		if record.text("last_heartbeat_at") != a.text("server_timestamp") ||
			!strings.Contains(record.raw, `"current_load":3`) || record.header.Get("ETag") != `"1"` {
			t.Errorf("after the heartbeat: %s %s", record.header.Get("ETag"), record.raw)
		}
		if p.want(200, "POST", at+"/heartbeat", "operator",
			heartbeatBody()); !strings.Contains(p.want(200, "GET", at, "agent", "").raw, `"current_load":3`) {
			t.Error("a heartbeat without a load has changed it")
		}
		stop := p.want(200, "POST", at+"/heartbeat", "agent",
			strings.Replace(heartbeatBody(), "{", `{"tasks_in_progress":["task_01H001"],`, 1))
		if !strings.HasSuffix(stop.raw,
			`"pending_commands":[{"command_id":"stop_task_01H001","command":"stop_task","task_id":"task_01H001","reason":"no_lease"}]}`) {
			t.Errorf("a task without a lease: %s", stop.raw)
		}
	})
}

// The agent's own time may come in any form of RFC 3339.
func TestClientTimestamps(t *testing.T) {
	p := newMemoryFixture(t)
	p.register("agent", `{"agent_id":"a1"}`)
	now := time.Now()
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("", 9*3600+30*60), time.FixedZone("", -12*3600)} {
		for _, layout := range []string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05.0Z07:00",
			"2006-01-02T15:04:05.000000000Z07:00"} {
			p.want(200, "POST", "/api/v1/agents/a1/heartbeat", "agent",
				fmt.Sprintf(`{"status":"active","client_timestamp":%q}`, now.In(zone).Format(layout)))
		}
	}
	if events := p.want(200, "GET", "/api/v1/events?type=agent.drift", "reviewer", "").raw; strings.Contains(events,
		"agent.drift") {
		t.Errorf("an offset was taken for drift: %s", events)
	}
	for _, bad := range []string{`"yesterday"`, `"2026-02-08 10:30:00Z"`, `"2026-02-08T10:30:00"`,
		`"2026-02-30T10:30:00Z"`, `1770546600`, `""`, `null`, `"9999999-01-01T00:00:00Z"`} {
		if a := p.wantCode(picket.CodeValidation, "POST", "/api/v1/agents/a1/heartbeat", "agent",
			`{"status":"active","client_timestamp":`+bad+`}`); a.text("field") != "/client_timestamp" {
			t.Errorf("%s: %s", bad, a.raw)
		}
	}
}
