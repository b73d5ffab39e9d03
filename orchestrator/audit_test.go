package orchestrator_test

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/moves"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The scripts and moves.Audited have the same table.
func TestAuditedTypesAreOneTable(t *testing.T) {
	text := kit.LuaText(t, "_prelude")
	table := regexp.MustCompile(`(?s)local AUDITED = \{(.*?)\n *\}`).FindStringSubmatch(text)
	if table == nil {
		t.Fatal("_prelude.lua has no table AUDITED")
	}
	got := map[string]moves.AuditRule{}
	for _, m := range regexp.MustCompile(`\['([^']+)'\] = '(\w+)'`).FindAllStringSubmatch(table[1], -1) {
		got[m[1]] = moves.AuditRule(m[2])
	}
	if !reflect.DeepEqual(got, moves.Audited) {
		t.Errorf("the scripts have\n%v\nwant\n%v", got, moves.Audited)
	}
	for kind := range got {
		if !slices.Contains(picket.EventTypes, kind) {
			t.Errorf("%s is not a type of event", kind)
		}
	}
}

// A holder and a superseded run flood the log, by events and by every other verb,
// until retention has deleted all that was there before. The audit log still has
// the keys and the decisions, and the flood was counted.
func TestAFloodDisplacesNothingInTheAuditLog(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		key, err := f.CreateKey(f.Ctx, kit.Operator,
			picket.KeyRequest{Name: "k", Scopes: []picket.Scope{picket.ScopeAgent}})
		kit.OK(t, err)
		reviewed := f.MustSubmit(t, picket.TaskSpec{})
		_, err = f.Complete(f.Ctx, f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{})),
			picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(t, err)
		_, err = f.Approve(f.Ctx, kit.Operator, reviewed.TaskID, picket.Decision{Note: "good"})
		kit.OK(t, err)
		last, err := f.LastSeq(f.Ctx)
		kit.OK(t, err)

		task := f.MustSubmit(t, picket.TaskSpec{})
		old := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		_, err = f.Expire(f.Ctx, kit.Operator, task.TaskID, "test")
		kit.OK(t, err)
		holder := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		before := len(f.AuditLog(t))
		f.FloodHeartbeats(t, old, "old", 500)
		f.FloodHeartbeats(t, holder, "new", 2000)
		for i := range 20 { // reports are bounded elsewhere, not in the log
			_, err := f.Report(f.Ctx, holder, fmt.Sprint(i), picket.Progress{Summary: fmt.Sprint(i)})
			kit.OK(t, err)
		}
		kit.OK(t, f.RunExit(f.Ctx, old, picket.Exit{Class: picket.ExitCrash}, ""))
		f.EndBudgetMinute(t)
		for range 20 {
			n, err := f.ApplyRetention(f.Ctx, picket.Retention{MaxEvents: 100}, 100)
			kit.OK(t, err)
			if n == 0 {
				break
			}
		}
		page, err := f.Events(f.Ctx, picket.EventQuery{Limit: 1})
		kit.OK(t, err)
		if page.Events[0].Seq <= last {
			t.Fatalf("the log still begins at %d", page.Events[0].Seq)
		}
		audit := f.AuditLog(t)
		if len(audit) != before {
			t.Errorf("the flood wrote to the audit log: %+v", audit[before:])
		}
		for _, want := range []string{picket.EventKeyCreated, picket.EventTaskSubmitted, picket.EventTaskApproved,
			picket.EventLeaseExpired} {
			if !slices.ContainsFunc(audit,
				func(ev picket.Event) bool { return ev.Type == want && ev.Actor == kit.Operator.Actor }) {
				t.Errorf("the audit log has no %s", want)
			}
		}
		if only := f.AuditLog(t, picket.EventKeyCreated); len(only) != 1 ||
			!regexp.MustCompile(key.KeyID).Match(only[0].Data) {
			t.Errorf("of keys the audit log has %+v", only)
		}
		refused := f.RefusedWrites()
		if refused["quota_exceeded"] == 0 || refused[picket.CodeStaleFence] != 500 {
			t.Errorf("counted were %v", refused)
		}
	})
}

// An agent that is named like a key does not write to the audit log by what it
// does with its own registration.
func TestNoAgentWritesToTheAuditLog(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		before := len(f.AuditLog(t))
		by := picket.Caller{Actor: "key_agent"}
		for range 3 {
			_, err := f.Register(f.Ctx, by, picket.Registration{AgentID: "key_other", RoleID: "coder"})
			kit.OK(t, err)
			l, err := f.Acquire(f.Ctx, by, picket.AcquireRequest{AgentID: "key_other"})
			kit.OK(t, err)
			if len(l) != 1 {
				t.Fatalf("leased %+v", l)
			}
			_, err = f.Deregister(f.Ctx, by, "key_other", nil)
			kit.OK(t, err)
		}
		if audit := f.AuditLog(t); len(audit) != before {
			t.Errorf("the agent wrote %+v", audit[before:])
		}
	})
}

// What an operator does to an agent is in the audit log under the operator's key,
// also when that key registered the agent, and whatever the agent is named. What
// the agent does with the same key is not.
func TestAnOperatorIsAuditedWithTheKeyOfItsAgents(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		person := picket.Caller{Actor: "key_owner", Operator: true}
		agent := picket.Caller{Actor: "key_owner"} // an adapter with a run key of that person
		for _, id := range []string{"a1", "key_owner"} {
			register := func() {
				t.Helper()
				_, err := f.Register(f.Ctx, agent, picket.Registration{AgentID: id})
				kit.OK(t, err)
			}
			register()
			seq := f.mustLastSeq(t)
			_, err := f.CommandAgent(f.Ctx, agent, id, picket.AgentCommand{Command: picket.CommandPing})
			kit.OK(t, err)
			hb := picket.Heartbeat{Status: picket.AgentDraining, ClientTimestamp: picket.InstantOf(time.Now())}
			_, err = f.Heartbeat(f.Ctx, person, id, hb)
			kit.OK(t, err)
			_, err = f.Deregister(f.Ctx, agent, id, nil)
			kit.OK(t, err)
			register()
			_, err = f.ChangeAgent(f.Ctx, agent, id, nil, kit.DrainChange)
			kit.OK(t, err)
			_, err = f.Deregister(f.Ctx, agent, id, nil)
			kit.OK(t, err)
			register()
			if got := f.auditEntriesAfter(t, seq); len(got) != 0 {
				t.Errorf("%s: the agent wrote %q", id, got)
			}

			f.MustSubmit(t, picket.TaskSpec{})
			held, err := f.Acquire(f.Ctx, agent, picket.AcquireRequest{AgentID: id})
			kit.OK(t, err)
			if len(held) != 1 {
				t.Fatalf("leased %+v", held)
			}
			seq = f.mustLastSeq(t)
			_, err = f.CommandAgent(f.Ctx, person, id, picket.AgentCommand{Command: picket.CommandPing})
			kit.OK(t, err)
			_, err = f.ChangeAgent(f.Ctx, person, id, nil, kit.DrainChange)
			kit.OK(t, err)
			_, err = f.Deregister(f.Ctx, person, id, nil)
			kit.OK(t, err)
			want := []string{"agent.command by key_owner", "agent.lifecycle by key_owner",
				"agent.lifecycle by key_owner", "lease.expired by key_owner"}
			if got := f.auditEntriesAfter(t, seq); !slices.Equal(got, want) {
				t.Errorf("%s: the audit log has %q, want %q", id, got, want)
			}
			_, err = f.Cancel(f.Ctx, picket.Caller{Actor: "key_test"}, held[0].TaskID, "")
			kit.OK(t, err)
		}
	})
}

// auditEntriesAfter is what the audit log has after a number, with who did it.
func (f *fixture) auditEntriesAfter(t *testing.T, seq int64) (out []string) {
	t.Helper()
	for _, ev := range f.AuditLog(t) {
		if ev.Seq > seq {
			out = append(out, ev.Type+" by "+ev.Actor)
		}
	}
	return out
}

// A repair that an operator asked for is in the audit log, one that the reaper
// made in its own round is not.
func TestARepairByAnOperatorIsAudited(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		damage := func() {
			t.Helper()
			task := f.MustSubmit(t, picket.TaskSpec{})
			f.AcquireOne(t, picket.AcquireRequest{})
			kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:deadlines", task.TaskID).Err())
		}
		look := func(seq int64) []string {
			t.Helper()
			if !slices.ContainsFunc(f.agentEventsAfter(t, seq),
				func(s string) bool { return strings.HasPrefix(s, picket.EventInvariantRepaired) }) {
				t.Fatalf("nothing was repaired: %q", f.agentEventsAfter(t, seq))
			}
			return slices.DeleteFunc(f.auditEntriesAfter(t, seq),
				func(s string) bool { return !strings.HasPrefix(s, "invariant.") })
		}
		damage()
		seq := f.mustLastSeq(t)
		for range 40 {
			kit.OK(t, f.InspectNext(f.Ctx, 1000))
		}
		if got := look(seq); len(got) != 0 {
			t.Errorf("of the reaper the audit log has %q", got)
		}
		damage()
		seq = f.mustLastSeq(t)
		for req := (picket.InspectRequest{Repair: true}); ; {
			part, err := f.Inspect(f.Ctx, picket.Caller{Actor: "key_test", Operator: true}, req)
			kit.OK(t, err)
			if req.Cursor = part.Next; part.Next == "" {
				break
			}
		}
		if got := look(seq); !slices.Equal(got, []string{"invariant.repaired by key_test"}) {
			t.Errorf("of the operator the audit log has %q", got)
		}
	})
}

// The audit log is kept by number and by age, whatever the log keeps, and a
// position that was deleted is told.
func TestAuditRetention(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for range 30 {
			f.MustSubmit(t, picket.TaskSpec{})
			f.AcquireOne(t, picket.AcquireRequest{})
		}
		s, err := f.Stats(f.Ctx)
		kit.OK(t, err)
		all := f.AuditLog(t)
		if s.AuditEvents != int64(len(all)) || s.OldestAudit != all[0].At || len(all) != 30 {
			t.Fatalf("of %d events %d are counted, the oldest of %v", len(all), s.AuditEvents, s.OldestAudit)
		}
		keep := picket.Retention{AuditEvents: 12}
		for range 3 { // 10 events a step
			_, err := f.ApplyRetention(f.Ctx, keep, 10)
			kit.OK(t, err)
		}
		left := f.AuditLog(t)
		if len(left) != 12 || left[0].Seq != all[18].Seq {
			t.Fatalf("%d events are left", len(left))
		}
		_, err = f.Events(f.Ctx, picket.EventQuery{Audit: true, After: all[0].Seq})
		kit.Refused(t, err, picket.CodeCursorExpired)
		page, err := f.Events(f.Ctx, picket.EventQuery{Audit: true, After: all[17].Seq, Limit: 5})
		kit.OK(t, err)
		if len(page.Events) != 5 || page.Next != left[4].ID {
			t.Errorf("read on with %+v, next %s", page.Events, page.Next)
		}
		back, err := f.Events(f.Ctx, picket.EventQuery{Audit: true, NewestFirst: true, Limit: 3, Until: left[11].At})
		kit.OK(t, err)
		if len(back.Events) != 3 || back.Events[0].Seq != left[11].Seq {
			t.Errorf("read back %+v", back.Events)
		}
		f.JumpStoreTime(t, 399*24*time.Hour)
		_, err = f.ApplyRetention(f.Ctx, picket.Retention{}, 100)
		kit.OK(t, err)
		if n := len(f.AuditLog(t)); n != 12 {
			t.Errorf("%d events are left after 399 days", n)
		}
		f.JumpStoreTime(t, 2*24*time.Hour)
		_, err = f.ApplyRetention(f.Ctx, picket.Retention{}, 100)
		kit.OK(t, err)
		if n := len(f.AuditLog(t)); n != 0 {
			t.Errorf("%d events are left after 401 days", n)
		}
	})
}
