package orchestrator_test

import (
	"fmt"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Every filter of RFC-0016 section 6.2, alone and together.
func TestDiscovery(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for _, a := range []struct {
			id   string
			role string
			caps []string
			most int
			load int
		}{
			{"a1", "billing", []string{"pay", "x"}, 5, 2}, {"a2", "billing", []string{"pay"}, 5, 5},
			{"a3", "review", []string{"lint"}, 1, 3},
			{"a4", "", []string{"x"}, -1, 0}, {"a5", "billing", nil, 9, 0}, {"a6", "review", []string{"pay"}, 4, 0},
		} {
			reg := picket.Registration{AgentID: a.id, RoleID: a.role, Capabilities: a.caps}
			if a.most >= 0 {
				reg.Capacity = &picket.DeclaredCapacity{MaxConcurrentTasks: &a.most}
			}
			f.MustRegister(t, reg)
			hb := kit.ActiveHeartbeat()
			hb.CurrentLoad = &a.load
			_, err := f.Heartbeat(f.Ctx, kit.AgentOwner, a.id, hb)
			kit.OK(t, err)
		}
		f.mustDrain(t, "a5", kit.DrainChange)
		_, err := f.Deregister(f.Ctx, kit.AgentOwner, "a6", nil)
		kit.OK(t, err)
		all := picket.AgentStatuses
		for _, c := range []struct {
			q    picket.AgentQuery
			want []string
		}{
			{picket.AgentQuery{}, []string{"a1", "a2", "a3", "a4"}},
			{picket.AgentQuery{Statuses: all}, []string{"a1", "a2", "a3", "a4", "a5", "a6"}},
			{picket.AgentQuery{Statuses: []picket.AgentStatus{"deregistered", "draining", "draining"}},
				[]string{"a6", "a5"}},
			{picket.AgentQuery{Role: "billing"}, []string{"a1", "a2"}},
			{picket.AgentQuery{Role: "nobody"}, nil},
			{picket.AgentQuery{Capabilities: []string{"x", "lint"}}, []string{"a1", "a3", "a4"}},
			{picket.AgentQuery{Capabilities: []string{"pa"}}, nil},
			{picket.AgentQuery{MinAvailable: kit.Ptr(1)}, []string{"a1"}},
			{picket.AgentQuery{MinAvailable: kit.Ptr(0)}, []string{"a1", "a2", "a4"}},
			{picket.AgentQuery{MinAvailable: kit.Ptr(4)}, nil},
			{picket.AgentQuery{
				Statuses:     all,
				Role:         "billing",
				Capabilities: []string{"pay", "lint"},
				MinAvailable: kit.Ptr(3),
			}, []string{"a1"}},
		} {
			got, err := f.Agents(f.Ctx, c.q)
			kit.OK(t, err)
			listed(t, got, c.want...)
		}
		got, err := f.Agents(f.Ctx, picket.AgentQuery{Role: "billing", Limit: 1})
		kit.OK(t, err)
		if a := got.Agents[0]; a.RoleID != "billing" || a.Capacity.CurrentLoad != 2 ||
			*a.Capacity.MaxConcurrentTasks != 5 ||
			a.LastHeartbeatAt == 0 || a.Status != picket.AgentActive || fmt.Sprint(a.Capabilities) != "[pay x]" ||
			got.Total != 2 {
			t.Fatalf("%+v of %d", a, got.Total)
		}
		for _, q := range []picket.AgentQuery{{Limit: -1}, {Limit: 1001},
			{Statuses: []picket.AgentStatus{"registering"}}, {Role: "a b"},
			{MinAvailable: kit.Ptr(-1)}, {Capabilities: []string{"a,b"}}, {Cursor: "active"}, {Cursor: "nowhere:a1"},
			{Cursor: "active:"}} {
			_, err := f.Agents(f.Ctx, q)
			kit.Refused(t, err, picket.CodeValidation)
		}
	})
}

// Pages hold every agent once, in the same order, whatever their size and
// whether statuses, roles or a key's own pools are asked for.
func TestDiscoveryPages(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for i := range 23 {
			id := fmt.Sprintf("a%02d", i)
			by := kit.AgentOwner
			if i%4 == 3 {
				by = stranger
			}
			_, err := f.Register(f.Ctx, by,
				picket.Registration{
					AgentID:      id,
					RoleID:       []string{"r1", "r2", "", "r3"}[i%4],
					Capabilities: []string{fmt.Sprint("c", i%3)},
				})
			kit.OK(t, err)
			if i%5 == 0 {
				_, err := f.ChangeAgent(f.Ctx, by, id, nil, kit.DrainChange)
				kit.OK(t, err)
			}
		}
		both := []picket.AgentStatus{picket.AgentDraining, picket.AgentActive}
		for _, q := range []picket.AgentQuery{{}, {Statuses: both}, {Statuses: both, Role: "r2"},
			{Statuses: both, Capabilities: []string{"c1"}},
			{Statuses: both, Owner: "key_owner"}, {Statuses: both, Owner: "key_stranger"}, {Owner: "key_nobody"},
			{Statuses: both, Owner: "key_owner", Role: "r1"}} {
			whole, err := f.Agents(f.Ctx, q)
			kit.OK(t, err)
			if whole.NextCursor != "" {
				t.Fatalf("%+v: one page, but there is another", q)
			}
			for _, limit := range []int{1, 2, 5, max(1, whole.Total)} {
				q.Limit, q.Cursor = limit, ""
				var got picket.AgentPage
				for {
					page, err := f.Agents(f.Ctx, q)
					kit.OK(t, err)
					if len(page.Agents) > limit || page.Total != whole.Total {
						t.Fatalf("%+v: %d agents of %d", q, len(page.Agents), page.Total)
					}
					got.Agents = append(got.Agents, page.Agents...)
					if q.Cursor = page.NextCursor; q.Cursor == "" {
						break
					}
				}
				got.Total = whole.Total
				listed(t, got, ids(whole)...)
			}
		}
		mine, err := f.Agents(f.Ctx, picket.AgentQuery{Statuses: both, Owner: "key_stranger"})
		kit.OK(t, err)
		if mine.Total != 5 { // all of r3, none without a role
			t.Errorf("a key sees %v", ids(mine))
		}
		_, err = f.Register(f.Ctx, stranger, picket.Registration{AgentID: "b"})
		kit.OK(t, err)
		mine, err = f.Agents(f.Ctx, picket.AgentQuery{Statuses: both, Owner: "key_stranger"})
		kit.OK(t, err)
		if mine.Total != 6 { // its own without a role
			t.Errorf("a key sees %v", ids(mine))
		}
	})
}

// A pool sums up its active members that declare a maximum.
func TestPools(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for i, most := range []int{5, 3, -1, 7} {
			reg := picket.Registration{AgentID: fmt.Sprint("a", i), RoleID: "billing"}
			if most > 0 {
				reg.Capacity = &picket.DeclaredCapacity{MaxConcurrentTasks: &most}
			}
			f.MustRegister(t, reg)
			hb := kit.ActiveHeartbeat()
			hb.CurrentLoad = kit.Ptr(2)
			_, err := f.Heartbeat(f.Ctx, kit.AgentOwner, reg.AgentID, hb)
			kit.OK(t, err)
		}
		f.mustDrain(t, "a3", kit.DrainChange)
		f.MustRegister(t, picket.Registration{AgentID: "alone"})
		_, err := f.Register(f.Ctx, stranger, picket.Registration{AgentID: "s", RoleID: "audit"})
		kit.OK(t, err)
		pools, err := f.Pools(f.Ctx, "", "")
		kit.OK(t, err)
		if len(pools) != 2 || pools[0].RoleID != "audit" || pools[0].Members[picket.AgentActive] != 1 {
			t.Fatalf("pools %+v", pools)
		}
		p := pools[1]
		if p.RoleID != "billing" || p.Members[picket.AgentActive] != 3 || p.Members[picket.AgentDraining] != 1 ||
			len(p.Members) != 5 ||
			p.MaxConcurrentTasks != 8 || p.CurrentLoad != 4 || p.AvailableCapacity != 4 {
			t.Fatalf("pool %+v", p)
		}
		for _, c := range []struct {
			role  string
			owner string
			want  int
		}{{"billing", "", 1}, {"nobody", "", 0}, {"", "key_stranger", 1}, {"billing", "key_stranger", 0},
			{"audit", "key_stranger", 1}} {
			got, err := f.Pools(f.Ctx, c.role, c.owner)
			kit.OK(t, err)
			if len(got) != c.want {
				t.Errorf("pools of %q for %q: %+v", c.role, c.owner, got)
			}
		}
	})
}

// A large registry is walked in steps, and judging it costs the same as a
// small one as long as all are well: by the store's own count.
func TestALargeRegistryReal(t *testing.T) {
	n := max(1200, rig.Rounds(1200, 10_000)) // more than one page
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	cost := func(do func()) map[string]int {
		time := func() string { return f.Raw.HGet(t.Context(), kit.Meta, "raw").Val() }
		started, before := time(), commandCalls(t, f.Raw)
		do()
		after := commandCalls(t, f.Raw)
		if time() != started { // a script writes store time at most every 100 ms
			after["hset"]--
		}
		for command := range before {
			if after[command] -= before[command]; after[command] == 0 {
				delete(after, command)
			}
		}
		delete(after, "info")
		delete(after, "hget") // time
		return after
	}
	f.MustRegister(t, picket.Registration{AgentID: "first", RoleID: "r"})
	judge := func() { f.judgeAll(t) }
	beat := func() { f.MustHeartbeat(t, "first") }
	judge()
	beat()
	few, fewBeats := cost(judge), cost(beat)
	for i := 1; i < n; i++ {
		f.MustRegister(t, picket.Registration{
			AgentID:  fmt.Sprintf("a%05d", i),
			RoleID:   "r",
			Capacity: &picket.DeclaredCapacity{MaxConcurrentTasks: kit.Ptr(2)},
		})
	}
	many, manyBeats := cost(judge), cost(beat)
	if fmt.Sprint(few) != fmt.Sprint(many) || fmt.Sprint(fewBeats) != fmt.Sprint(manyBeats) {
		t.Errorf("judging costs %v with one agent, %v with %d; a heartbeat %v and %v", few, many, n, fewBeats,
			manyBeats)
	}
	got, err := f.Agents(f.Ctx, picket.AgentQuery{MinAvailable: kit.Ptr(1)})
	kit.OK(t, err)
	if got.Total != n-1 || len(got.Agents) != 1000 || got.NextCursor == "" {
		t.Errorf("listed %d of %d, next %q", len(got.Agents), got.Total, got.NextCursor)
	}
	pools, err := f.Pools(f.Ctx, "", "")
	kit.OK(t, err)
	if len(pools) != 1 || pools[0].Members[picket.AgentActive] != n || pools[0].MaxConcurrentTasks != 2*(n-1) {
		t.Errorf("pools %+v", pools)
	}
	t.Logf("%d agents: judging %v, a heartbeat %v", n, many, manyBeats)
}
