package rfc16

import (
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/picket-dev/picket/internal/conformance"
)

// listed are the ids that a query of the registry answers, sorted; never nil.
func (t *Trial) listed(query string) []string {
	return t.ids(t.ExpectStatus(t.Call(operator, "GET", agentsPath+"?"+query, nil), 200))
}

func (t *Trial) ids(a *answer) []string {
	ids := []string{}
	for _, row := range a.List("agents") {
		ids = append(ids, text(row, "agent_id"))
	}
	slices.Sort(ids)
	return ids
}

// registerPool registers agents that share a capability of the rule's own; each body
// is one of them.
func (t *Trial) registerPool(bodies ...fields) (tag string, ids []string) {
	tag = t.tag()
	for _, b := range bodies {
		caps, _ := b["capabilities"].([]string)
		b = merge(b, fields{"capabilities": append([]string{tag}, caps...)})
		ids = append(ids, t.register(b).id)
	}
	return tag, ids
}

// Section 6: discovery.
var listChecks = checks{
	"6.1/request": func(t *Trial) {
		tag, ids := t.registerPool(nil, nil)
		t.ExpectEqual("listed", t.listed("capabilities="+tag+"&status=active"), ids)
	},
	"6.1/shape": func(t *Trial) {
		tag, _ := t.registerPool(nil, nil, nil)
		r := t.Call(operator, "GET", agentsPath+"?capabilities="+tag, nil)
		t.ExpectMember(t.ExpectStatus(r, 200), "total", 3)
		t.ExpectEqual("number of agents", len(r.List("agents")), 3)
		r = t.Call(operator, "GET", agentsPath+"?capabilities="+tag+"none", nil)
		t.ExpectMember(t.ExpectStatus(r, 200), "agents", []any{})
		t.ExpectMember(r, "total", 0)
	},
	"6.1/row": func(t *Trial) {
		tag, ids := t.registerPool(fullRequest())
		t.ExpectStatus(t.agents[0].heartbeat(owner, "active", fields{"current_load": 2}), 200)
		r := t.ExpectStatus(t.Call(operator, "GET", agentsPath+"?capabilities="+tag, nil), 200)
		row := &answer{Status: r.Status, Raw: r.Raw, Body: fields{}}
		if all := r.List("agents"); len(all) == 1 {
			row.Body = all[0]
		}
		wanted := fields{
			"agent_id": ids[0],
			"role_id":  "billing-processor",
			"name":     "Billing Processor",
			"status":   "active",
			"capacity": fields{"max_concurrent_tasks": 5, "current_load": 2},
		}
		for path, want := range wanted {
			t.ExpectMember(row, path, want)
		}
		t.ExpectEqual("capabilities", conformance.StringList(row.Body, "capabilities"),
			tag+",billing,invoicing,stripe-integration")
		t.ExpectEqual("last_heartbeat_at", row.Str("last_heartbeat_at"), t.agents[0].record().Str("last_heartbeat_at"))
	},
	"6.1/row-no-more": func(t *Trial) {
		tag, _ := t.registerPool(fullRequest())
		r := t.ExpectStatus(t.Call(operator, "GET", agentsPath+"?capabilities="+tag, nil), 200)
		all := r.List("agents")
		t.Assert(len(all) == 1, r, "one agent")
		t.ExpectEqual("members", slices.Sorted(maps.Keys(all[0])),
			[]string{"agent_id", "capabilities", "capacity", "last_heartbeat_at", "name", "role_id", "status"})
	},
	"6.2/capabilities-any": func(t *Trial) {
		x, y, z := t.tag()+"x", t.tag()+"y", t.tag()+"z"
		a := t.register(fields{"capabilities": []string{x}})
		b := t.register(fields{"capabilities": []string{y, z}})
		t.register(fields{"capabilities": []string{z}})
		t.ExpectEqual("listed", t.listed("capabilities="+x+","+y), []string{a.id, b.id})
		t.ExpectEqual("listed", t.listed("capabilities="+x), []string{a.id})
		t.ExpectEqual("listed", t.listed("capabilities="+t.tag()), []string{})
	},
	"6.2/status": func(t *Trial) {
		tag, ids := t.registerPool(nil, nil, nil)
		t.agents[0].remove()
		t.ExpectEqual("listed", t.listed("status=deregistered&capabilities="+tag), ids[:1])
		t.ExpectEqual("listed", t.listed("status=active&capabilities="+tag), ids[1:])
		t.ExpectEqual("listed", t.listed("status=active,deregistered&capabilities="+tag), ids)
		t.ExpectEqual("listed", t.listed("status=unhealthy,dead&capabilities="+tag), []string{})
	},
	"6.2/status-unhealthy": func(t *Trial) {
		tag, ids := t.registerPool(t.unhealthyOnlyThresholds(), t.shortThresholds())
		t.agents[1].fallSilent("dead")
		t.ExpectEqual("listed", t.listed("status=unhealthy&capabilities="+tag), ids[:1])
		t.ExpectEqual("listed", t.listed("status=dead&capabilities="+tag), ids[1:])
	},
	"6.2/status-default": func(t *Trial) {
		tag, ids := t.registerPool(t.longThresholds(), t.unhealthyOnlyThresholds(), nil)
		t.agents[1].fallSilent("unhealthy")
		t.agents[2].remove()
		t.ExpectEqual("listed", t.listed("capabilities="+tag), ids[:1])
	},
	"6.2/status-all": func(t *Trial) {
		tag, ids := t.registerPool(nil, nil, t.unhealthyOnlyThresholds())
		t.agents[0].remove()
		t.agents[2].fallSilent("unhealthy")
		t.ExpectEqual("listed", t.listed("status=*&capabilities="+tag), ids)
	},
	"6.2/role_id": func(t *Trial) {
		role := t.ID("role")
		a := t.register(fields{"role_id": role})
		t.register(fields{"role_id": role + "2"})
		t.register(nil)
		t.ExpectEqual("listed", t.listed("role_id="+role), []string{a.id})
	},
	"6.2/min_available_capacity": func(t *Trial) {
		tag, ids := t.registerPool(fields{"capacity": fields{"max_concurrent_tasks": 5}},
			fields{"capacity": fields{"max_concurrent_tasks": 2}})
		t.ExpectStatus(t.agents[0].heartbeat(owner, "active", fields{"current_load": 2}), 200)
		for value, want := range map[int][]string{1: ids, 2: ids, 3: ids[:1], 4: {}} {
			t.ExpectEqual(fmt.Sprintf("listed with %d", value),
				t.listed(fmt.Sprintf("min_available_capacity=%d&capabilities=%s", value, tag)), want)
		}
	},
	"6.2/no-maximum": func(t *Trial) {
		tag, ids := t.registerPool(nil, fields{"capacity": fields{"max_concurrent_tasks": 1}})
		t.ExpectEqual("listed", t.listed("min_available_capacity=0&capabilities="+tag), ids)
		t.ExpectEqual("listed", t.listed("min_available_capacity=1&capabilities="+tag), ids[1:])
	},
	"6.2/and": func(t *Trial) {
		role, size := t.ID("role"), fields{"capacity": fields{"max_concurrent_tasks": 3}}
		tag, ids := t.registerPool(merge(size, fields{"role_id": role}), fields{"role_id": role}, size,
			merge(size, fields{"role_id": role}))
		t.agents[3].remove()
		t.register(merge(size, fields{"role_id": role}))
		t.ExpectEqual("listed", t.listed("min_available_capacity=3&status=active&role_id="+role+"&capabilities="+
			tag),
			ids[:1])
	},
	"6.2/unknown": func(t *Trial) {
		for _, bad := range []string{"state=active", "status=asleep", "min_available_capacity=many",
			"min_available_capacity=-1", "limit=0", "cursor=%21"} {
			t.ExpectCode(t.Call(operator, "GET", agentsPath+"?"+bad, nil), 400, "validation_failed")
		}
	},
	"6.2/pages": func(t *Trial) {
		tag, ids := t.registerPool(nil, nil, nil, nil, nil)
		t.agents[4].remove()
		query := "status=active,deregistered&limit=2&capabilities=" + tag
		seen, cursor, pages := []string{}, "", 0
		for ; pages == 0 || cursor != ""; pages++ {
			t.Assert(pages < 6, t.Last, "an end of the pages")
			r := t.ExpectStatus(t.Call(operator, "GET", agentsPath+"?"+query+"&cursor="+url.QueryEscape(cursor),
				nil),
				200)
			if cursor == "" {
				r = t.ExpectStatus(t.Call(operator, "GET", agentsPath+"?"+query, nil), 200)
			}
			t.ExpectMember(r, "total", 5)
			t.Assert(len(r.List("agents")) <= 2, r, "at most two agents")
			seen, cursor = append(seen, t.ids(r)...), r.Str("next_cursor")
		}
		slices.Sort(seen)
		t.ExpectEqual("all pages", seen, ids)
	},
	"6.2/no-cursor-without-more": func(t *Trial) {
		tag, _ := t.registerPool(nil, nil)
		r := t.ExpectStatus(t.Call(operator, "GET", agentsPath+"?limit=2&capabilities="+tag, nil), 200)
		t.ExpectEqual("number of agents", len(r.List("agents")), 2)
		_, more := r.At("next_cursor")
		t.Assert(!more, r, "no next_cursor")
	},
	"6.3/lookup": func(t *Trial) {
		a := t.register(fullRequest())
		r := a.record()
		for path, want := range fullRequest() {
			if path != "capacity" {
				t.ExpectMember(r, path, want)
			}
		}
		t.ExpectMember(r, "capacity.max_concurrent_tasks", 5)
		t.ExpectMember(r, "version", 1)
	},
	"6.3/unknown-agent": func(t *Trial) {
		t.ExpectStatus(t.Call(owner, "GET", agentsPath+"/"+t.ID("never"), nil), 404)
	},
	"6.3/etag": func(t *Trial) {
		a := t.newDrainingAgent(nil)
		r := a.record()
		t.ExpectEqual("ETag", r.Header.Get("ETag"), fmt.Sprintf(`"%d"`, r.Num("version")))
		t.Assert(r.Num("version") > 1, r, "a version above 1")
	},
}
