package orchestrator_test

import (
	"fmt"

	"github.com/picket-dev/picket"
)

// lateAttacks rewrite what a run said of its process, at the end of its lease
// or after it.
var lateAttacks = []func(*hoarder){releaseAfterExit, launchAfterLease}

// releaseAfterExit names another last event when the exit is already reported.
func releaseAfterExit(h *hoarder) {
	held := h.start()
	h.ok(h.RunExit(h.ctx, held, picket.Exit{Class: picket.ExitCrash, LastEvent: ptr("last")}, ""))
	before := h.said(held)
	_, err := h.Release(h.ctx, held, picket.Exit{Class: picket.ExitCrash, LastEvent: ptr("later")})
	h.ok(err)
	if after := h.said(held); after != before {
		h.Fatalf("a release changed the exit from %s to %s", before, after)
	}
	h.end(held)
}

// launchAfterLease announces another process for a run that has ended.
func launchAfterLease(h *hoarder) {
	held := h.start()
	launch := func(path string) {
		h.ok(h.RunEvents(h.ctx, held, []picket.RunEvent{{Type: picket.EventRunLaunched, WorkspacePath: path}}))
	}
	launch("/srv/first")
	before := h.said(held)
	launch("/srv/corrected")
	corrected := h.said(held)
	if corrected == before {
		h.Fatalf("a launch cannot be corrected while the run has its lease: %s", before)
	}
	_, err := h.Expire(h.ctx, operator, held.TaskID, "test")
	h.ok(err)
	launch("/srv/other")
	if after := h.said(held); after != corrected {
		h.Fatalf("a launch after the lease changed %s to %s", corrected, after)
	}
	h.end(held)
}

// said is what the record of a run says of its launch and its exit.
func (h *hoarder) said(held picket.Held) string {
	h.Helper()
	got, err := h.raw.HMGet(h.ctx, h.prefix+"run:"+held.RunID, "launched", "workspace", "exited", "exited_at", "last_event").Result()
	h.ok(err)
	return fmt.Sprint(got...)
}

// lateMutants are the planted bugs of what is reported late.
var lateMutants = []mutant{
	{"a release rewrites the exit", []edit{{"_eventbudget", "if pick(r[1], 'exited').exited == '1' then return end", "if r.exited == '1' then return end"}}},
	{"a launch is rewritten after the lease", []edit{{"run_events", "(r.launched ~= '1' or r.state == 'running') and ", ""}}},
	{"a launch is never corrected", []edit{{"run_events", "r.launched ~= '1' or r.state == 'running'", "r.launched ~= '1'"}}},
}
