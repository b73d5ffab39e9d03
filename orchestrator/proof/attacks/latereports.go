package attacks

import (
	"fmt"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// LateReportAttacks rewrite what a run said, at the end of its lease or after it.
var LateReportAttacks = []func(*Attacker){releaseAfterExit, launchAfterLease, changeWhatWasShown, lateWithARevokedKey,
	repairBeyondTheDay}

// releaseAfterExit names another last event when the exit is already reported.
func releaseAfterExit(h *Attacker) {
	held := h.Start()
	h.OK(h.RunExit(h.Ctx, held, picket.Exit{Class: picket.ExitCrash, LastEvent: kit.Ptr("last")}, ""))
	before := h.storedRun(held)
	_, err := h.Release(h.Ctx, held, picket.Exit{Class: picket.ExitCrash, LastEvent: kit.Ptr("later")})
	h.OK(err)
	if after := h.storedRun(held); after != before {
		h.Fatalf("a release changed the exit from %s to %s", before, after)
	}
	h.End(held)
}

// launchAfterLease announces another process for a run that has ended.
func launchAfterLease(h *Attacker) {
	held := h.Start()
	launch := func(path string) {
		h.OK(h.RunEvents(h.Ctx, held, []picket.RunEvent{{Type: picket.EventRunLaunched, WorkspacePath: path}}))
	}
	launch("/srv/first")
	before := h.storedRun(held)
	launch("/srv/corrected")
	corrected := h.storedRun(held)
	if corrected == before {
		h.Fatalf("a launch cannot be corrected while the run has its lease: %s", before)
	}
	_, err := h.Expire(h.Ctx, kit.Operator, held.TaskID, "test")
	h.OK(err)
	launch("/srv/other")
	if after := h.storedRun(held); after != corrected {
		h.Fatalf("a launch after the lease changed %s to %s", corrected, after)
	}
	h.End(held)
}

// changeWhatWasShown changes what a reviewer has seen, back and forth. Anyone who
// decides on an earlier digest is refused, and nothing changes after a decision.
func changeWhatWasShown(h *Attacker) {
	held, code := h.Start(), 1
	_, err := h.Complete(h.Ctx, held, picket.Completion{Output: picket.RawJSON(`"done"`)})
	h.OK(err)
	told := func() (n int) {
		page, err := h.Events(h.Ctx,
			picket.EventQuery{TaskID: held.TaskID, Types: []string{picket.EventEvidenceReplaced}})
		h.OK(err)
		return len(page.Events)
	}
	refused := func(digest string, want picket.Code) {
		h.Helper()
		if _, err := h.Approve(h.Ctx, kit.Operator, held.TaskID,
			picket.Decision{Digest: digest}); picket.CodeOf(err) != want {
			h.Fatalf("a decision on %q: %v, want %s", digest, err, want)
		}
	}
	var seen []string
	for _, change := range []func() error{
		func() error { return h.RunEvidence(h.Ctx, held, kit.EvidenceWithDiff("+good")) },
		func() error { return h.RunEvidence(h.Ctx, held, kit.EvidenceWithDiff("+bad")) },
		func() error { return h.RunEvidence(h.Ctx, held, kit.EvidenceWithDiff("+good")) },
		func() error { return h.RunExit(h.Ctx, held, picket.Exit{Class: picket.ExitSuccess}, "") },
		func() error { return h.RunExit(h.Ctx, held, picket.Exit{Class: picket.ExitCrash, Code: &code}, "") },
	} {
		h.OK(change())
		got, err := h.Task(h.Ctx, held.TaskID)
		h.OK(err)
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
	_, err = h.Approve(h.Ctx, kit.Operator, held.TaskID, picket.Decision{Digest: seen[len(seen)-1]})
	h.OK(err)
	if err := h.RunEvidence(h.Ctx, held, kit.EvidenceWithDiff("+bad")); picket.CodeOf(err) != picket.CodeTaskClosed {
		h.Fatalf("evidence after the decision: %v", err)
	}
	if err := h.RunExit(h.Ctx, held, picket.Exit{Class: picket.ExitSuccess},
		""); picket.CodeOf(err) != picket.CodeTaskClosed {
		h.Fatalf("another exit after the decision: %v", err)
	}
}

// lateWithARevokedKey reports what runs have done whose key was revoked.
func lateWithARevokedKey(h *Attacker) {
	k, err := h.CreateKey(h.Ctx, kit.Operator, picket.KeyRequest{Name: "leaked",
		Scopes: []picket.Scope{picket.ScopeAgent}})
	h.OK(err)
	task, err := h.Submit(h.Ctx, kit.Operator, picket.TaskSpec{Title: "a task"})
	h.OK(err)
	leases, err := h.Acquire(h.Ctx, picket.Caller{Actor: k.KeyID, Key: k.KeyID},
		picket.AcquireRequest{AgentID: "greedy"})
	h.OK(err)
	held, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	h.OK(err)
	h.OK(h.RunEvidence(h.Ctx, held, kit.EvidenceWithDiff("+good")))
	_, err = h.RunLog(h.Ctx, held, picket.LogWrite{Stream: "stdout", Data: []byte("all is well"), End: true})
	h.OK(err)
	if _, err := h.RunLog(h.Ctx, held,
		picket.LogWrite{
			Stream: "stdout",
			Offset: 11,
			Data:   []byte("more"),
		}); picket.CodeOf(err) != picket.CodeStateConflict {
		h.Fatalf("output after the end of its stream: %v", err)
	}
	_, err = h.Complete(h.Ctx, held, picket.Completion{Output: picket.RawJSON(`"done"`)})
	h.OK(err)
	_, err = h.RevokeKey(h.Ctx, kit.Operator, k.KeyID)
	h.OK(err)
	before, err := h.Task(h.Ctx, task.TaskID)
	h.OK(err)
	if err := h.RunEvidence(h.Ctx, held, kit.EvidenceWithDiff("+bad")); picket.CodeOf(err) != picket.CodeLeaseExpired {
		h.Fatalf("evidence of a run whose key was revoked: %v", err)
	}
	used, err := h.ReportUsage(h.Ctx, held,
		picket.UsageReport{Source: "claude", Session: "s", USD: kit.Worth(0, "0.01").USD})
	h.OK(err)
	if used.Charged != *kit.Worth(0, "0") || used.Unverified != *kit.Worth(0, "0.01") {
		h.Fatalf("usage of a run whose key was revoked: %+v", used)
	}
	after, err := h.Task(h.Ctx, task.TaskID)
	h.OK(err)
	if after.Review.Digest != before.Review.Digest {
		h.Fatalf("the digest is %s after %s", after.Review.Digest, before.Review.Digest)
	}
	h.End(held)
}

// repairBeyondTheDay rejects a task that has used more than it was charged for.
// The limit of the day does not cover a repair that counts this money as left.
func repairBeyondTheDay(h *Attacker) {
	day, err := h.Envelope(h.Ctx, "house")
	h.OK(err)
	task, err := h.Submit(h.Ctx, kit.Operator, picket.TaskSpec{Title: "a task", BudgetEnvelope: kit.Worth(0, "1")})
	h.OK(err)
	held := h.next()
	call, err := h.Reserve(h.Ctx, held, kit.PaidCall("1"))
	h.OK(err)
	_, err = h.ReportUsage(h.Ctx, held, picket.UsageReport{Source: "claude", Session: "s", USD: kit.USD("0.70")})
	h.OK(err)
	_, err = h.Settle(h.Ctx, kit.DoneSettlement(call, "0.20"))
	h.OK(err)
	_, err = h.Complete(h.Ctx, held, picket.Completion{})
	h.OK(err)
	left := day.Available.USD - kit.USD("0.90")
	repair := func(dollars budget.Money) (fix string, err error) {
		_, fix, err = h.Reject(h.Ctx, kit.Operator, task.TaskID, picket.Decision{Note: "again"},
			&picket.TaskSpec{Title: "a repair", BudgetEnvelope: &budget.Envelope{USD: dollars}})
		return fix, err
	}
	if _, err := repair(left + 1); picket.CodeOf(err) != picket.CodeBudgetExceeded {
		h.Fatalf("a repair with a nano-dollar more than the day has left: %v", err)
	}
	fix, err := repair(left)
	h.OK(err)
	if day, err = h.Envelope(h.Ctx, "house"); err != nil || day.Available.USD != 0 {
		h.Fatalf("the day has %v left: %v", day.Available.USD, err)
	}
	_, err = h.Cancel(h.Ctx, kit.Operator, fix, "")
	h.OK(err)
}

// storedRun is what the record of a run says of its launch and its exit.
func (h *Attacker) storedRun(held picket.LeaseCredential) string {
	h.Helper()
	got, err := h.Raw.HMGet(h.Ctx, h.Prefix+"run:"+held.RunID, "launched", "workspace", "exited", "exited_at",
		"last_event").Result()
	h.OK(err)
	return fmt.Sprint(got...)
}
