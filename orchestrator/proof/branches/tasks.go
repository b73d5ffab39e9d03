package branches

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverAll takes every branch of every script once. It asserts little: the other
// tests say what each has to do.
func coverAll(t *testing.T, f *fixture) {
	for _, stop := range []func(*testing.T, *fixture){coverClock, coverSubmit, coverGrant, coverFence, coverRunEnds,
		coverProcessWait, coverHandoffs, coverNotices, coverReminders,
		coverReviews, coverDigests, coverQueues, coverDecided, coverApproveAll, coverPause, coverEvidence,
		coverBundles, coverReads,
		coverKeys,
		coverRevokedKeys, coverRunKeys, coverLogins, coverRetention, coverWaits,
		coverPartialRows, coverAgents, coverDrains, coverAgentDeaths, coverAgentAnswers, coverAgentLists,
		coverKeptRetries, coverFindAgents, coverMessages, coverPolicies, coverOwnedNames,
		coverSessionHealth, coverSessions, coverCapabilities, coverWakes,
		coverInspect,
		coverAdvance,
		coverBatches,
		coverCalls, coverUsage, coverTopUps, coverTree, coverTreeEnds, coverExec, coverWebhooks, coverEvents,
		coverDamagedEnvelopes, coverWrites, coverQuotas, coverSessionMoney, coverClientTasks, coverPushes,
		coverAdoption, coverEntries} {
		stop(t, f)
	}
}

func coverClock(t *testing.T, f *fixture) {
	for _, ms := range []int64{5000, -5000, -150} { // the clock was ahead, is ahead, went on a little
		kit.OK(t, f.Raw.HIncrBy(f.Ctx, kit.Meta, "raw", ms).Err())
		_, err := f.Stats(f.Ctx)
		kit.OK(t, err)
	}
}

func coverSubmit(t *testing.T, f *fixture) {
	spec := picket.TaskSpec{
		Title:  "t",
		Role:   "coder",
		Needs:  []string{"go"},
		Labels: map[string]string{"team": "a"},
		Input:  picket.RawJSON(`1`),
	}
	f.CallTwice(t, func() error { _, err := f.Submit(f.Ctx, kit.Idempotent("1"), spec); return err })
	other := kit.Idempotent("1")
	other.Idempotency.Body = strings.Repeat("c", 64)
	_, err := f.Submit(f.Ctx, other, spec)
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "t", Fixes: kit.NoTask})
	kit.Refused(t, err, picket.CodeNotFound)
	first := f.MustSubmit(t, picket.TaskSpec{
		NotBefore: picket.InstantOf(time.Now().Add(time.Hour)),
		Priority:  kit.Ptr(1),
		Trace:     &picket.Trace{Parent: "00-1-2-00"},
	})
	f.MustSubmit(t, picket.TaskSpec{NotBefore: picket.InstantOf(time.Now().Add(-time.Hour)), Fixes: first.TaskID})
	f.MustSubmit(t, picket.TaskSpec{Priority: kit.Ptr(9)})

	f.fillLanes(t)
	_, err = f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "t", Role: "new"})
	kit.Refused(t, err, picket.CodeTooManyLanes)
	f.removeFillerLanes(t)
}

// fillLanes fills the list of lanes with names nobody covers.
func (f *fixture) fillLanes(t *testing.T) {
	t.Helper()
	for at := 0; at < 1024; at += 64 { // small batches: the in-process pipe holds nothing
		var z []redis.Z
		for i := range 64 {
			z = append(z, redis.Z{Score: 1e15, Member: fmt.Sprintf("agent:none-%d", at+i)})
		}
		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:lanes", z...).Err())
	}
}

func (f *fixture) removeFillerLanes(t *testing.T) {
	t.Helper()
	kit.OK(t, f.Raw.ZRemRangeByScore(f.Ctx, "pk:{default}:lanes", "1000000000000000", "1000000000000000").Err())
}

func coverGrant(t *testing.T, f *fixture) {
	for i := range 10 { // ten lanes that this agent does not cover come first
		f.MustSubmit(t, picket.TaskSpec{Priority: kit.Ptr(9), Agent: fmt.Sprintf("z%d", i)})
	}
	f.MustSubmit(t, picket.TaskSpec{Priority: kit.Ptr(8), Role: "coder", Needs: []string{"py"}})
	f.MustSubmit(t, picket.TaskSpec{Priority: kit.Ptr(7), Agent: "a1"})
	f.MustSubmit(t, picket.TaskSpec{Priority: kit.Ptr(7), Role: "coder", Needs: []string{"go"}})
	req := picket.AcquireRequest{
		AgentID:       "a1",
		Role:          "coder",
		Capabilities:  []string{"go"},
		Max:           kit.Ptr(100),
		WorkspaceRoot: "/work",
	}
	f.CallTwice(t, func() error { _, err := f.Acquire(f.Ctx, kit.Idempotent("2"), req); return err })
	other := kit.Idempotent("2")
	other.Idempotency.Body = strings.Repeat("c", 64)
	_, err := f.Acquire(f.Ctx, other, req)
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	f.JumpStoreTime(t, time.Minute)
	_, err = f.Acquire(f.Ctx, kit.Idempotent("2"), req)
	kit.Refused(t, err, picket.CodeLeaseExpired)
	_, err = f.ExpireDue(f.Ctx, 100) // unconfirmed: undelivered
	kit.OK(t, err)
	none, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "nobody", Role: "nothing"})
	kit.OK(t, err)
	_ = none
	f.CancelAll(t)
	// Waiting is cut short by the caller, who is forgotten.
	ctx, cancel := context.WithTimeout(f.Ctx, 50*time.Millisecond)
	defer cancel()
	_, err = f.Acquire(ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1", WaitSeconds: kit.Ptr(20)})
	if err == nil {
		t.Fatal("acquired from an empty store")
	}
}

func coverFence(t *testing.T, f *fixture) {
	task, h := f.SubmitAndLease(t, picket.TaskSpec{})
	renew := func(change func(h *picket.LeaseCredential), code picket.Code) {
		t.Helper()
		other := h
		change(&other)
		_, err := f.Renew(f.Ctx, other)
		kit.Refused(t, err, code)
	}
	renew(func(h *picket.LeaseCredential) { h.Secret = strings.Repeat("0", 64) }, picket.CodeLeaseExpired)
	renew(func(h *picket.LeaseCredential) { h.RunID = kit.NoRun }, picket.CodeLeaseExpired)
	renew(func(h *picket.LeaseCredential) { h.TaskID = kit.NoTask }, picket.CodeTaskMismatch)
	renew(func(h *picket.LeaseCredential) { h.Fence = 9 }, picket.CodeUnknownFence)
	_, err := f.RenewToken(f.Ctx, "another key", picket.LeaseToRenew{
		LeaseToken: f.Sealer.LeaseToken(f.Namespace(), h.TaskID, h.RunID)})
	kit.Refused(t, err, picket.CodeUnauthenticated)
	h.Fence = 1
	f.CallTwice(t, func() error { _, err := f.Renew(f.Ctx, h); return err })
	f.JumpStoreTime(t, 10*time.Minute)
	renew(func(*picket.LeaseCredential) {}, picket.CodeLeaseExpired) // by time
	_, _, err = f.Watch(f.Ctx, h, time.Millisecond)
	kit.OK(t, err)
	_, err = f.ExpireDue(f.Ctx, 100) // confirmed: a failure
	kit.OK(t, err)
	renew(func(*picket.LeaseCredential) {}, picket.CodeLeaseExpired) // ended
	next := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	renew(func(*picket.LeaseCredential) {}, picket.CodeStaleFence)
	next.Fence = 1
	_, err = f.HeldTask(f.Ctx, next, "") // an older token is shown
	kit.Refused(t, err, picket.CodeStaleFence)
	next.Fence = 0
	_, err = f.HeldTask(f.Ctx, next, "")
	kit.OK(t, err)
	h.Fence = 2 // another's token does not help: what is stale is its own
	_, err = f.Renew(f.Ctx, h)
	var stale *picket.Error
	if !errors.As(err, &stale) || stale.Code != picket.CodeStaleFence || stale.Facts["presented"] != int64(1) {
		t.Fatalf("the next run's token under the old credential: %+v", err)
	}
	_, err = f.Expire(f.Ctx, kit.Operator, task.TaskID, "r")
	kit.OK(t, err)
	third := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	next.Fence = 1 // neither its own nor the current one
	_, err = f.Renew(f.Ctx, next)
	kit.Refused(t, err, picket.CodeStaleFence)
	next = third

	progress := picket.Progress{Summary: "s"}
	f.CallTwice(t, func() error { _, err := f.Report(f.Ctx, next, "r1", progress); return err })
	_, err = f.Report(f.Ctx, next, "r1", picket.Progress{Summary: "other"})
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	for _, id := range []string{"", "r2"} {
		_, err = f.Report(f.Ctx, next, id, progress)
		kit.OK(t, err)
	}
	_, err = f.Report(f.Ctx, h, "", progress)
	kit.Refused(t, err, picket.CodeStaleFence)
	coverEmissions(t, f)
	coverLoop(t, f)
	coverRepeats(t, f)
	// A run whose task is gone: only a damaged store has one.
	kit.OK(t, f.Raw.Rename(f.Ctx, "pk:{default}:task:"+task.TaskID, "pk:{default}:aside").Err())
	_, err = f.Renew(f.Ctx, next)
	kit.Refused(t, err, picket.CodeLeaseExpired)
	kit.OK(t, f.Raw.Rename(f.Ctx, "pk:{default}:aside", "pk:{default}:task:"+task.TaskID).Err())
	f.CancelAll(t)
	_, err = f.Renew(f.Ctx, next)
	kit.Refused(t, err, picket.CodeTaskCancelled)
}

func coverRunEnds(t *testing.T, f *fixture) {
	retry := &picket.Retry{MaxAttempts: kit.Ptr(4), On: []picket.ExitClass{picket.ExitCrash}}
	crash := picket.Exit{Class: picket.ExitCrash, Code: kit.Ptr(1), Detail: "last lines"}
	// Again at once, again after a while, then to a person or failed.
	_, h := f.SubmitAndLease(t, picket.TaskSpec{Retry: retry})
	f.CallTwice(t, func() error { _, err := f.Release(f.Ctx, h, crash); return err })
	_, err := f.Renew(f.Ctx, h)
	kit.Refused(t, err, picket.CodeLeaseReleased)
	_, err = f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitReleased})
	kit.Refused(t, err, picket.CodeLeaseReleased)
	foreign := h
	foreign.Secret = strings.Repeat("0", 64)
	_, err = f.Release(f.Ctx, foreign, crash)
	kit.Refused(t, err, picket.CodeLeaseExpired)
	h = f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	f.CallTwice(t, func() error { _, err := f.Fail(f.Ctx, h, "no", true); return err })
	_, err = f.Fail(f.Ctx, h, "no", false)
	kit.Refused(t, err, picket.CodeLeaseReleased)
	f.JumpStoreTime(t, time.Hour)
	h = f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	_, err = f.Fail(f.Ctx, h, "no", false)
	kit.OK(t, err)
	_, h = f.SubmitAndLease(t, picket.TaskSpec{})
	f.CallTwice(t, func() error { _, err := f.Decline(f.Ctx, h, "no"); return err })
	_, h = f.SubmitAndLease(t, picket.TaskSpec{Escalate: picket.EscalateFail, Retry: retry})
	_, err = f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitTimeout, Signal: kit.Ptr("SIGKILL")})
	kit.OK(t, err)
	_, h = f.SubmitAndLease(t, picket.TaskSpec{Review: picket.ReviewByNone})
	f.CallTwice(t, func() error { _, err := f.Complete(f.Ctx, h, picket.Completion{}); return err })
	_, err = f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`2`)})
	kit.Refused(t, err, picket.CodeLeaseReleased)
	_, h = f.SubmitAndLease(t, picket.TaskSpec{})
	_, err = f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitReleased})
	kit.OK(t, err)

	task := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}).TaskID
	f.CallTwice(t, func() error { _, err := f.Expire(f.Ctx, kit.Idempotent("3"), task, "r"); return err })
	other := kit.Idempotent("3")
	other.Idempotency.Body = strings.Repeat("c", 64)
	_, err = f.Expire(f.Ctx, other, task, "r")
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Expire(f.Ctx, kit.Operator, task, "r")
	kit.Refused(t, err, picket.CodeStateConflict)
	_, err = f.Expire(f.Ctx, kit.Operator, kit.NoTask, "r")
	kit.Refused(t, err, picket.CodeNotFound)
	run := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}).RunID
	f.CallTwice(t, func() error { return f.Undeliver(f.Ctx, run, kit.NoRun) })
	f.CallTwice(t, func() error { _, err := f.Cancel(f.Ctx, kit.Idempotent("4"), task, "r"); return err })
	_, err = f.Cancel(f.Ctx, other, task, "r") // key 3 has another body
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Cancel(f.Ctx, kit.Operator, task, "r")
	kit.Refused(t, err, picket.CodeTaskClosed)
	_, err = f.Expire(f.Ctx, kit.Operator, task, "r")
	kit.Refused(t, err, picket.CodeTaskClosed)
	_, err = f.Cancel(f.Ctx, kit.Operator, kit.NoTask, "r")
	kit.Refused(t, err, picket.CodeNotFound)
	f.SubmitAndLease(t, picket.TaskSpec{}) // left leased
	f.CancelAll(t)
	kit.OK(t, f.Tick(f.Ctx))
}

// coverProcessWait takes the ways of a task that waits for the process of a run.
func coverProcessWait(t *testing.T, f *fixture) {
	launched := []picket.RunEvent{{
		Type:          picket.EventRunLaunched,
		Containment:   picket.ContainmentGroup,
		WorkspacePath: "/srv/here",
	}}
	exit := picket.Exit{Class: picket.ExitKilled, Signal: kit.Ptr("SIGKILL")}
	// Waits, and the exit lets it go on.
	task, h := f.SubmitAndLease(t, picket.TaskSpec{})
	f.CallTwice(t, func() error { return f.RunEvents(f.Ctx, h, launched) })
	_, err := f.Expire(f.Ctx, kit.Operator, task.TaskID, "r")
	kit.OK(t, err)
	kit.OK(t, f.RunExit(f.Ctx, h, exit, picket.ContainmentGroup))
	// Waits, but is cancelled before the exit comes.
	h = f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	kit.OK(t, f.RunEvents(f.Ctx, h, launched))
	_, err = f.Expire(f.Ctx, kit.Operator, task.TaskID, "r")
	kit.OK(t, err)
	_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "r")
	kit.OK(t, err)
	kit.OK(t, f.RunExit(f.Ctx, h, exit, ""))
	// Waits until the old deadline.
	task, h = f.SubmitAndLease(t, picket.TaskSpec{})
	kit.OK(t, f.RunEvents(f.Ctx, h, launched))
	_, err = f.Expire(f.Ctx, kit.Operator, task.TaskID, "r")
	kit.OK(t, err)
	f.JumpStoreTime(t, time.Hour)
	kit.OK(t, f.Tick(f.Ctx))
	// while it runs
	kit.OK(t, f.RunExit(f.Ctx, f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})), exit, ""))
	f.CancelAll(t)
	// An entry of delayed whose task is gone: only a damaged store has one.
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:delayed", redis.Z{Score: 1, Member: kit.NoTask}).Err())
	kit.OK(t, f.Tick(f.Ctx))
}

func coverPause(t *testing.T, f *fixture) {
	f.SubmitAndLease(t, picket.TaskSpec{})
	task, _ := f.SubmitAndLease(t, picket.TaskSpec{})
	_, err := f.ExpireRun(f.Ctx, kit.Operator, task.TaskID, "run_01HZZZZZZZZZZZZZZZZZZZZZZZ", "r")
	kit.Refused(t, err, picket.CodeStateConflict)
	_, err = f.RunChores(f.Ctx, 100)
	kit.OK(t, err)
	_, err = f.Resume(f.Ctx, kit.Operator, "r") // nothing to resume
	kit.OK(t, err)
	f.CallTwice(t, func() error { _, err := f.Pause(f.Ctx, kit.Idempotent("e"), false, "r"); return err })
	clash := kit.Idempotent("e")
	clash.Idempotency.Body = strings.Repeat("c", 64)
	_, err = f.Pause(f.Ctx, clash, false, "r")
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Resume(f.Ctx, clash, "r")
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
	kit.OK(t, err)
	// As if a hard pause had found more runs than a batch holds.
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:chores", redis.Z{Score: 1, Member: "pause"}).Err())
	kit.OK(t, f.Tick(f.Ctx))
	for range 3 {
		_, err = f.RunChores(f.Ctx, 1)
		kit.OK(t, err)
	}
	for _, hard := range []bool{true, false} { // the second one does not weaken the first
		_, err = f.Pause(f.Ctx, kit.Operator, hard, "r")
		kit.OK(t, err)
	}
	_, err = f.PauseUnlessChanged(f.Ctx, kit.Operator, false, "r", 1)
	kit.Refused(t, err, picket.CodeStateConflict)
	_, err = f.ResumeUnlessChanged(f.Ctx, kit.Operator, "r", 1)
	kit.Refused(t, err, picket.CodeStateConflict)
	f.CallTwice(t, func() error { _, err := f.Resume(f.Ctx, kit.Idempotent("f"), "r"); return err })
	f.CancelAll(t)
}
