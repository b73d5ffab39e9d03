package api_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/api"
)

// listAgents are the ids on a page of the registry.
func (p *fixture) listAgents(scope, query string) (ids []string, page picket.AgentPage) {
	p.t.Helper()
	a := p.want(200, "GET", "/api/v1/agents"+query, scope, "")
	must(p.t, json.Unmarshal([]byte(a.raw), &page))
	for _, row := range page.Agents {
		ids = append(ids, row.AgentID)
	}
	return ids, page
}

// addFleet registers agents of every kind:
//
//	b1  billing  billing,invoicing  max 5 load 2  active
//	b2  billing  billing            max 5 load 4  active
//	b3  billing  invoicing          no maximum    active
//	b4  billing  billing            max 2 load 3  draining
//	r1  review   go                 max 1 load 0  active
//	u1  -        billing            max 3 load 0  unhealthy
//	d1  -        -                  no maximum    deregistered
func (p *fixture) addFleet() {
	p.t.Helper()
	for _, a := range []string{
		`{"agent_id":"b1","role_id":"billing","capabilities":["billing","invoicing"],"capacity":{"max_concurrent_tasks":5},"name":"One"}`,
		`{"agent_id":"b2","role_id":"billing","capabilities":["billing"],"capacity":{"max_concurrent_tasks":5}}`,
		`{"agent_id":"b3","role_id":"billing","capabilities":["invoicing"]}`,
		`{"agent_id":"b4","role_id":"billing","capabilities":["billing"],"capacity":{"max_concurrent_tasks":2}}`,
		`{"agent_id":"r1","role_id":"review","capabilities":["go"],"capacity":{"max_concurrent_tasks":1}}`,
		`{"agent_id":"u1","capabilities":["billing"],"capacity":{"max_concurrent_tasks":3},"heartbeat_config":{"interval_seconds":1,"unhealthy_after_seconds":2}}`,
		`{"agent_id":"d1"}`,
	} {
		p.register("agent", a)
	}
	for id, load := range map[string]int{"b1": 2, "b2": 4, "b4": 3} {
		p.want(200, "POST", "/api/v1/agents/"+id+"/heartbeat", "agent",
			strings.Replace(heartbeatBody(), "{", fmt.Sprintf(`{"current_load":%d,`, load), 1))
	}
	p.want(200, "PATCH", "/api/v1/agents/b4/status", "agent", draining, "If-Match", "*")
	p.want(200, "DELETE", "/api/v1/agents/d1", "agent", "")
	p.passTime(2100 * time.Millisecond)
}

func TestTheRegistryIsFiltered(t *testing.T) {
	virtual(t, api.Config{}, func(t *testing.T, p *fixture) {
		p.addFleet()
		for query, want := range map[string]string{
			"":                                          "b1 b2 b3 r1",
			"?status=":                                  "b1 b2 b3 r1",
			"?status=active":                            "b1 b2 b3 r1",
			"?status=unhealthy,draining":                "b4 u1",
			"?status=draining&status=unhealthy":         "b4 u1",
			"?status=deregistered":                      "d1",
			"?status=dead":                              "",
			"?status=registering":                       "",
			"?status=registering,draining":              "b4",
			"?status=*":                                 "b1 b2 b3 b4 d1 r1 u1",
			"?status=%2A":                               "b1 b2 b3 b4 d1 r1 u1",
			"?status=active,*":                          "b1 b2 b3 b4 d1 r1 u1",
			"?role_id=billing":                          "b1 b2 b3",
			"?role_id=billing&status=*":                 "b1 b2 b3 b4",
			"?role_id=nobody":                           "",
			"?capabilities=billing":                     "b1 b2",
			"?capabilities=invoicing":                   "b1 b3",
			"?capabilities=billing,invoicing":           "b1 b2 b3",
			"?capabilities=invoic":                      "",
			"?capabilities=go,nothing":                  "r1",
			"?capabilities=billing&status=*":            "b1 b2 b4 u1",
			"?min_available_capacity=0":                 "b1 b2 b3 r1",
			"?min_available_capacity=1":                 "b1 b2 r1",
			"?min_available_capacity=2":                 "b1",
			"?min_available_capacity=3":                 "b1",
			"?min_available_capacity=4":                 "",
			"?min_available_capacity=0&status=draining": "",
			"?min_available_capacity=1&status=*":        "b1 b2 r1 u1",
			"?capabilities=billing&status=active&role_id=billing&min_available_capacity=2": "b1",
			"?capabilities=go&role_id=billing":                                             "",
		} {
			ids, page := p.listAgents("operator", query)
			if slices.Sort(ids); strings.Join(ids, " ") != want || page.Total != len(ids) || page.NextCursor != "" {
				t.Errorf("%s: %v, total %d, cursor %q; want %s", query, ids, page.Total, page.NextCursor, want)
			}
		}
	})
}

func TestARowOfTheRegistryIsAsTheDocumentShows(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.register("agent", exampleRegistration)
		got := anInstant.ReplaceAllString(p.want(200, "GET", "/api/v1/agents?capabilities=billing&status=active",
			"operator", "").raw, "T")
		if want := `{"agents":[{"agent_id":"agent_billing_01","role_id":"billing-processor","name":"Billing Processor","capabilities":["billing","invoicing","stripe-integration"],` +
			`"capacity":{"max_concurrent_tasks":5,"current_load":0},"status":"active","last_heartbeat_at":T}],"total":1}`; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if got := p.want(200, "GET", "/api/v1/agents?capabilities=none", "operator",
			"").raw; got != `{"agents":[],"total":0}` {
			t.Errorf("nobody: %s", got)
		}
	})
}

func TestTheRegistryIsPaged(t *testing.T) {
	virtual(t, api.Config{}, func(t *testing.T, p *fixture) {
		p.addFleet()
		for _, query := range []string{"?status=*", "?status=active,draining", "?role_id=billing&status=*",
			"?capabilities=billing&status=*"} {
			whole, _ := p.listAgents("operator", query)
			for _, scope := range []string{"operator", "agent"} {
				for limit := 1; limit <= len(whole)+1; limit++ {
					var ids []string
					at := fmt.Sprintf("%s&limit=%d", query, limit)
					for cursor, pages := "", 0; ; pages++ {
						got, page := p.listAgents(scope, at+cursor)
						ids = append(ids, got...)
						if page.Total != len(whole) || len(got) > limit || pages > len(whole) {
							t.Fatalf("%s%s: %d rows, total %d of %d", at, cursor, len(got), page.Total, len(whole))
						}
						if page.NextCursor == "" {
							break
						}
						cursor = "&cursor=" + page.NextCursor
					}
					sorted := slices.Sorted(slices.Values(ids))
					if !slices.Equal(sorted, slices.Sorted(slices.Values(whole))) {
						t.Errorf("%s as %s: pages hold %v, all are %v", at, scope, ids, whole)
					}
				}
			}
		}
	})
}

func TestBadQueriesOfTheRegistry(t *testing.T) {
	p := newMemoryFixture(t)
	for query, field := range map[string]string{
		"status=asleep":       "?status",
		"status=Active":       "?status",
		"role_id=a%7D":        "?role_id",
		"role_id=a,b":         "?role_id",
		"role_id=a&role_id=b": "?role_id",
		"capabilities=a%20b":  "?capabilities",
		"capabilities=" + strings.Repeat("a,", 33): "?capabilities",
		"min_available_capacity=x":                 "?min_available_capacity",
		"min_available_capacity=-1":                "?min_available_capacity",
		"min_available_capacity=1.5":               "?min_available_capacity",
		"min_available_capacity=9999999":           "?min_available_capacity",
		"limit=0":                                  "?limit",
		"limit=1001":                               "?limit",
		"cursor=yesterday":                         "?cursor",
		"cursor=asleep:a1":                         "?cursor",
		"cursor=active:":                           "?cursor",
		"cursor=" + strings.Repeat("a", 600):       "?cursor",
		"role=billing":                             "?role",
		"capability=x":                             "?capability",
		"offset=1":                                 "?offset",
	} {
		if a := p.wantCode(picket.CodeValidation, "GET", "/api/v1/agents?"+query, "operator",
			""); a.text("field") != field {
			t.Errorf("%.60s: field %q, want %q", query, a.text("field"), field)
		}
	}
	for _, path := range []string{"/api/v1/agents/a1?full=1", "/api/v1/pools?role=x", "/api/v1/pools/x?status=active"} {
		p.wantCode(picket.CodeValidation, "GET", path, "operator", "")
	}
}

func TestPoolsAreSummedUpAndAdvised(t *testing.T) {
	one, five := 1, 5
	advice := map[string]picket.PoolAdvice{
		"billing": {MinInstances: &one, MaxInstances: &five},
		"planned": {MinInstances: &five},
	}
	virtual(t, api.Config{PoolAdvice: advice}, func(t *testing.T, p *fixture) {
		p.addFleet()
		const (
			billing = `{"role_id":"billing","members":{"active":3,"dead":0,"deregistered":0,"draining":1,"unhealthy":0},"max_concurrent_tasks":10,"current_load":6,"available_capacity":4,"advisory":{"min_instances":1,"max_instances":5}}`
			planned = `{"role_id":"planned","members":{"active":0,"dead":0,"deregistered":0,"draining":0,"unhealthy":0},"max_concurrent_tasks":0,"current_load":0,"available_capacity":0,"advisory":{"min_instances":5,"max_instances":null}}`
			review  = `{"role_id":"review","members":{"active":1,"dead":0,"deregistered":0,"draining":0,"unhealthy":0},"max_concurrent_tasks":1,"current_load":0,"available_capacity":1,"advisory":null}`
		)
		p.keys["other"] = p.newKey(picket.KeyRequest{Name: "other", Scopes: []picket.Scope{picket.ScopeAgent}})
		for scope, want := range map[string]string{
			"operator": billing + "," + planned + "," + review,
			"agent":    billing + "," + review,
			"other":    "",
		} {
			if got := p.want(200, "GET", "/api/v1/pools", scope, "").raw; got != `{"pools":[`+want+`]}` {
				t.Errorf("%s: got  %s\nwant %s", scope, got, want)
			}
		}
		for role, want := range map[string]string{"billing": billing, "planned": planned, "review": review} {
			if got := p.want(200, "GET", "/api/v1/pools/"+role, "operator", "").raw; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			p.wantCode(picket.CodeForbidden, "GET", "/api/v1/pools/"+role, "other", "")
		}
		p.wantCode(picket.CodeNotFound, "GET", "/api/v1/pools/nobody", "operator", "")
		p.wantCode(picket.CodeForbidden, "GET", "/api/v1/pools/planned", "agent", "")
		p.wantCode(picket.CodeValidation, "GET", "/api/v1/pools/a%7Db", "operator", "")
	})
}

// An agent's key sees the pools in which it has agents, and its own agents. What
// is not its own looks the same whether it exists or not.
func TestAnAgentsKeySeesItsOwnPools(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		for _, name := range []string{"mine", "theirs"} {
			p.keys[name] = p.newKey(picket.KeyRequest{Name: name, Scopes: []picket.Scope{picket.ScopeAgent}})
		}
		for _, a := range []struct {
			scope string
			id    string
			role  string
		}{{"mine", "m1", "shared"}, {"mine", "m2", ""}, {"theirs", "t1", "shared"}, {"theirs", "t2", "foreign"},
			{"theirs", "t3", ""}} {
			role := "null"
			if a.role != "" {
				role = strconv.Quote(a.role)
			}
			p.register(a.scope, fmt.Sprintf(`{"agent_id":%q,"role_id":%s}`, a.id, role))
		}
		for scope, want := range map[string]string{
			"mine":     "m1 m2 t1",
			"theirs":   "m1 t1 t2 t3",
			"operator": "m1 m2 t1 t2 t3",
			"admin":    "m1 m2 t1 t2 t3",
			"agent":    "",
		} {
			for _, query := range []string{"", "?status=*"} {
				ids, page := p.listAgents(scope, query)
				if slices.Sort(ids); strings.Join(ids, " ") != want || page.Total != len(ids) {
					t.Errorf("%s sees %v of %d, want %s", scope, ids, page.Total, want)
				}
			}
		}
		if ids, _ := p.listAgents("mine", "?role_id=shared&status=dead"); len(ids) != 0 {
			t.Errorf("dead members: %v", ids)
		}
		for _, role := range []string{"foreign", "nobody"} {
			p.wantCode(picket.CodeForbidden, "GET", "/api/v1/agents?role_id="+role, "mine", "")
			p.wantCode(picket.CodeForbidden, "GET", "/api/v1/pools/"+role, "mine", "")
		}
		for id, status := range map[string]int{"m1": 200, "m2": 200, "t1": 200, "t2": 403, "t3": 403, "nobody": 404} {
			if a := p.call("GET", "/api/v1/agents/"+id, "mine", ""); a.status != status ||
				status == 403 && a.text("code") != "forbidden" {
				t.Errorf("%s: %d %s", id, a.status, a.raw)
			}
		}
		for _, path := range []string{"/api/v1/agents", "/api/v1/agents/m1", "/api/v1/pools", "/api/v1/pools/shared"} {
			p.wantCode(picket.CodeForbidden, "GET", path, "reviewer", "")
		}
	})
}
