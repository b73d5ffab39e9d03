package orchestrator_test

import (
	"fmt"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
)

// lateReportAttacks rewrite what a run said, at the end of its lease or after it.
var lateReportAttacks = []func(*attacker){releaseAfterExit, launchAfterLease, changeWhatWasShown, lateWithARevokedKey,
	repairBeyondTheDay}

// releaseAfterExit names another last event when the exit is already reported.
func releaseAfterExit(h *attacker) {
	held := h.start()
	h.ok(h.RunExit(h.ctx, held, picket.Exit{Class: picket.ExitCrash, LastEvent: ptr("last")}, ""))
	before := h.storedRun(held)
	_, err := h.Release(h.ctx, held, picket.Exit{Class: picket.ExitCrash, LastEvent: ptr("later")})
	h.ok(err)
	if after := h.storedRun(held); after != before {
		h.Fatalf("a release changed the exit from %s to %s", before, after)
	}
	h.end(held)
}

// launchAfterLease announces another process for a run that has ended.
func launchAfterLease(h *attacker) {
	held := h.start()
	launch := func(path string) {
		h.ok(h.RunEvents(h.ctx, held, []picket.RunEvent{{Type: picket.EventRunLaunched, WorkspacePath: path}}))
	}
	launch("/srv/first")
	before := h.storedRun(held)
	launch("/srv/corrected")
	corrected := h.storedRun(held)
	if corrected == before {
		h.Fatalf("a launch cannot be corrected while the run has its lease: %s", before)
	}
	_, err := h.Expire(h.ctx, operator, held.TaskID, "test")
	h.ok(err)
	launch("/srv/other")
	if after := h.storedRun(held); after != corrected {
		h.Fatalf("a launch after the lease changed %s to %s", corrected, after)
	}
	h.end(held)
}

// changeWhatWasShown changes what a reviewer has seen, back and forth. Anyone who
// decides on an earlier digest is refused, and nothing changes after a decision.
func changeWhatWasShown(h *attacker) {
	held, code := h.start(), 1
	_, err := h.Complete(h.ctx, held, picket.Completion{Output: picket.RawJSON(`"done"`)})
	h.ok(err)
	told := func() (n int) {
		page, err := h.Events(h.ctx,
			picket.EventQuery{TaskID: held.TaskID, Types: []string{picket.EventEvidenceReplaced}})
		h.ok(err)
		return len(page.Events)
	}
	refused := func(digest string, want picket.Code) {
		h.Helper()
		if _, err := h.Approve(h.ctx, operator, held.TaskID,
			picket.Decision{Digest: digest}); picket.CodeOf(err) != want {
			h.Fatalf("a decision on %q: %v, want %s", digest, err, want)
		}
	}
	var seen []string
	for _, change := range []func() error{
		func() error { return h.RunEvidence(h.ctx, held, evidenceWithDiff("+good")) },
		func() error { return h.RunEvidence(h.ctx, held, evidenceWithDiff("+bad")) },
		func() error { return h.RunEvidence(h.ctx, held, evidenceWithDiff("+good")) },
		func() error { return h.RunExit(h.ctx, held, picket.Exit{Class: picket.ExitSuccess}, "") },
		func() error { return h.RunExit(h.ctx, held, picket.Exit{Class: picket.ExitCrash, Code: &code}, "") },
	} {
		h.ok(change())
		got, err := h.Task(h.ctx, held.TaskID)
		h.ok(err)
		refused("", picket.CodePreconditionRequired)
		for _, digest := range seen {
			refused(digest, picket.CodeVersion)
		}
		if changes := strings.Split(got.Review.Digest, "-")[1]; len(changes) != 64 {
			h.Fatalf("%s is not an SHA-256 of the evidence", changes)
		}
		seen = append(seen, got.Review.Digest)
	}
	if n := told(); n != 2 {
		h.Fatalf("two replacements and %d events", n)
	}
	_, err = h.Approve(h.ctx, operator, held.TaskID, picket.Decision{Digest: seen[len(seen)-1]})
	h.ok(err)
	if err := h.RunEvidence(h.ctx, held, evidenceWithDiff("+bad")); picket.CodeOf(err) != picket.CodeTaskClosed {
		h.Fatalf("evidence after the decision: %v", err)
	}
	if err := h.RunExit(h.ctx, held, picket.Exit{Class: picket.ExitSuccess},
		""); picket.CodeOf(err) != picket.CodeTaskClosed {
		h.Fatalf("another exit after the decision: %v", err)
	}
}

// lateWithARevokedKey reports what runs have done whose key was revoked.
func lateWithARevokedKey(h *attacker) {
	k, err := h.CreateKey(h.ctx, operator, picket.KeyRequest{Name: "leaked", Scopes: []picket.Scope{picket.ScopeAgent}})
	h.ok(err)
	task, err := h.Submit(h.ctx, operator, picket.TaskSpec{Title: "a task"})
	h.ok(err)
	leases, err := h.Acquire(h.ctx, picket.Caller{Actor: k.KeyID, Key: k.KeyID},
		picket.AcquireRequest{AgentID: "greedy"})
	h.ok(err)
	held, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	h.ok(err)
	h.ok(h.RunEvidence(h.ctx, held, evidenceWithDiff("+good")))
	_, err = h.RunLog(h.ctx, held, picket.LogWrite{Stream: "stdout", Data: []byte("all is well"), End: true})
	h.ok(err)
	if _, err := h.RunLog(h.ctx, held,
		picket.LogWrite{
			Stream: "stdout",
			Offset: 11,
			Data:   []byte("more"),
		}); picket.CodeOf(err) != picket.CodeStateConflict {
		h.Fatalf("output after the end of its stream: %v", err)
	}
	_, err = h.Complete(h.ctx, held, picket.Completion{Output: picket.RawJSON(`"done"`)})
	h.ok(err)
	_, err = h.RevokeKey(h.ctx, operator, k.KeyID)
	h.ok(err)
	before, err := h.Task(h.ctx, task.TaskID)
	h.ok(err)
	if err := h.RunEvidence(h.ctx, held, evidenceWithDiff("+bad")); picket.CodeOf(err) != picket.CodeLeaseExpired {
		h.Fatalf("evidence of a run whose key was revoked: %v", err)
	}
	used, err := h.ReportUsage(h.ctx, held,
		picket.UsageReport{Source: "claude", Session: "s", USD: worth(0, "0.01").USD})
	h.ok(err)
	if used.Charged != *worth(0, "0") || used.Unverified != *worth(0, "0.01") {
		h.Fatalf("usage of a run whose key was revoked: %+v", used)
	}
	after, err := h.Task(h.ctx, task.TaskID)
	h.ok(err)
	if after.Review.Digest != before.Review.Digest {
		h.Fatalf("the digest is %s after %s", after.Review.Digest, before.Review.Digest)
	}
	h.end(held)
}

// repairBeyondTheDay rejects a task that has used more than it was charged for.
// The limit of the day does not cover a repair that counts this money as left.
func repairBeyondTheDay(h *attacker) {
	day, err := h.Envelope(h.ctx, "house")
	h.ok(err)
	task, err := h.Submit(h.ctx, operator, picket.TaskSpec{Title: "a task", BudgetEnvelope: worth(0, "1")})
	h.ok(err)
	held := h.next()
	call, err := h.Reserve(h.ctx, held, paidCall("1"))
	h.ok(err)
	_, err = h.ReportUsage(h.ctx, held, picket.UsageReport{Source: "claude", Session: "s", USD: usd("0.70")})
	h.ok(err)
	_, err = h.Settle(h.ctx, doneSettlement(call, "0.20"))
	h.ok(err)
	_, err = h.Complete(h.ctx, held, picket.Completion{})
	h.ok(err)
	left := day.Available.USD - usd("0.90")
	repair := func(dollars budget.Money) (fix string, err error) {
		_, fix, err = h.Reject(h.ctx, operator, task.TaskID, picket.Decision{Note: "again"},
			&picket.TaskSpec{Title: "a repair", BudgetEnvelope: &budget.Envelope{USD: dollars}})
		return fix, err
	}
	if _, err := repair(left + 1); picket.CodeOf(err) != picket.CodeBudgetExceeded {
		h.Fatalf("a repair with a nano-dollar more than the day has left: %v", err)
	}
	fix, err := repair(left)
	h.ok(err)
	if day, err = h.Envelope(h.ctx, "house"); err != nil || day.Available.USD != 0 {
		h.Fatalf("the day has %v left: %v", day.Available.USD, err)
	}
	_, err = h.Cancel(h.ctx, operator, fix, "")
	h.ok(err)
}

// storedRun is what the record of a run says of its launch and its exit.
func (h *attacker) storedRun(held picket.LeaseCredential) string {
	h.Helper()
	got, err := h.raw.HMGet(h.ctx, h.prefix+"run:"+held.RunID, "launched", "workspace", "exited", "exited_at",
		"last_event").Result()
	h.ok(err)
	return fmt.Sprint(got...)
}

// lateReportMutants are the planted bugs of what is reported late, and of what a
// reviewer was shown.
var lateReportMutants = []mutant{
	{"a release rewrites the exit",
		[]edit{{"_eventbudget", "if pick(r[1], 'exited').exited == '1' then return end",
			"if r.exited == '1' then return end"}}},
	{"a launch is rewritten after the lease",
		[]edit{{"run_events", "(r.launched ~= '1' or r.state == 'running') and ", ""}}},
	{"a revoked key hands in evidence", []edit{{"run_evidence", "if key_ended_leases(r.key) then", "if false then"}}},
	{"output follows the end of its stream",
		[]edit{{"run_log", "if r[stream .. '_closed'] == '1' then", "if false then"}}},
	{"a revoked key is charged", []edit{{"usage", "key_ended_leases(r.key) and 'key_revoked'", "false"}}},
	{"evidence needs no digest",
		[]edit{{"_review_digest", "presented == '' and not evidence then", "presented == '' then"}}},
	{"the digest leaves out the evidence", []edit{{"run_evidence", "put(r, 'evidence', digest)", ""}}},
	{"the digest leaves out the exit", []edit{{"_review_digest", " .. '-' .. (r[3] or '0')", " .. '-0'"}}},
	{"replaced evidence is not told",
		[]edit{{"run_evidence", "emit('run.evidence_replaced',", "type('run.evidence_replaced',"}}},
	{"the digest leaves out replacements", []edit{{"_review_digest", " .. '-' .. (r[4] or '0')", " .. '-0'"}}},
	{"the exit changes after the decision", []edit{{"run_exit", "if decided then", "if false then"}}},
	{"a repair counts on money that was used",
		[]edit{{"_money", "have_u + num(back.available_u) - used_u", "have_u + num(back.available_u)"}}},
	{"a launch is never corrected",
		[]edit{{"run_events", "r.launched ~= '1' or r.state == 'running'", "r.launched ~= '1'"}}},
}
