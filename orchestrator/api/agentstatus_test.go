package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/api"
)

const (
	anAgent  = "/api/v1/agents/a1"
	draining = `{"status":"draining","drain_timeout_seconds":120}`
)

// lifecycleOf counts the lifecycle events of an agent.
func (p *fixture) lifecycleOf(id string) int {
	p.t.Helper()
	return strings.Count(p.want(200, "GET", "/api/v1/events?type=agent.lifecycle&limit=1000&agent="+id, "reviewer",
		"").raw, `"agent.lifecycle"`)
}

func TestEveryFormOfIfMatchOverHTTP(t *testing.T) {
	p := newMemoryFixture(t)
	p.register("agent", `{"agent_id":"a1"}`)
	const status = anAgent + "/status"
	p.wantCode(picket.CodePreconditionRequired, "PATCH", status, "agent", draining)
	for _, bad := range []string{"", "abc", `"1`, `W/1`, `*, "1"`} {
		if a := p.wantCode(picket.CodeValidation, "PATCH", status, "agent", draining, "If-Match",
			bad); a.text("field") != "If-Match" {
			t.Errorf("%q: %s", bad, a.raw)
		}
		p.wantCode(picket.CodeValidation, "DELETE", anAgent, "agent", "", "If-Match", bad)
	}
	for _, stale := range []string{`"2"`, `2`, `W/"2"`, `"0", "2"`} {
		for _, a := range []response{p.wantCode(picket.CodeVersion, "PATCH", status, "agent", draining, "If-Match",
			stale),
			p.wantCode(picket.CodeVersion, "DELETE", anAgent, "agent", "", "If-Match", stale)} {
			if a.body["current"] != 1.0 || a.body["presented"] == nil {
				t.Errorf("%q: %s", stale, a.raw)
			}
		}
	}
	if p.statusOf("a1") != "active" || p.lifecycleOf("a1") != 1 {
		t.Error("a refused change has changed something")
	}
	for i, good := range []string{`"1"`, `1`, `W/"1"`, `*`, `"7", "1"`, ` 9 , W/"1" `} {
		id := fmt.Sprintf("good%d", i)
		p.register("agent", fmt.Sprintf(`{"agent_id":%q}`, id))
		a := p.want(200, "PATCH", "/api/v1/agents/"+id+"/status", "agent", draining, "If-Match", good)
		if a.text("status") != "draining" || a.header.Get("ETag") != `"2"` || a.body["version"] != 2.0 {
			t.Errorf("%q: %s %s", good, a.header.Get("ETag"), a.raw)
		}
		again := strings.ReplaceAll(good, "1", "2") // another way to write the next version
		if d := p.want(200, "DELETE", "/api/v1/agents/"+id, "agent", "", "If-Match",
			again); d.text("status") != "deregistered" || d.header.Get("ETag") != `"3"` {
			t.Errorf("%q: %s", again, d.raw)
		}
	}
}

// What is wrong is told in this order: the key, the missing and the unparsable
// precondition, the agent, whose it is, its version, its status.
func TestTheOrderOfRefusals(t *testing.T) {
	p := newMemoryFixture(t)
	p.keys["other"] = p.newKey(picket.KeyRequest{Name: "other", Scopes: []picket.Scope{picket.ScopeAgent}})
	p.register("agent", `{"agent_id":"a1"}`)
	const unknown, known = "/api/v1/agents/nobody/status", anAgent + "/status"
	for _, tt := range []struct {
		path  string
		scope string
		match string
		body  string
		code  picket.Code
	}{
		{unknown, "", "-", "", picket.CodeUnauthenticated},
		{unknown, "reviewer", "-", "", picket.CodeForbidden},
		{unknown, "other", "-", `{"status":"asleep"}`, picket.CodePreconditionRequired},
		{unknown, "other", "x", `{"status":"asleep"}`, picket.CodeValidation},
		{unknown, "other", `"9"`, `{"status":"asleep"}`, picket.CodeValidation},
		{unknown, "other", `"9"`, `{"status":"dead"}`, picket.CodeNotFound},
		{known, "other", `"9"`, `{"status":"dead"}`, picket.CodeForbidden},
		{known, "agent", `"9"`, `{"status":"dead"}`, picket.CodeVersion},
		{known, "agent", `"1"`, `{"status":"dead"}`, picket.CodeStateConflict},
	} {
		headers := []string{"If-Match", tt.match}
		if tt.match == "-" {
			headers = nil
		}
		p.wantCode(tt.code, "PATCH", tt.path, tt.scope, tt.body, headers...)
	}
	if p.statusOf("a1") != "active" || p.lifecycleOf("a1") != 1 {
		t.Error("a refused change has changed something")
	}
}

func TestADrainIsAskedForOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.register("agent", `{"agent_id":"a1","drain_timeout_seconds":600}`)
		before := time.Now()
		first := p.want(200, "PATCH", anAgent+"/status", "agent", draining, "If-Match", `"1"`)
		var deadline picket.Instant
		must(t, deadline.UnmarshalJSON([]byte(`"`+first.text("drain_deadline_at")+`"`)))
		if d := deadline.Time().Sub(before); d < 115*time.Second || d > 150*time.Second {
			t.Errorf("the drain ends in %s: %s", d, first.raw)
		}
		again := p.want(200, "PATCH", anAgent+"/status", "operator", `{"status":"draining","drain_timeout_seconds":5}`,
			"If-Match", `"2"`)
		var same picket.Instant
		must(t, same.UnmarshalJSON([]byte(`"`+again.text("drain_deadline_at")+`"`)))
		// The instant is a distance in store time put onto the clock on the wall.
		if d := same.Time().Sub(deadline.Time()); d.Abs() > time.Second || again.header.Get("ETag") != `"2"` ||
			p.lifecycleOf("a1") != 2 {
			t.Errorf("asked again: the deadline moved by %s, %s", d, again.raw)
		}
		if a := p.wantCode(picket.CodeStateConflict, "PATCH", anAgent+"/status", "agent", `{"status":"active"}`,
			"If-Match", "*"); a.text("agent_status") != "draining" {
			t.Errorf("draining to active: %s", a.raw)
		}
		key := []string{"If-Match", `"2"`, "Idempotency-Key", "k"}
		gone := p.want(200, "PATCH", anAgent+"/status", "operator", `{"status":"deregistered"}`, key...)
		if gone.text("status") != "deregistered" || gone.header.Get("ETag") != `"3"` ||
			gone.body["drain_deadline_at"] != nil {
			t.Errorf("deregistered: %s", gone.raw)
		}
		// The same request after a lost answer: its version is outdated on its own.
		if a := p.want(200, "PATCH", anAgent+"/status", "operator", `{"status":"deregistered"}`,
			key...); a.raw != gone.raw {
			t.Errorf("repeated: %s", a.raw)
		}
		p.wantCode(picket.CodeIdempotencyConflict, "PATCH", anAgent+"/status", "operator", draining, key...)
		if a := p.want(200, "DELETE", anAgent, "agent", ""); a.raw != gone.raw || p.lifecycleOf("a1") != 3 {
			t.Errorf("deleted again: %s", a.raw)
		}
		p.wantCode(picket.CodeNotFound, "DELETE", "/api/v1/agents/nobody", "agent", "")
	})
}

func TestCommandsReachTheAgentUntilTheyAreHandled(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.register("agent", `{"agent_id":"a1"}`)
		command := func(body string, headers ...string) string {
			return p.want(202, "POST", anAgent+"/commands", "operator", body, headers...).text("command_id")
		}
		ping := command(`{"command":"ping"}`, "Idempotency-Key", "p")
		if again := command(`{"command":"ping"}`, "Idempotency-Key", "p"); again != ping {
			t.Errorf("one ping is %s and %s", ping, again)
		}
		drain := command(`{"command":"drain","reason":"maintenance_window","drain_timeout_seconds":120}`)
		if again := command(`{"command":"drain","reason":"now","drain_timeout_seconds":60}`); again != drain {
			t.Errorf("one drain is %s and %s", drain, again)
		}
		stop := command(`{"command":"stop_task","task_id":"task_01H001","reason":"duplicate"}`)
		want := fmt.Sprintf(`"pending_commands":[{"command_id":%q,"command":"ping"},{"command_id":%q,"command":"drain","reason":"now","drain_timeout_seconds":60},`+
			`{"command_id":%q,"command":"stop_task","task_id":"task_01H001","reason":"duplicate"}]}`, ping, drain, stop)
		for range 2 {
			if a := p.want(200, "POST", anAgent+"/heartbeat", "agent", heartbeatBody()); !strings.HasSuffix(a.raw,
				want) {
				t.Errorf("got  %s\nwant %s", a.raw, want)
			}
		}
		done := strings.Replace(heartbeatBody(), `"active"`,
			fmt.Sprintf(`"draining","handled_commands":[%q,"cmd_unknown"]`, ping), 1)
		a := p.want(200, "POST", anAgent+"/heartbeat", "agent", done)
		if a.text("agent_status") != "draining" || strings.Contains(a.raw, ping) || strings.Contains(a.raw, drain) ||
			!strings.Contains(a.raw, stop) {
			t.Errorf("after it was obeyed: %s", a.raw)
		}
		p.wantCode(picket.CodeStateConflict, "POST", anAgent+"/commands", "operator", `{"command":"drain"}`)
		p.want(200, "DELETE", anAgent, "operator", "")
		if a := p.wantCode(picket.CodeAgentGone, "POST", anAgent+"/commands", "operator",
			`{"command":"ping"}`); a.text("agent_status") != "deregistered" || a.text("reason") != "deregistered" {
			t.Errorf("gone: %s", a.raw)
		}
		p.wantCode(picket.CodeNotFound, "POST", "/api/v1/agents/nobody/commands", "operator", `{"command":"ping"}`)
		events := p.want(200, "GET", "/api/v1/events?type=agent.command&agent=a1", "reviewer", "").raw
		if strings.Count(events, `"state":"requested"`) != 4 || strings.Count(events, `"state":"handled"`) != 2 {
			t.Errorf("events: %s", events)
		}
	})
}

func TestTooManyCommandsAreRefused(t *testing.T) {
	p := newMemoryFixture(t)
	p.register("agent", `{"agent_id":"a1"}`)
	for range picket.MaxPendingCommands {
		p.want(202, "POST", anAgent+"/commands", "operator", `{"command":"ping"}`)
	}
	p.wantCode(picket.CodeRateLimited, "POST", anAgent+"/commands", "operator", `{"command":"ping"}`)
	a := p.want(200, "POST", anAgent+"/heartbeat", "agent", heartbeatBody())
	list, _ := a.body["pending_commands"].([]any)
	if len(list) != picket.MaxPendingCommands {
		t.Errorf("%d commands are pending", len(list))
	}
	first, _ := list[0].(map[string]any)
	p.want(200, "POST", anAgent+"/heartbeat", "agent",
		strings.Replace(heartbeatBody(), "{", fmt.Sprintf(`{"handled_commands":[%q],`, first["command_id"]), 1))
	p.want(202, "POST", anAgent+"/commands", "operator", `{"command":"ping"}`)
}

// Every verb tells an agent that no longer participates that it is gone, and what to do about it.
func TestGoneAgentsAreRefused(t *testing.T) {
	virtual(t, api.Config{}, func(t *testing.T, p *fixture) {
		p.register("agent",
			`{"agent_id":"dead1","heartbeat_config":{"interval_seconds":1,"unhealthy_after_seconds":2,"dead_after_seconds":4}}`)
		p.register("agent", `{"agent_id":"left1"}`)
		p.want(200, "DELETE", "/api/v1/agents/left1", "agent", "")
		p.passTime(4001 * time.Millisecond)
		for id, want := range map[string][2]string{
			"dead1": {"dead", "heartbeat_timeout"},
			"left1": {"deregistered", "deregistered"},
		} {
			for _, a := range []response{
				p.wantCode(picket.CodeAgentGone, "POST", "/api/v1/agents/"+id+"/heartbeat", "agent", heartbeatBody()),
				p.wantCode(picket.CodeAgentGone, "POST", "/api/v1/leases", "agent", fmt.Sprintf(`{"agentId":%q}`, id)),
			} {
				if a.text("agent_status") != want[0] || a.text("reason") != want[1] ||
					!strings.Contains(a.text("remedy"), "egister again") {
					t.Errorf("%s: %s", id, a.raw)
				}
			}
		}
		p.wantCode(picket.CodeStateConflict, "DELETE", "/api/v1/agents/dead1", "agent", "")
		again := p.register("agent", `{"agent_id":"dead1"}`)
		if again.body["version"] != 1.0 || again.body["incarnation"] != 3.0 || again.header.Get("ETag") != `"1"` {
			t.Errorf("registered again: %s", again.raw)
		}
		// The process of before is not the one that is registered now.
		old := strings.Replace(heartbeatBody(), "{", `{"incarnation":1,`, 1)
		p.wantCode(picket.CodeAgentGone, "POST", "/api/v1/agents/dead1/heartbeat", "agent", old)
		p.wantCode(picket.CodeAgentGone, "POST", "/api/v1/leases", "agent", `{"agentId":"dead1","incarnation":1}`)
		p.want(200, "POST", "/api/v1/agents/dead1/heartbeat", "agent", strings.Replace(old, ":1,", ":3,", 1))
	})
}

// A removal that was under way for long ends nobody's registration but the one
// it was meant for, although versions begin at 1 again.
func TestALateRemovalMissesTheNextRegistration(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		first := p.register("agent", `{"agent_id":"a1"}`)
		late := fmt.Sprintf(`{"status":"deregistered","incarnation":%v}`, first.body["incarnation"])
		p.want(200, "PATCH", anAgent+"/status", "agent", late, "If-Match", `"1"`)
		p.register("agent", `{"agent_id":"a1"}`)
		for _, match := range []string{`"1"`, "*"} {
			a := p.wantCode(picket.CodeAgentGone, "PATCH", anAgent+"/status", "agent", late, "If-Match", match)
			if a.text("agent_status") != "active" || a.body["incarnation"] != 2.0 {
				t.Errorf("late: %s", a.raw)
			}
			p.wantCode(picket.CodeAgentGone, "PATCH", anAgent+"/status", "agent",
				`{"status":"draining","incarnation":1}`, "If-Match", match)
		}
		p.wantTransitions("a1", "registering active registered a1", "active deregistered deregistered a1",
			"deregistered active re_registered a1")
		p.want(200, "PATCH", anAgent+"/status", "agent", `{"status":"deregistered","incarnation":2}`, "If-Match", `"1"`)
	})
}

// Leases: none for who drains, none for somebody else's agent; registration is
// optional.
func TestOnlyActiveAgentsGetLeases(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.keys["other"] = p.newKey(picket.KeyRequest{Name: "other", Scopes: []picket.Scope{picket.ScopeAgent}})
		for range 3 {
			p.submit(`{"title":"x"}`)
		}
		p.register("agent", `{"agent_id":"a1"}`)
		p.wantCode(picket.CodeForbidden, "POST", "/api/v1/leases", "other", `{"agentId":"a1"}`)
		for scope, id := range map[string]string{"agent": "a1", "operator": "a1", "other": "nobody"} {
			if a := p.want(200, "POST", "/api/v1/leases", scope,
				fmt.Sprintf(`{"agentId":%q}`, id)); len(leaseTokens(a)) != 1 {
				t.Errorf("%s for %s: %s", scope, id, a.raw)
			}
		}
		p.want(200, "PATCH", anAgent+"/status", "agent", draining, "If-Match", "*")
		p.wantCode(picket.CodeAgentDraining, "POST", "/api/v1/leases", "agent", `{"agentId":"a1"}`)
	})
}
