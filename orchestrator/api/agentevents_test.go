package api_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

// quickThresholds thresholds, for tests that wait for them on the virtual clock.
const quickThresholds = `"heartbeat_config":{"interval_seconds":1,"unhealthy_after_seconds":2,"dead_after_seconds":4}`

// transitions are the lifecycle events of an agent, each as "from to reason
// actor", read from the members that RFC-0016 section 2.3 shows.
func (p *fixture) transitions(id string) (all []string) {
	p.t.Helper()
	a := p.want(200, "GET", "/api/v1/events?type=agent.lifecycle&agent="+id, "reviewer", "")
	list, _ := a.body["events"].([]any)
	for _, v := range list {
		e, _ := v.(map[string]any)
		if e["type"] != "agent.lifecycle" || e["agent_id"] != id || e["agentId"] != id || e["timestamp"] != e["at"] ||
			e["at"] == nil {
			p.t.Errorf("event: %v", e)
		}
		all = append(all, fmt.Sprint(e["previous_status"], " ", e["new_status"], " ", e["reason"], " ", e["actor"]))
	}
	return all
}

func (p *fixture) wantTransitions(id string, want ...string) {
	p.t.Helper()
	if got := p.transitions(id); fmt.Sprint(got) != fmt.Sprint(want) {
		p.t.Errorf("%s went through\n%q, want\n%q", id, got, want)
	}
}

// Each transition is one event with the six members at the top level, under the instance's id. It
// names the actor.
func TestLifecycleEventsCarryTheSixMembers(t *testing.T) {
	virtual(t, api.Config{}, func(t *testing.T, p *fixture) {
		p.register("agent", `{"agent_id":"a1","role_id":"r",`+quickThresholds+`}`)
		p.register("agent", `{"agent_id":"a2","role_id":"r"}`)
		p.passTime(2100 * time.Millisecond)
		p.want(200, "POST", anAgent+"/heartbeat", "agent", heartbeatBody())
		p.passTime(4100 * time.Millisecond)
		p.register("agent", `{"agent_id":"a1"}`)
		p.want(200, "PATCH", anAgent+"/status", "operator", draining, "If-Match", "*")
		p.want(200, "POST", anAgent+"/heartbeat", "agent", heartbeatBody())
		p.want(200, "DELETE", "/api/v1/agents/a2", "agent", "")
		operator := p.keyID("operator")
		p.wantTransitions("a1", "registering active registered a1", "active unhealthy heartbeat_timeout server",
			"unhealthy active heartbeat_resumed a1",
			"active unhealthy heartbeat_timeout server", "unhealthy dead heartbeat_timeout server",
			"dead active re_registered a1",
			"active draining drain_initiated "+operator, "draining deregistered drain_completed server")
		p.wantTransitions("a2", "registering active registered a2", "active deregistered deregistered a2")
		p.wantTransitions("r") // the role is nobody's name in the log
		whole := p.want(200, "GET", "/api/v1/events?type=agent.lifecycle&agent=a2&limit=1", "reviewer", "").raw
		shape := regexp.MustCompile(`"seq":\d+|"id":"\d+"`).
			ReplaceAllString(anInstant.ReplaceAllString(whole, "T"), "N")
		if !strings.Contains(shape,
			`N,N,"type":"agent.lifecycle","at":T,"agentId":"a2","actor":"a2","reason":"registered",`) ||
			!strings.Contains(shape,
				`"agent_id":"a2","previous_status":"registering","new_status":"active","timestamp":T}`) {
			t.Errorf("an event is %s", whole)
		}
	})
}

// keyID is the id of a key made by makeKeys.
func (p *fixture) keyID(name string) string {
	p.t.Helper()
	keys, err := p.Keys(p.t.Context())
	must(p.t, err)
	for _, k := range keys {
		if k.Name == name {
			return k.KeyID
		}
	}
	p.t.Fatalf("no key %s", name)
	return ""
}

func TestLifecycleEventsAreStreamed(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		live := p.openStream(t, "/api/v1/events?agent=a1", "reviewer")
		p.register("agent", `{"agent_id":"other"}`)
		p.register("agent", `{"agent_id":"a1"}`)
		p.want(200, "DELETE", anAgent, "agent", "")
		for _, want := range []picket.LifecycleFields{{PreviousStatus: "registering", NewStatus: "active"},
			{PreviousStatus: "active", NewStatus: "deregistered"}} {
			got := live.want(picket.EventAgentLifecycle)
			if got.LifecycleAgentID != "a1" || got.PreviousStatus != want.PreviousStatus ||
				got.NewStatus != want.NewStatus || got.Timestamp != got.At || got.Reason == "" {
				t.Errorf("streamed: %+v", got)
			}
		}
	})
}

// The clock of an agent decides nothing: that it is off is told once, by an
// event and a line of the log an hour, and counted each time.
func TestDriftIsToldAndDecidesNothing(t *testing.T) {
	virtual(t, api.Config{}, func(t *testing.T, p *fixture) {
		p.register("agent", `{"agent_id":"a1"}`)
		send := func(off time.Duration) {
			t.Helper()
			at := time.Now().Add(off).UTC().Format(time.RFC3339Nano)
			a := p.want(200, "POST", anAgent+"/heartbeat", "agent",
				fmt.Sprintf(`{"status":"active","client_timestamp":%q}`, at))
			if a.text("agent_status") != "active" {
				t.Errorf("off by %s: %s", off, a.raw)
			}
		}
		drifts := func(events, counted int) {
			t.Helper()
			if n := strings.Count(p.want(200, "GET", "/api/v1/events?type=agent.drift&agent=a1", "reviewer", "").raw,
				`"agent.drift"`); n != events {
				t.Errorf("%d events, want %d", n, events)
			}
			if n := strings.Count(p.log.String(), "agent=a1"); n != events {
				t.Errorf("%d lines in the log, want %d: %s", n, events, p.log)
			}
			if m := p.want(200, "GET", "/metrics", "", "").raw; !strings.Contains(m,
				fmt.Sprintf("picket_agent_drift_total{namespace=\"default\"} %d\n", counted)) {
				t.Errorf("metrics do not count %d", counted)
			}
		}
		send(60 * time.Second)
		send(-60 * time.Second)
		drifts(0, 0)
		send(60*time.Second + time.Millisecond)
		send(24 * time.Hour)
		send(-24 * time.Hour)
		drifts(1, 3)
		send(0)
		send(-61 * time.Second)
		drifts(2, 4)
		for range 20 { // at most ten events an hour
			send(0)
			send(61 * time.Second)
		}
		drifts(10, 24)
		if !strings.Contains(p.log.String(), "level=WARN") || !strings.Contains(p.log.String(), "interval") {
			t.Errorf("log: %s", p.log)
		}
		p.passTime(90 * time.Second) // from the server's receipt of the last one, not from what it said
		if got := p.statusOf("a1"); got != "active" {
			t.Errorf("at the threshold it is %s", got)
		}
		p.passTime(400 * time.Millisecond)
		if got := p.statusOf("a1"); got != "unhealthy" {
			t.Errorf("after the threshold it is %s", got)
		}
	})
}

func TestAgentsAreCounted(t *testing.T) {
	rig.SkipShort(t)
	virtual(t, api.Config{}, func(t *testing.T, p *fixture) {
		p.addFleet()
		want := map[picket.AgentStatus]int{"active": 4, "unhealthy": 1, "draining": 1, "dead": 0, "deregistered": 1}
		metrics := p.want(200, "GET", "/metrics", "", "").raw
		var stats struct{ Agents map[picket.AgentStatus]int }
		must(t, json.Unmarshal([]byte(p.want(200, "GET", "/api/v1/stats", "reviewer", "").raw), &stats,
			json.MatchCaseInsensitiveNames(true)))
		for status, n := range want {
			if !strings.Contains(metrics,
				fmt.Sprintf("picket_agents{namespace=\"default\",status=%q} %d\n", status, n)) ||
				stats.Agents[status] != n {
				t.Errorf("%s: want %d, stats %d, metrics %s", status, n, stats.Agents[status],
					regexp.MustCompile(`(?m)^picket_agents.*$`).FindAllString(metrics, -1))
			}
		}
		late := func(want string) {
			t.Helper()
			if m := p.want(200, "GET", "/metrics", "", "").raw; !strings.Contains(m,
				"picket_agent_judged_late_seconds{namespace=\"default\"} "+want+"\n") {
				t.Errorf("lateness is not %s: %s", want, regexp.MustCompile(`(?m)^picket_agent_judged.*$`).
					FindString(m))
			}
		}
		late("0")
		// u1 is due 300.001 s after its registration, and nobody judges it for a while.
		p.passTime(297900 * time.Millisecond)
		late("0")
		for range 3 {
			time.Sleep(500 * time.Millisecond)
			must(t, p.Tick(t.Context()))
		}
		late("1.499")
		p.passTime(time.Second)
		late("0")
		if len(stats.Agents) != len(want) || regexp.MustCompile(`["/](b1|b2|r1|u1|d1)["/]`).MatchString(metrics) {
			t.Errorf("an agent's id is a label, or there are statuses too many: %v", stats.Agents)
		}
	})
}
