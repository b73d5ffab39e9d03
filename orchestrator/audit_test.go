package orchestrator_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// followAudit holds what the audit log has after a number against the events of
// the step.
func (x *machine) followAudit(after int64, events []picket.Event) {
	x.Helper()
	want := slices.DeleteFunc(slices.Clone(events), func(ev picket.Event) bool { return !ev.Audited() })
	page, err := x.e.Events(x.ctx, picket.EventQuery{After: after, Limit: 1000, Audit: true})
	x.ok(err)
	if len(page.Events)+len(want) > 0 && !reflect.DeepEqual(page.Events, want) {
		x.Fatalf("the audit log has\n%+v\nwant\n%+v", page.Events, want)
	}
}

// The scripts and picket.Audited have the same table.
func TestAuditedTypesAreOneTable(t *testing.T) {
	text, err := os.ReadFile("lua/_prelude.lua")
	ok(t, err)
	table := regexp.MustCompile(`(?s)local AUDITED = \{(.*?)\n\}`).FindSubmatch(text)
	if table == nil {
		t.Fatal("_prelude.lua has no table AUDITED")
	}
	got := map[string]picket.AuditRule{}
	for _, m := range regexp.MustCompile(`\['([^']+)'\] = '(\w+)'`).FindAllSubmatch(table[1], -1) {
		got[string(m[1])] = picket.AuditRule(m[2])
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

// audit reads the whole audit log.
func (f *fixture) audit(t *testing.T, types ...string) []picket.Event {
	t.Helper()
	page, err := f.Events(f.ctx, picket.EventQuery{Audit: true, Limit: 1000, Types: types})
	ok(t, err)
	return page.Events
}

// A holder and a superseded run flood the log, by events and by every other verb,
// until retention has deleted all that was there before. The audit log still has
// the keys and the decisions, and the flood was counted.
func TestAFloodDisplacesNothingInTheAuditLog(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		key, err := f.CreateKey(f.ctx, operator, picket.KeyRequest{Name: "k", Scopes: []picket.Scope{picket.ScopeAgent}})
		ok(t, err)
		reviewed := f.submit(t, picket.TaskSpec{})
		_, err = f.Complete(f.ctx, f.held(t, f.lease(t, picket.AcquireRequest{})), picket.Completion{Output: picket.RawJSON(`1`)})
		ok(t, err)
		_, err = f.Approve(f.ctx, operator, reviewed.TaskID, picket.Decision{Note: "good"})
		ok(t, err)
		last, err := f.LastSeq(f.ctx)
		ok(t, err)

		task := f.submit(t, picket.TaskSpec{})
		old := f.held(t, f.lease(t, picket.AcquireRequest{}))
		_, err = f.Expire(f.ctx, operator, task.TaskID, "test")
		ok(t, err)
		holder := f.held(t, f.lease(t, picket.AcquireRequest{}))
		before := len(f.audit(t))
		f.flood(t, old, "old", 500)
		f.flood(t, holder, "new", 2000)
		for i := range 20 { // reports are bounded elsewhere, not in the log
			_, err := f.Report(f.ctx, holder, fmt.Sprint(i), picket.Progress{Summary: fmt.Sprint(i)})
			ok(t, err)
		}
		ok(t, f.RunExit(f.ctx, old, picket.Exit{Class: picket.ExitCrash}, ""))
		f.overdue(t)
		for range 20 {
			n, err := f.Retain(f.ctx, picket.Retention{MaxEvents: 100}, 100)
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
		audit := f.audit(t)
		if len(audit) != before {
			t.Errorf("the flood wrote to the audit log: %+v", audit[before:])
		}
		for _, want := range []string{picket.EventKeyCreated, picket.EventTaskSubmitted, picket.EventTaskApproved, picket.EventLeaseExpired} {
			if !slices.ContainsFunc(audit, func(ev picket.Event) bool { return ev.Type == want && ev.Actor == operator.Actor }) {
				t.Errorf("the audit log has no %s", want)
			}
		}
		if only := f.audit(t, picket.EventKeyCreated); len(only) != 1 || !regexp.MustCompile(key.KeyID).Match(only[0].Data) {
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
	both(t, func(t *testing.T, f *fixture) {
		f.submit(t, picket.TaskSpec{})
		before := len(f.audit(t))
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
		if audit := f.audit(t); len(audit) != before {
			t.Errorf("the agent wrote %+v", audit[before:])
		}
	})
}

// The audit log is kept by number and by age, whatever the log keeps, and a
// position that was deleted is told.
func TestAuditRetention(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		for range 30 {
			f.submit(t, picket.TaskSpec{})
			f.lease(t, picket.AcquireRequest{})
		}
		s, err := f.Stats(f.ctx)
		ok(t, err)
		all := f.audit(t)
		if s.AuditEvents != int64(len(all)) || s.OldestAudit != all[0].At || len(all) != 30 {
			t.Fatalf("of %d events %d are counted, the oldest of %v", len(all), s.AuditEvents, s.OldestAudit)
		}
		keep := picket.Retention{AuditEvents: 12}
		for range 3 { // 10 events a step
			_, err := f.Retain(f.ctx, keep, 10)
			ok(t, err)
		}
		left := f.audit(t)
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
		back, err := f.Events(f.ctx, picket.EventQuery{Audit: true, Back: true, Limit: 3, Until: left[11].At})
		ok(t, err)
		if len(back.Events) != 3 || back.Events[0].Seq != left[11].Seq {
			t.Errorf("read back %+v", back.Events)
		}
		f.jump(t, 399*24*time.Hour)
		_, err = f.Retain(f.ctx, picket.Retention{}, 100)
		ok(t, err)
		if n := len(f.audit(t)); n != 12 {
			t.Errorf("%d events are left after 399 days", n)
		}
		f.jump(t, 2*24*time.Hour)
		_, err = f.Retain(f.ctx, picket.Retention{}, 100)
		ok(t, err)
		if n := len(f.audit(t)); n != 0 {
			t.Errorf("%d events are left after 401 days", n)
		}
	})
}
