package orchestrator_test

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A release after the exit does not open the time for late events again.
func TestAReleaseAfterTheExitOpensNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		kit.OK(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitCrash, Code: kit.Ptr(1),
			LastEvent: kit.Ptr("last")}, ""))
		for range 4 {
			f.JumpStoreTime(t, 10*time.Second)
			_, err := f.Renew(f.Ctx, h)
			kit.OK(t, err)
		}
		before := f.storedRun(t, h)
		_, err := f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitCrash, Code: kit.Ptr(1),
			LastEvent: kit.Ptr("later")})
		kit.OK(t, err)
		kit.OK(t, f.RunEvents(f.Ctx, h,
			[]picket.RunEvent{{Type: picket.EventAgentHeartbeat, ID: "1"},
				{Type: picket.EventAgentTimedOut, ID: "later"}}))
		after := f.storedRun(t, h)
		types, _ := f.countRunEvents(t, h.RunID)
		if types[picket.EventAgentHeartbeat]+types[picket.EventAgentTimedOut] != 0 ||
			before["exited_at"] != after["exited_at"] || after["last_event"] != "=last" {
			t.Errorf("the log has %v; exited at %s, then at %s; the last event is %q", types, before["exited_at"],
				after["exited_at"], after["last_event"])
		}
	})
}

// The adapter may correct what it said of its launch while the run has its
// lease. Afterwards the record of the run stays.
func TestALaunchIsNotRewrittenAfterTheLease(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		launch := func(h picket.LeaseCredential, containment, path string, exec bool) map[string]string {
			kit.OK(t, f.RunEvents(f.Ctx, h,
				[]picket.RunEvent{{
					Type:          picket.EventRunLaunched,
					Containment:   containment,
					WorkspacePath: path,
					Exec:          exec,
				}}))
			r := f.storedRun(t, h)
			return map[string]string{"containment": r["containment"], "workspace": r["workspace"], "exec": r["exec"]}
		}
		end := map[string]func(h picket.LeaseCredential) error{
			"superseded": func(h picket.LeaseCredential) error {
				_, err := f.Expire(f.Ctx, kit.Operator, h.TaskID, "test")
				return err
			},
			"completed": func(h picket.LeaseCredential) error {
				_, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`"done"`)})
				return err
			},
		}
		for name, end := range end {
			_, h := f.SubmitAndLease(t, picket.TaskSpec{})
			launch(h, picket.ContainmentCgroup, "/srv/first", true)
			corrected := launch(h, picket.ContainmentGroup, "/srv/second", false)
			if corrected["containment"] != picket.ContainmentGroup || corrected["workspace"] != "/srv/second" ||
				corrected["exec"] != "" {
				t.Errorf("%s: a correction while the run has its lease: %v", name, corrected)
			}
			kit.OK(t, end(h))
			later := launch(h, picket.ContainmentCgroup, "/srv/third", true)
			for field, was := range corrected {
				if later[field] != was {
					t.Errorf("%s: %s became %q, was %q", name, field, later[field], was)
				}
			}
			f.CancelAll(t)
		}
	})
}

// Evidence that was replaced by the same as before has been replaced all the same.
func TestTheDigestCountsReplacements(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		f.CompleteWithDiff(t, h, "+one")
		shown := f.ReviewDigest(t, task.TaskID)
		kit.OK(t, f.RunEvidence(f.Ctx, h, kit.EvidenceWithDiff("+two")))
		kit.OK(t, f.RunEvidence(f.Ctx, h, kit.EvidenceWithDiff("+one")))
		_, err := f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: shown})
		f.WantDigestRefusal(t, err, picket.CodeVersion, task.TaskID)
		if now := f.ReviewDigest(t, task.TaskID); picket.DigestChange(shown, now) != "the evidence changed" {
			t.Errorf("%s to %s: %s", shown, now, picket.DigestChange(shown, now))
		}
	})
}

// An earlier version kept evidence without its hash in the record of the run.
func TestEvidenceOfAnEarlierVersionNeedsItsDigest(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		f.CompleteWithDiff(t, h, "+one")
		run := "pk:{default}:run:" + h.RunID
		kit.OK(t, f.Raw.HDel(f.Ctx, run, "evidence").Err())
		_, err := f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{})
		f.WantDigestRefusal(t, err, picket.CodePreconditionRequired, task.TaskID)
		shown := f.ReviewDigest(t, task.TaskID)
		kit.OK(t, f.RunEvidence(f.Ctx, h, kit.EvidenceWithDiff("+two")))
		kit.OK(t, f.Raw.HDel(f.Ctx, run, "evidence", "replaced").Err())
		_, err = f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: shown})
		f.WantDigestRefusal(t, err, picket.CodeVersion, task.TaskID)
		_, err = f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: f.ReviewDigest(t, task.TaskID)})
		kit.OK(t, err)
	})
}

// The exit of a run is part of what was decided on. Only one that was never
// reported is still taken, and sets free anyone who waits for the process.
func TestTheExitIsFrozenByTheDecision(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		f.CompleteWithDiff(t, h, "+one")
		exit := func(code int) error {
			return f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitCrash, Code: &code}, picket.ContainmentGroup)
		}
		_, err := f.Approve(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Digest: f.ReviewDigest(t, task.TaskID)})
		kit.OK(t, err)
		kit.OK(t, exit(1))
		before, events := f.storedRun(t, h), len(f.allEvents(t))
		kit.Refused(t, exit(2), picket.CodeTaskClosed)
		kit.OK(t, exit(1)) // a repeat whose answer was lost
		after := f.storedRun(t, h)
		for _, field := range []string{"code", "signal", "containment", "exits", "exited"} {
			if before[field] != after[field] || after["exited"] != "1" {
				t.Errorf("%s was %q and is %q", field, before[field], after[field])
			}
		}
		if n := len(f.allEvents(t)); n != events {
			t.Errorf("%d events more", n-events)
		}
	})
}

// A superseded run learns nothing about the money of the present holder.
func TestASupersededRunIsNotToldWhatIsFree(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, old := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		_, err := f.Release(f.Ctx, old, picket.Exit{Class: picket.ExitReleased})
		kit.OK(t, err)
		holder := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		u := picket.UsageReport{Source: "claude", Session: "s", Tokens: 10, USD: kit.USD("0.10")}
		got, err := f.ReportUsage(f.Ctx, old, u)
		kit.OK(t, err)
		if !got.Available.IsZero() || got.Overrun || got.Unverified != *kit.Worth(10, "0.10") {
			t.Errorf("a superseded run is told %+v", got)
		}
		got, err = f.ReportUsage(f.Ctx, holder, u)
		kit.OK(t, err)
		if got.Available != *kit.Worth(990, "0.90") {
			t.Errorf("the holder is told %+v", got)
		}
	})
}

// storedRun is the record of a run as it is stored.
func (f *fixture) storedRun(t *testing.T, h picket.LeaseCredential) map[string]string {
	t.Helper()
	fields, err := f.Raw.HGetAll(f.Ctx, "pk:{default}:run:"+h.RunID).Result()
	kit.OK(t, err)
	return fields
}
