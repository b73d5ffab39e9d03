package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

var stranger = picket.Caller{Actor: "key_stranger"}

// What only the key that registered an agent, or an operator, may do. A
// stranger changes nothing, not even how long the agent was silent.
func TestStrangersAreRefused(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, shortThresholds("a1"))
		f.tickFor(t, 1500*time.Millisecond)
		seq := f.mustLastSeq(t)
		_, err := f.Heartbeat(f.Ctx, stranger, "a1", kit.ActiveHeartbeat())
		kit.Refused(t, err, picket.CodeForbidden)
		_, err = f.ChangeAgent(f.Ctx, stranger, "a1", nil, kit.DrainChange)
		kit.Refused(t, err, picket.CodeForbidden)
		_, err = f.Deregister(f.Ctx, stranger, "a1", []int64{99})
		kit.Refused(t, err, picket.CodeForbidden)
		_, err = f.CommandAgent(f.Ctx, stranger, "a1", picket.AgentCommand{Command: picket.CommandPing})
		kit.Refused(t, err, picket.CodeForbidden)
		f.MustSubmit(t, picket.TaskSpec{})
		_, err = f.Acquire(f.Ctx, stranger, picket.AcquireRequest{AgentID: "a1"})
		kit.Refused(t, err, picket.CodeForbidden)
		leases, err := f.Acquire(f.Ctx, kit.OtherOperator, picket.AcquireRequest{AgentID: "a1"})
		kit.OK(t, err)
		if len(leases) != 1 {
			t.Fatalf("an operator acquired %d leases for the agent", len(leases))
		}
		f.tickFor(t, 502*time.Millisecond)
		f.judgeAll(t)
		f.wantEvents(t, seq, "task.submitted", "task.leased", "a1: active -> unhealthy, heartbeat_timeout by server")
		_, err = f.Register(f.Ctx, kit.OtherOperator, shortThresholds("a1"))
		kit.Refused(t, err, picket.CodeStateConflict) // a live one, no matter who asks
		if e := refusalOf(err); e.Facts["agent_status"] != "unhealthy" {
			t.Fatalf("facts %v", e.Facts)
		}
		f.tickFor(t, 5*time.Second)
		f.judgeAll(t)
		for _, by := range []picket.Caller{stranger, kit.OtherOperator} {
			_, err = f.Register(f.Ctx, by, shortThresholds("a1"))
			kit.Refused(t, err, picket.CodeForbidden)
		}
		_, err = f.Heartbeat(f.Ctx, stranger, "a1", kit.ActiveHeartbeat())
		kit.Refused(t, err, picket.CodeForbidden)
		_, err = f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", kit.ActiveHeartbeat())
		kit.Refused(t, err, picket.CodeAgentGone)
		_, err = f.Heartbeat(f.Ctx, kit.AgentOwner, "nobody", kit.ActiveHeartbeat())
		kit.Refused(t, err, picket.CodeNotFound)
		_, _, err = f.Agent(f.Ctx, "nobody")
		kit.Refused(t, err, picket.CodeNotFound)
	})
}

// An agent starts again, under what it says now.
func TestRegisteredAgain(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		first := f.MustRegister(t, picket.Registration{
			AgentID:             "a1",
			RoleID:              "r1",
			Name:                "One",
			Endpoint:            "https://example.com/x",
			Capabilities:        []string{"x"},
			Capacity:            &picket.DeclaredCapacity{MaxConcurrentTasks: kit.Ptr(3)},
			DrainTimeoutSeconds: kit.Ptr(9),
			Metadata:            picket.RawJSON(`{"a":1.50}`),
		})
		hb := kit.ActiveHeartbeat()
		hb.CurrentLoad = kit.Ptr(2)
		_, err := f.Heartbeat(f.Ctx, kit.AgentOwner, "a1", hb)
		kit.OK(t, err)
		shown, key, err := f.Agent(f.Ctx, "a1")
		kit.OK(t, err)
		if key != "key_owner" || shown.Capacity.CurrentLoad != 2 || *shown.Capacity.MaxConcurrentTasks != 3 ||
			*shown.DrainTimeoutSeconds != 9 ||
			shown.Name != "One" || shown.Endpoint != "https://example.com/x" ||
			string(shown.Metadata) != `{"a":1.50}` || shown.Version != 1 {
			t.Fatalf("%s has %+v", key, shown)
		}
		f.MustHeartbeat(t, "a1") // says no load
		if again, _, _ := f.Agent(f.Ctx, "a1"); again.Capacity.CurrentLoad != 2 {
			t.Fatalf("%+v", again)
		}
		_, err = f.Deregister(f.Ctx, kit.AgentOwner, "a1", nil)
		kit.OK(t, err)
		f.tickFor(t, time.Second)
		second := f.MustRegister(t, picket.Registration{AgentID: "a1", RoleID: "r2"})
		if second.RegisteredAt != first.RegisteredAt || second.Incarnation != first.Incarnation+1 ||
			second.Version != 1 || second.Name != "" ||
			second.Capacity.MaxConcurrentTasks != nil || second.Capacity.CurrentLoad != 0 ||
			string(second.Metadata) != "{}" || second.RoleID != "r2" {
			t.Fatalf("registered again as %+v", second)
		}
		pools, err := f.Pools(f.Ctx, "", "")
		kit.OK(t, err)
		if len(pools) != 1 || pools[0].RoleID != "r2" || pools[0].Members[picket.AgentActive] != 1 {
			t.Fatalf("pools %+v", pools)
		}
		own := f.MustRegister(t, picket.Registration{})
		if kit.OK(t, picket.CheckID("agent_id", "agent", own.AgentID)); own.Incarnation != second.Incarnation+1 {
			t.Fatalf("registered %+v", own)
		}
	})
}

// A repeated request has its effect once; the answer is the record as it is now.
func TestRegistryRequestsHappenOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		by := func(key string) picket.Caller {
			return picket.Caller{
				Actor:       "key_owner",
				Idempotency: picket.Idempotency{Key: key, Body: fmt.Sprintf("%064d", 1)},
			}
		}
		a, err := f.Register(f.Ctx, by("k1"), picket.Registration{})
		kit.OK(t, err)
		seq := f.mustLastSeq(t)
		again, err := f.Register(f.Ctx, by("k1"), picket.Registration{})
		kit.OK(t, err)
		if again.AgentID != a.AgentID || again.Version != 1 || f.mustLastSeq(t) != seq {
			t.Fatalf("%+v, then %+v", a, again)
		}
		ping := picket.AgentCommand{Command: picket.CommandPing}
		c1, err := f.CommandAgent(f.Ctx, by("k2"), a.AgentID, ping)
		kit.OK(t, err)
		c2, err := f.CommandAgent(f.Ctx, by("k2"), a.AgentID, ping)
		kit.OK(t, err)
		if n := len(f.MustHeartbeat(t, a.AgentID).PendingCommands); c1 != c2 || n != 1 {
			t.Fatalf("commands %s and %s, %d pending", c1, c2, n)
		}
		for range 2 {
			got, err := f.ChangeAgent(f.Ctx, by("k3"), a.AgentID, []int64{1}, kit.DrainChange)
			kit.OK(t, err)
			if got.Status != picket.AgentDraining || got.Version != 2 {
				t.Fatalf("%+v", got)
			}
		}
		for range 2 {
			got, err := f.Deregister(f.Ctx, by("k4"), a.AgentID, []int64{2})
			kit.OK(t, err)
			if got.Status != picket.AgentDeregistered || got.Version != 3 {
				t.Fatalf("%+v", got)
			}
		}
		other := by("k1")
		other.Idempotency.Body = fmt.Sprintf("%064d", 2)
		_, err = f.Register(f.Ctx, other, picket.Registration{})
		kit.Refused(t, err, picket.CodeIdempotencyConflict)
		again, err = f.Register(f.Ctx, by("k1"), picket.Registration{})
		kit.OK(t, err)
		if again.Status != picket.AgentDeregistered {
			t.Fatalf("the record of now is %+v", again)
		}
	})
}

// Incarnations rise over an adoption, and over the end of a record.
func TestIncarnationsNeverFall(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		a := f.MustRegister(t, shortThresholds("a1"))
		_, err := f.Deregister(f.Ctx, kit.AgentOwner, "a1", nil)
		kit.OK(t, err)
		f.tickFor(t, 2*time.Second)
		n, err := f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Second}, 100)
		kit.OK(t, err)
		_, _, err = f.Agent(f.Ctx, "a1")
		kit.Refused(t, err, picket.CodeNotFound)
		if pools, _ := f.Pools(f.Ctx, "", ""); n != 1 || len(pools) != 0 {
			t.Fatalf("%d deleted, pools %+v", n, pools)
		}
		for _, pattern := range []string{"agent:*", "metadata:*", "commands:*", "roster:*", "roles-of:*", "pools",
			"gone", "silence"} {
			if left, err := f.Raw.Keys(f.Ctx, "pk:{default}:"+pattern).Result(); err != nil || len(left) > 0 {
				t.Errorf("of the deleted record there is still %v: %v", left, err)
			}
		}
		b, err := f.Register(f.Ctx, stranger, shortThresholds("a1"))
		kit.OK(t, err)
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:meta", "identity", "another server").Err())
		c := f.MustRegister(t, shortThresholds("a2"))
		s, err := f.Stats(f.Ctx)
		kit.OK(t, err)
		if b.Incarnation != a.Incarnation+1 || c.Incarnation <= s.Floor || s.Floor == 0 {
			t.Fatalf("incarnations %d, %d, after an adoption %d with floor %d", a.Incarnation, b.Incarnation,
				c.Incarnation, s.Floor)
		}
	})
}

// A leap of the server's clock kills nobody: store time judges, and takes part
// of it as a second.
func TestClockLeapsKillNobody(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, shortThresholds("a1"))
		for _, leap := range []time.Duration{time.Hour, -3 * time.Hour, 24 * time.Hour * 365} {
			kit.OK(t, f.Raw.HIncrBy(f.Ctx, "pk:{default}:meta", "raw", -leap.Milliseconds()).Err())
			kit.OK(t, f.Tick(f.Ctx))
			f.judgeAll(t)
			f.wantAgent(t, "a1", picket.AgentActive)
			if got := f.MustHeartbeat(t, "a1"); got.AgentStatus != picket.AgentActive {
				t.Fatalf("after a leap of %s: %+v", leap, got)
			}
		}
	})
}

func ids(page picket.AgentPage) []string {
	out := []string{}
	for _, a := range page.Agents {
		out = append(out, a.AgentID)
	}
	return out
}

func listed(t *testing.T, got picket.AgentPage, want ...string) {
	t.Helper()
	if !slices.Equal(ids(got), want) || got.Total != len(want) {
		t.Errorf("listed %v of %d, want %v", ids(got), got.Total, want)
	}
}

// A change that was meant for the registration before, and comes late, does
// not hit the one after it, although that has the same version.
func TestChangesAreMeantForOneRegistration(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		old := f.MustRegister(t, shortThresholds("a1"))
		remove := picket.AgentStatusChange{Status: picket.AgentDeregistered, Incarnation: old.Incarnation}
		drain := picket.AgentStatusChange{Status: picket.AgentDraining, Incarnation: old.Incarnation}
		for range 2 {
			_, err := f.ChangeAgent(f.Ctx, kit.AgentOwner, "a1", nil, remove)
			kit.OK(t, err)
		}
		a := f.MustRegister(t, shortThresholds("a1"))
		seq := f.mustLastSeq(t)
		for _, change := range []picket.AgentStatusChange{remove, drain} {
			_, err := f.ChangeAgent(f.Ctx, kit.AgentOwner, "a1", []int64{1}, change)
			kit.Refused(t, err, picket.CodeAgentGone)
			if e := refusalOf(err); e.Facts["incarnation"] != a.Incarnation || e.Facts["agent_status"] != "active" {
				t.Fatalf("facts %v", e.Facts)
			}
		}
		f.wantEvents(t, seq)
		drain.Incarnation = a.Incarnation
		f.mustDrain(t, "a1", drain)
	})
}

// Metadata may have what a store does not read, such as numbers beyond all bounds and deep lists.
func TestMetadataOfAgentsIsAnyJSON(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		deep := strings.Repeat("[", 1500) + strings.Repeat("]", 1500)
		for i, more := range []string{`1e400`, `-1e999`, deep, `"\u0000"`} {
			id := fmt.Sprint("any", i)
			a, err := f.Register(f.Ctx, kit.Operator, picket.Registration{AgentID: id,
				Metadata: picket.RawJSON(`{"agent_name":"ann","more":` + more + `}`)})
			kit.OK(t, err)
			kit.OK(t, f.report(id, a.Incarnation, idleSession(newSessionID())))
			_, err = f.Deregister(f.Ctx, kit.Operator, id, nil)
			kit.OK(t, err)
		}
	})
}
