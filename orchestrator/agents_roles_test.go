package orchestrator_test

import (
	"fmt"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A key that has registered agents of very many roles is not dear to anybody:
// no call reads more than a bounded part of them, in pages all are there once.
func TestAKeyOfManyRolesReal(t *testing.T) {
	const roles, one, page = 1500, 50, 7000 // commands that one script runs at most, for one role and for a page
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	for i := range roles {
		f.MustRegister(t, picket.Registration{AgentID: fmt.Sprintf("a%04d", i), RoleID: fmt.Sprintf("r%04d", i)})
	}
	f.MustRegister(t, picket.Registration{AgentID: "without"})
	_, err := f.ChangeAgent(f.Ctx, kit.AgentOwner, "a0700", nil, kit.DrainChange)
	kit.OK(t, err)
	count := func(do func()) (scripts, commands int) {
		before := commandCalls(t, f.Raw)
		do()
		after := commandCalls(t, f.Raw)
		for name, n := range after {
			switch n -= before[name]; name {
			case "fcall":
				scripts = n
			case "hgetall":
				commands += n * roles // each may read every role
			default:
				commands += n
			}
		}
		return scripts, commands
	}
	for _, c := range []struct {
		name  string
		bound int
		do    func()
	}{
		{"all of a key", page, func() {
			seen, q := map[string]bool{},
				picket.AgentQuery{Statuses: picket.AgentStatuses, Owner: "key_owner", Limit: 400}
			for {
				page, err := f.Agents(f.Ctx, q)
				kit.OK(t, err)
				for _, a := range page.Agents {
					if seen[a.AgentID] {
						t.Errorf("%s is on two pages", a.AgentID)
					}
					seen[a.AgentID] = true
				}
				if page.Total != roles+1 {
					t.Fatalf("a page of %d agents, not %d", page.Total, roles+1)
				}
				if q.Cursor = page.NextCursor; q.Cursor == "" {
					break
				}
			}
			if len(seen) != roles+1 {
				t.Errorf("the pages hold %d agents of %d", len(seen), roles+1)
			}
		}},
		{"one role of a key", one, func() {
			page, err := f.Agents(f.Ctx, picket.AgentQuery{Owner: "key_owner", Role: "r0007"})
			kit.OK(t, err)
			listed(t, page, "a0007")
		}},
		{"pools", page, func() {
			pools, err := f.Pools(f.Ctx, "", "")
			kit.OK(t, err)
			if len(pools) != roles || pools[700].Members[picket.AgentDraining] != 1 ||
				pools[701].Members[picket.AgentActive] != 1 || pools[roles-1].RoleID != "r1499" {
				t.Errorf("%d pools, %+v", len(pools), pools[min(700, len(pools)-1)])
			}
		}},
		{"one pool", one, func() {
			pools, err := f.Pools(f.Ctx, "r0700", "key_owner")
			kit.OK(t, err)
			if len(pools) != 1 {
				t.Errorf("pools %+v", pools)
			}
		}},
	} {
		scripts, commands := count(c.do)
		t.Logf("%s: %d scripts, %d commands", c.name, scripts, commands)
		if scripts == 0 || commands > scripts*c.bound {
			t.Errorf("%s: %d scripts ran %d commands, more than %d each", c.name, scripts, commands, c.bound)
		}
	}
}

// Nobody reads a large registry to number it: without a filter that looks into
// records its sizes say enough.
func TestTotalsReal(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	for i := range 300 {
		f.MustRegister(t, picket.Registration{AgentID: fmt.Sprintf("a%04d", i), RoleID: "r"})
	}
	for _, q := range []picket.AgentQuery{{}, {Role: "r"}, {Owner: "key_owner"}, {Statuses: picket.AgentStatuses}} {
		q.Limit = 2
		before := commandCalls(t, f.Raw)["hmget"]
		page, err := f.Agents(f.Ctx, q)
		kit.OK(t, err)
		read := commandCalls(t, f.Raw)["hmget"] - before
		if page.Total != 300 || len(page.Agents) != 2 || read > 50 {
			t.Errorf("%+v: %d of %d agents, %d records read", q, len(page.Agents), page.Total, read)
		}
	}
}
