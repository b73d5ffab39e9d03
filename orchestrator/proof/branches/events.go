package branches

import (
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverEvents takes the event budget of runs, their last events, and the audit log.
func coverEvents(t *testing.T, f *fixture) {
	labels := map[string]string{} // one more than an event carries
	for i := range 9 {
		labels["l"+strconv.Itoa(i)] = "v"
	}
	task := f.MustSubmit(t, picket.TaskSpec{Role: "flood", Labels: labels})
	lease := func() picket.LeaseCredential {
		return f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "flooder", Role: "flood"}))
	}
	expire := func() {
		_, err := f.Expire(f.Ctx, kit.Operator, task.TaskID, "test")
		kit.OK(t, err)
	}
	send := func(h picket.LeaseCredential, kind, id string) {
		kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: kind, ID: id}}))
	}
	exit := func(h picket.LeaseCredential, code int, last *string) {
		kit.OK(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitKilled, Code: &code, LastEvent: last}, ""))
	}

	full := lease()
	warning := picket.RunEvent{Type: picket.EventAgentTimeoutWarning, ID: "w", Containment: "group"}
	kit.OK(t, f.RunEvents(f.Ctx, full, []picket.RunEvent{warning}))
	f.FloodHeartbeats(t, full, "worker", 300)
	for _, id := range []string{"t", "t", "another"} {
		send(full, picket.EventAgentTimedOut, id)
	}
	expire()
	exit(full, 1, kit.Ptr("pending"))
	exit(full, 2, kit.Ptr("pending")) // the budget is used up
	send(full, picket.EventAgentHeartbeat, "pending")
	send(full, picket.EventAgentHeartbeat, "later")

	unnamed := lease()
	expire()
	exit(unnamed, 1, nil)
	exit(unnamed, 2, nil)
	send(unnamed, picket.EventAgentHeartbeat, "1")
	stale := lease()
	expire()
	seen := lease()
	send(stale, picket.EventAgentHeartbeat, "1")
	_, err := f.ReportUsage(f.Ctx, stale, picket.UsageReport{Source: "claude", Tokens: 1})
	kit.OK(t, err)
	send(seen, picket.EventAgentHeartbeat, "1")
	expire()
	exit(seen, 1, kit.Ptr("1"))
	send(seen, picket.EventRunLaunched, "")
	f.EndBudgetMinute(t)

	last, err := f.LastSeq(f.Ctx)
	kit.OK(t, err)
	row := &redis.XAddArgs{
		Stream: "pk:{default}:audit",
		ID:     strconv.FormatInt(last, 10) + "-1",
		Values: []any{"type", "key.created", "at", "1", "now", "1"},
	}
	kit.OK(t, f.Raw.XAdd(f.Ctx, row).Err())
	found, err := kit.InspectAll(f.Ctx, f.Engine, false)
	kit.OK(t, err)
	if !slices.ContainsFunc(found, func(v picket.Violation) bool { return v.Kind == "audit_differs" }) {
		t.Errorf("found %+v", found)
	}
	kit.OK(t, f.Raw.XDel(f.Ctx, row.Stream, row.ID).Err())
	_, err = f.ApplyRetention(f.Ctx, picket.Retention{AuditEvents: 1}, 10)
	kit.OK(t, err)
}

// coverEntries takes the forms of the event log: entries of an earlier version, gaps that adoptions
// leave, noted and not, and more of them than are noted.
func coverEntries(t *testing.T, f *fixture) {
	retain := func(most int64) {
		t.Helper()
		_, err := f.ApplyRetention(f.Ctx, picket.Retention{MaxEvents: most}, 10)
		kit.OK(t, err)
	}
	last, err := f.LastSeq(f.Ctx)
	kit.OK(t, err)
	old := kit.OldEvent(int(last) + 1)
	kit.OK(t, f.Raw.XAdd(f.Ctx, old).Err())
	kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "seq", last+1).Err())
	old.Stream = "pk:{default}:audit"
	kit.OK(t, f.Raw.XAdd(f.Ctx, old).Err())
	found, err := kit.InspectAll(f.Ctx, f.Engine, false)
	kit.OK(t, err)
	for _, v := range found {
		if v.Kind == "audit_differs" && v.Subject == strconv.FormatInt(last+1, 10) {
			t.Errorf("found %+v", v)
		}
	}
	kit.OK(t, f.Raw.HDel(f.Ctx, kit.Meta, "unnoted").Err())
	retain(1e6)
	retain(3)
	for range 22 {
		f.AdoptOnNewServer(t)
	}
	for most := int64(23); most > 0; most-- {
		retain(most)
	}
}
