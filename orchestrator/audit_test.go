package orchestrator_test

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// followAudit holds what the audit log has after a number against the events of
// the step.
func (x *machine) followAudit(after int64, events []picket.Event) {
	x.Helper()
	want := slices.DeleteFunc(slices.Clone(events), func(ev picket.Event) bool { return !belongsInAudit(ev) })
	page, err := x.e.Events(x.ctx, picket.EventQuery{After: after, Limit: 1000, Audit: true})
	x.ok(err)
	if len(page.Events)+len(want) > 0 && !reflect.DeepEqual(page.Events, want) {
		x.Fatalf("the audit log has\n%+v\nwant\n%+v", page.Events, want)
	}
}

// belongsInAudit reports whether the audit log has to have a copy of the event. No agent
// of the model is named like a key.
func belongsInAudit(ev picket.Event) bool {
	rule := picket.Audited[ev.Type]
	return rule == picket.AuditAlways || rule == picket.AuditPerson && strings.HasPrefix(ev.Actor, "key_")
}

// auditDiffers says how the audit log differs from what the event log says it has
// to be. Neither may have been shortened by retention.
func auditDiffers(ctx context.Context, raw redis.UniversalClient) string {
	events, err := raw.XRange(ctx, "pk:{default}:events", "-", "+").Result()
	if err != nil {
		return err.Error()
	}
	copies, err := raw.XRange(ctx, "pk:{default}:audit", "-", "+").Result()
	if err != nil {
		return err.Error()
	}
	want := slices.DeleteFunc(events, func(row redis.XMessage) bool {
		return !belongsInAudit(picket.Event{
			Type:  fmt.Sprint(row.Values["type"]),
			Actor: fmt.Sprint(row.Values["actor"]),
		})
	})
	for i := range max(len(want), len(copies)) {
		if i == len(want) || i == len(copies) || !reflect.DeepEqual(copies[i], want[i]) {
			return fmt.Sprintf("of %d audited events the audit log has %d, and number %d differs: %v, %v", len(want),
				len(copies), i,
				copies[min(i, len(copies)):min(i+1, len(copies))], want[min(i, len(want)):min(i+1, len(want))])
		}
	}
	return ""
}

// The scripts and picket.Audited have the same table.
func TestAuditedTypesAreOneTable(t *testing.T) {
	text := luaText(t, "_prelude")
	table := regexp.MustCompile(`(?s)local AUDITED = \{(.*?)\n\}`).FindStringSubmatch(text)
	if table == nil {
		t.Fatal("_prelude.lua has no table AUDITED")
	}
	got := map[string]picket.AuditRule{}
	for _, m := range regexp.MustCompile(`\['([^']+)'\] = '(\w+)'`).FindAllStringSubmatch(table[1], -1) {
		got[m[1]] = picket.AuditRule(m[2])
	}
	if !reflect.DeepEqual(got, picket.Audited) {
		t.Errorf("the scripts have\n%v\nwant\n%v", got, picket.Audited)
	}
	for kind := range got {
		if !slices.Contains(picket.EventTypes, kind) {
			t.Errorf("%s is not a type of event", kind)
		}
	}
}

// auditLog reads the whole audit log.
func (f *fixture) auditLog(t *testing.T, types ...string) []picket.Event {
	t.Helper()
	var all []picket.Event
	for q := (picket.EventQuery{Audit: true, Limit: 1000, Types: types}); ; q.After = all[len(all)-1].Seq {
		page, err := f.Events(f.ctx, q)
		ok(t, err)
		if len(page.Events) == 0 {
			return all
		}
		all = append(all, page.Events...)
	}
}

// A holder and a superseded run flood the log, by events and by every other verb,
// until retention has deleted all that was there before. The audit log still has
// the keys and the decisions, and the flood was counted.
func TestAFloodDisplacesNothingInTheAuditLog(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		key, err := f.CreateKey(f.ctx, operator,
			picket.KeyRequest{Name: "k", Scopes: []picket.Scope{picket.ScopeAgent}})
		ok(t, err)
		reviewed := f.mustSubmit(t, picket.TaskSpec{})
		_, err = f.Complete(f.ctx, f.openLease(t, f.acquireOne(t, picket.AcquireRequest{})),
			picket.Completion{Output: picket.RawJSON(`1`)})
		ok(t, err)
		_, err = f.Approve(f.ctx, operator, reviewed.TaskID, picket.Decision{Note: "good"})
		ok(t, err)
		last, err := f.LastSeq(f.ctx)
		ok(t, err)

		task := f.mustSubmit(t, picket.TaskSpec{})
		old := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		_, err = f.Expire(f.ctx, operator, task.TaskID, "test")
		ok(t, err)
		holder := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		before := len(f.auditLog(t))
		f.floodHeartbeats(t, old, "old", 500)
		f.floodHeartbeats(t, holder, "new", 2000)
		for i := range 20 { // reports are bounded elsewhere, not in the log
			_, err := f.Report(f.ctx, holder, fmt.Sprint(i), picket.Progress{Summary: fmt.Sprint(i)})
			ok(t, err)
		}
		ok(t, f.RunExit(f.ctx, old, picket.Exit{Class: picket.ExitCrash}, ""))
		f.endBudgetMinute(t)
		for range 20 {
			n, err := f.ApplyRetention(f.ctx, picket.Retention{MaxEvents: 100}, 100)
			ok(t, err)
			if n == 0 {
				break
			}
		}
		page, err := f.Events(f.ctx, picket.EventQuery{Limit: 1})
		ok(t, err)
		if page.Events[0].Seq <= last {
			t.Fatalf("the log still begins at %d", page.Events[0].Seq)
		}
		audit := f.auditLog(t)
		if len(audit) != before {
			t.Errorf("the flood wrote to the audit log: %+v", audit[before:])
		}
		for _, want := range []string{picket.EventKeyCreated, picket.EventTaskSubmitted, picket.EventTaskApproved,
			picket.EventLeaseExpired} {
			if !slices.ContainsFunc(audit,
				func(ev picket.Event) bool { return ev.Type == want && ev.Actor == operator.Actor }) {
				t.Errorf("the audit log has no %s", want)
			}
		}
		if only := f.auditLog(t, picket.EventKeyCreated); len(only) != 1 ||
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
		f.mustSubmit(t, picket.TaskSpec{})
		before := len(f.auditLog(t))
		by := picket.Caller{Actor: "key_agent"}
		for range 3 {
			_, err := f.Register(f.ctx, by, picket.Registration{AgentID: "key_other", RoleID: "coder"})
			ok(t, err)
			l, err := f.Acquire(f.ctx, by, picket.AcquireRequest{AgentID: "key_other"})
			ok(t, err)
			if len(l) != 1 {
				t.Fatalf("leased %+v", l)
			}
			_, err = f.Deregister(f.ctx, by, "key_other", nil)
			ok(t, err)
		}
		if audit := f.auditLog(t); len(audit) != before {
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
				_, err := f.Register(f.ctx, agent, picket.Registration{AgentID: id})
				ok(t, err)
			}
			register()
			seq := f.mustLastSeq(t)
			_, err := f.CommandAgent(f.ctx, agent, id, picket.AgentCommand{Command: picket.CommandPing})
			ok(t, err)
			hb := picket.Heartbeat{Status: picket.AgentDraining, ClientTimestamp: picket.InstantOf(time.Now())}
			_, err = f.Heartbeat(f.ctx, person, id, hb)
			ok(t, err)
			_, err = f.Deregister(f.ctx, agent, id, nil)
			ok(t, err)
			register()
			_, err = f.ChangeAgent(f.ctx, agent, id, nil, drainChange)
			ok(t, err)
			_, err = f.Deregister(f.ctx, agent, id, nil)
			ok(t, err)
			register()
			if got := f.auditEntriesAfter(t, seq); len(got) != 0 {
				t.Errorf("%s: the agent wrote %q", id, got)
			}

			f.mustSubmit(t, picket.TaskSpec{})
			held, err := f.Acquire(f.ctx, agent, picket.AcquireRequest{AgentID: id})
			ok(t, err)
			if len(held) != 1 {
				t.Fatalf("leased %+v", held)
			}
			seq = f.mustLastSeq(t)
			_, err = f.CommandAgent(f.ctx, person, id, picket.AgentCommand{Command: picket.CommandPing})
			ok(t, err)
			_, err = f.ChangeAgent(f.ctx, person, id, nil, drainChange)
			ok(t, err)
			_, err = f.Deregister(f.ctx, person, id, nil)
			ok(t, err)
			want := []string{"agent.command by key_owner", "agent.lifecycle by key_owner",
				"agent.lifecycle by key_owner", "lease.expired by key_owner"}
			if got := f.auditEntriesAfter(t, seq); !slices.Equal(got, want) {
				t.Errorf("%s: the audit log has %q, want %q", id, got, want)
			}
			_, err = f.Cancel(f.ctx, picket.Caller{Actor: "key_test"}, held[0].TaskID, "")
			ok(t, err)
		}
	})
}

// auditEntriesAfter is what the audit log has after a number, with who did it.
func (f *fixture) auditEntriesAfter(t *testing.T, seq int64) (out []string) {
	t.Helper()
	for _, ev := range f.auditLog(t) {
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
			task := f.mustSubmit(t, picket.TaskSpec{})
			f.acquireOne(t, picket.AcquireRequest{})
			ok(t, f.raw.ZRem(f.ctx, "pk:{default}:deadlines", task.TaskID).Err())
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
			ok(t, f.InspectNext(f.ctx, 1000))
		}
		if got := look(seq); len(got) != 0 {
			t.Errorf("of the reaper the audit log has %q", got)
		}
		damage()
		seq = f.mustLastSeq(t)
		for req := (picket.InspectRequest{Repair: true}); ; {
			part, err := f.Inspect(f.ctx, picket.Caller{Actor: "key_test", Operator: true}, req)
			ok(t, err)
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
			f.mustSubmit(t, picket.TaskSpec{})
			f.acquireOne(t, picket.AcquireRequest{})
		}
		s, err := f.Stats(f.ctx)
		ok(t, err)
		all := f.auditLog(t)
		if s.AuditEvents != int64(len(all)) || s.OldestAudit != all[0].At || len(all) != 30 {
			t.Fatalf("of %d events %d are counted, the oldest of %v", len(all), s.AuditEvents, s.OldestAudit)
		}
		keep := picket.Retention{AuditEvents: 12}
		for range 3 { // 10 events a step
			_, err := f.ApplyRetention(f.ctx, keep, 10)
			ok(t, err)
		}
		left := f.auditLog(t)
		if len(left) != 12 || left[0].Seq != all[18].Seq {
			t.Fatalf("%d events are left", len(left))
		}
		_, err = f.Events(f.ctx, picket.EventQuery{Audit: true, After: all[0].Seq})
		refused(t, err, picket.CodeCursorExpired)
		page, err := f.Events(f.ctx, picket.EventQuery{Audit: true, After: all[17].Seq, Limit: 5})
		ok(t, err)
		if len(page.Events) != 5 || page.Next != left[4].ID {
			t.Errorf("read on with %+v, next %s", page.Events, page.Next)
		}
		back, err := f.Events(f.ctx, picket.EventQuery{Audit: true, NewestFirst: true, Limit: 3, Until: left[11].At})
		ok(t, err)
		if len(back.Events) != 3 || back.Events[0].Seq != left[11].Seq {
			t.Errorf("read back %+v", back.Events)
		}
		f.jumpStoreTime(t, 399*24*time.Hour)
		_, err = f.ApplyRetention(f.ctx, picket.Retention{}, 100)
		ok(t, err)
		if n := len(f.auditLog(t)); n != 12 {
			t.Errorf("%d events are left after 399 days", n)
		}
		f.jumpStoreTime(t, 2*24*time.Hour)
		_, err = f.ApplyRetention(f.ctx, picket.Retention{}, 100)
		ok(t, err)
		if n := len(f.auditLog(t)); n != 0 {
			t.Errorf("%d events are left after 401 days", n)
		}
	})
}
