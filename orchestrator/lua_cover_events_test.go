package orchestrator_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// coverEvents takes the event budget of runs, their last events, and the audit log.
func coverEvents(t *testing.T, f *fixture) {
	task := f.mustSubmit(t, picket.TaskSpec{Role: "flood"})
	lease := func() picket.LeaseCredential {
		return f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "flooder", Role: "flood"}))
	}
	expire := func() {
		_, err := f.Expire(f.ctx, operator, task.TaskID, "test")
		ok(t, err)
	}
	send := func(h picket.LeaseCredential, kind, id string) {
		ok(t, f.RunEvents(f.ctx, h, []picket.RunEvent{{Type: kind, ID: id}}))
	}
	exit := func(h picket.LeaseCredential, code int, last *string) {
		ok(t, f.RunExit(f.ctx, h, picket.Exit{Class: picket.ExitKilled, Code: &code, LastEvent: last}, ""))
	}

	full := lease()
	f.floodHeartbeats(t, full, "tour", 300)
	for _, id := range []string{"t", "t", "another"} {
		send(full, picket.EventAgentTimedOut, id)
	}
	expire()
	exit(full, 1, ptr("pending"))
	exit(full, 2, ptr("pending")) // the budget is used up
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
	_, err := f.ReportUsage(f.ctx, stale, picket.UsageReport{Source: "claude", Tokens: 1})
	ok(t, err)
	send(seen, picket.EventAgentHeartbeat, "1")
	expire()
	exit(seen, 1, ptr("1"))
	send(seen, picket.EventRunLaunched, "")
	f.endBudgetMinute(t)

	last, err := f.LastSeq(f.ctx)
	ok(t, err)
	row := &redis.XAddArgs{
		Stream: "pk:{default}:audit",
		ID:     strconv.FormatInt(last, 10) + "-1",
		Values: []any{"type", "key.created", "at", "1", "now", "1"},
	}
	ok(t, f.raw.XAdd(f.ctx, row).Err())
	found, err := inspectAll(f.ctx, f.Engine, false)
	ok(t, err)
	if !slices.ContainsFunc(found, func(v picket.Violation) bool { return v.Kind == "audit_differs" }) {
		t.Errorf("found %+v", found)
	}
	ok(t, f.raw.XDel(f.ctx, row.Stream, row.ID).Err())
	_, err = f.ApplyRetention(f.ctx, picket.Retention{AuditEvents: 1}, 10)
	ok(t, err)
}
