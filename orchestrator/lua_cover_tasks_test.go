package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// coverBranches takes every branch of every script once. It asserts little: the other
// tests say what each has to do.
func coverBranches(t *testing.T, f *fixture) {
	for _, stop := range []func(*testing.T, *fixture){coverClock, coverSubmit, coverGrant, coverFence, coverRunEnds,
		coverProcessWait, coverHandoffs,
		coverReviews, coverDigests, coverQueues, coverDecided, coverApproveAll, coverPause, coverEvidence, coverReads,
		coverKeys,
		coverRevokedKeys, coverRunKeys, coverLogins, coverRetention, coverWaits,
		coverPartialRows, coverAgents, coverDrains, coverAgentDeaths, coverAgentAnswers, coverAgentLists, coverInspect,
		coverAdvance,
		coverCalls, coverUsage, coverTopUps, coverTree, coverTreeEnds, coverExec, coverWebhooks, coverEvents,
		coverDamagedEnvelopes, coverQuotas,
		coverAdoption} {
		stop(t, f)
	}
}

const meta = "pk:{default}:meta"

// jumpStoreTime moves store time on at once.
func (f *fixture) jumpStoreTime(t *testing.T, d time.Duration) {
	t.Helper()
	ok(t, f.raw.HIncrBy(f.ctx, meta, "now", d.Milliseconds()).Err())
}

func (f *fixture) callTwice(t *testing.T, act func() error) {
	t.Helper()
	ok(t, act())
	ok(t, act())
}

func coverClock(t *testing.T, f *fixture) {
	for _, ms := range []int64{5000, -5000, -150} { // the clock was ahead, is ahead, went on a little
		ok(t, f.raw.HIncrBy(f.ctx, meta, "raw", ms).Err())
		_, err := f.Stats(f.ctx)
		ok(t, err)
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
	f.callTwice(t, func() error { _, err := f.Submit(f.ctx, idempotent("1"), spec); return err })
	other := idempotent("1")
	other.Idempotency.Body = strings.Repeat("c", 64)
	_, err := f.Submit(f.ctx, other, spec)
	refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Submit(f.ctx, operator, picket.TaskSpec{Title: "t", Fixes: noTask})
	refused(t, err, picket.CodeNotFound)
	first := f.mustSubmit(t, picket.TaskSpec{
		NotBefore: picket.InstantOf(time.Now().Add(time.Hour)),
		Priority:  ptr(1),
		Trace:     &picket.Trace{Parent: "00-1-2-00"},
	})
	f.mustSubmit(t, picket.TaskSpec{NotBefore: picket.InstantOf(time.Now().Add(-time.Hour)), Fixes: first.TaskID})
	f.mustSubmit(t, picket.TaskSpec{Priority: ptr(9)})

	f.fillLanes(t)
	_, err = f.Submit(f.ctx, operator, picket.TaskSpec{Title: "t", Role: "new"})
	refused(t, err, picket.CodeTooManyLanes)
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
		ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:lanes", z...).Err())
	}
}

func (f *fixture) removeFillerLanes(t *testing.T) {
	t.Helper()
	ok(t, f.raw.ZRemRangeByScore(f.ctx, "pk:{default}:lanes", "1000000000000000", "1000000000000000").Err())
}

func coverGrant(t *testing.T, f *fixture) {
	for i := range 10 { // ten lanes that this agent does not cover come first
		f.mustSubmit(t, picket.TaskSpec{Priority: ptr(9), Agent: fmt.Sprintf("z%d", i)})
	}
	f.mustSubmit(t, picket.TaskSpec{Priority: ptr(8), Role: "coder", Needs: []string{"py"}})
	f.mustSubmit(t, picket.TaskSpec{Priority: ptr(7), Agent: "a1"})
	f.mustSubmit(t, picket.TaskSpec{Priority: ptr(7), Role: "coder", Needs: []string{"go"}})
	req := picket.AcquireRequest{
		AgentID:       "a1",
		Role:          "coder",
		Capabilities:  []string{"go"},
		Max:           ptr(100),
		WorkspaceRoot: "/work",
	}
	f.callTwice(t, func() error { _, err := f.Acquire(f.ctx, idempotent("2"), req); return err })
	other := idempotent("2")
	other.Idempotency.Body = strings.Repeat("c", 64)
	_, err := f.Acquire(f.ctx, other, req)
	refused(t, err, picket.CodeIdempotencyConflict)
	f.jumpStoreTime(t, time.Minute)
	_, err = f.Acquire(f.ctx, idempotent("2"), req)
	refused(t, err, picket.CodeLeaseExpired)
	_, err = f.ExpireDue(f.ctx, 100) // unconfirmed: undelivered
	ok(t, err)
	none, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{AgentID: "nobody", Role: "nothing"})
	ok(t, err)
	_ = none
	f.cancelAll(t)
	// Waiting is cut short by the caller, who is forgotten.
	ctx, cancel := context.WithTimeout(f.ctx, 50*time.Millisecond)
	defer cancel()
	_, err = f.Acquire(ctx, operator, picket.AcquireRequest{AgentID: "a1", WaitSeconds: ptr(20)})
	if err == nil {
		t.Fatal("acquired from an empty store")
	}
}

// cancelAll cancels every task that is open.
func (f *fixture) cancelAll(t *testing.T) {
	t.Helper()
	for _, s := range picket.TaskStates {
		if s.Terminal() {
			continue
		}
		for {
			page, err := f.Tasks(f.ctx, picket.TaskQuery{States: []picket.TaskState{s}, Limit: 100})
			ok(t, err)
			for _, task := range page.Tasks {
				_, err := f.Cancel(f.ctx, operator, task.TaskID, "tour")
				ok(t, err)
			}
			if page.NextCursor == nil {
				break
			}
		}
	}
}

// submitAndLease submits a task and leases it.
func (f *fixture) submitAndLease(t *testing.T, spec picket.TaskSpec) (picket.Task, picket.LeaseCredential) {
	t.Helper()
	task := f.mustSubmit(t, spec)
	l := f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})
	if l.TaskID != task.TaskID {
		t.Fatalf("leased %s, which a stop before left behind", l.TaskID)
	}
	return task, f.openLease(t, l)
}

func coverFence(t *testing.T, f *fixture) {
	task, h := f.submitAndLease(t, picket.TaskSpec{})
	renew := func(change func(h *picket.LeaseCredential), code picket.Code) {
		t.Helper()
		other := h
		change(&other)
		_, err := f.Renew(f.ctx, other)
		refused(t, err, code)
	}
	renew(func(h *picket.LeaseCredential) { h.Secret = strings.Repeat("0", 64) }, picket.CodeLeaseExpired)
	renew(func(h *picket.LeaseCredential) { h.RunID = noRun }, picket.CodeLeaseExpired)
	renew(func(h *picket.LeaseCredential) { h.TaskID = noTask }, picket.CodeTaskMismatch)
	renew(func(h *picket.LeaseCredential) { h.Fence = 9 }, picket.CodeUnknownFence)
	h.Fence = 1
	f.callTwice(t, func() error { _, err := f.Renew(f.ctx, h); return err })
	f.jumpStoreTime(t, 10*time.Minute)
	renew(func(*picket.LeaseCredential) {}, picket.CodeLeaseExpired) // by time
	_, _, err := f.Watch(f.ctx, h, time.Millisecond)
	ok(t, err)
	_, err = f.ExpireDue(f.ctx, 100) // confirmed: a failure
	ok(t, err)
	renew(func(*picket.LeaseCredential) {}, picket.CodeLeaseExpired) // ended
	next := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	renew(func(*picket.LeaseCredential) {}, picket.CodeStaleFence)
	next.Fence = 1
	_, err = f.HeldTask(f.ctx, next, "") // an older token is shown
	refused(t, err, picket.CodeStaleFence)
	next.Fence = 0
	_, err = f.HeldTask(f.ctx, next, "")
	ok(t, err)
	h.Fence = 2 // another's token does not help: what is stale is its own
	_, err = f.Renew(f.ctx, h)
	var stale *picket.Error
	if !errors.As(err, &stale) || stale.Code != picket.CodeStaleFence || stale.Facts["presented"] != int64(1) {
		t.Fatalf("the next run's token under the old credential: %+v", err)
	}
	_, err = f.Expire(f.ctx, operator, task.TaskID, "r")
	ok(t, err)
	third := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	next.Fence = 1 // neither its own nor the current one
	_, err = f.Renew(f.ctx, next)
	refused(t, err, picket.CodeStaleFence)
	next = third

	progress := picket.Progress{Summary: "s"}
	f.callTwice(t, func() error { _, err := f.Report(f.ctx, next, "r1", progress); return err })
	_, err = f.Report(f.ctx, next, "r1", picket.Progress{Summary: "other"})
	refused(t, err, picket.CodeIdempotencyConflict)
	for _, id := range []string{"", "r2"} {
		_, err = f.Report(f.ctx, next, id, progress)
		ok(t, err)
	}
	_, err = f.Report(f.ctx, h, "", progress)
	refused(t, err, picket.CodeStaleFence)
	coverLoop(t, f)
	// A run whose task is gone: only a damaged store has one.
	ok(t, f.raw.Rename(f.ctx, "pk:{default}:task:"+task.TaskID, "pk:{default}:aside").Err())
	_, err = f.Renew(f.ctx, next)
	refused(t, err, picket.CodeLeaseExpired)
	ok(t, f.raw.Rename(f.ctx, "pk:{default}:aside", "pk:{default}:task:"+task.TaskID).Err())
	f.cancelAll(t)
	_, err = f.Renew(f.ctx, next)
	refused(t, err, picket.CodeTaskCancelled)
}

func coverRunEnds(t *testing.T, f *fixture) {
	retry := &picket.Retry{MaxAttempts: ptr(4), On: []picket.ExitClass{picket.ExitCrash}}
	crash := picket.Exit{Class: picket.ExitCrash, Code: ptr(1), Detail: "last lines"}
	// Again at once, again after a while, then to a person or failed.
	_, h := f.submitAndLease(t, picket.TaskSpec{Retry: retry})
	f.callTwice(t, func() error { _, err := f.Release(f.ctx, h, crash); return err })
	_, err := f.Renew(f.ctx, h)
	refused(t, err, picket.CodeLeaseReleased)
	_, err = f.Release(f.ctx, h, picket.Exit{Class: picket.ExitReleased})
	refused(t, err, picket.CodeLeaseReleased)
	foreign := h
	foreign.Secret = strings.Repeat("0", 64)
	_, err = f.Release(f.ctx, foreign, crash)
	refused(t, err, picket.CodeLeaseExpired)
	h = f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	f.callTwice(t, func() error { _, err := f.Fail(f.ctx, h, "no", true); return err })
	_, err = f.Fail(f.ctx, h, "no", false)
	refused(t, err, picket.CodeLeaseReleased)
	f.jumpStoreTime(t, time.Hour)
	h = f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	_, err = f.Fail(f.ctx, h, "no", false)
	ok(t, err)
	_, h = f.submitAndLease(t, picket.TaskSpec{Escalate: picket.EscalateFail, Retry: retry})
	_, err = f.Release(f.ctx, h, picket.Exit{Class: picket.ExitTimeout, Signal: ptr("SIGKILL")})
	ok(t, err)
	_, h = f.submitAndLease(t, picket.TaskSpec{Review: picket.ReviewByNone})
	f.callTwice(t, func() error { _, err := f.Complete(f.ctx, h, picket.Completion{}); return err })
	_, err = f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`2`)})
	refused(t, err, picket.CodeLeaseReleased)
	_, h = f.submitAndLease(t, picket.TaskSpec{})
	_, err = f.Release(f.ctx, h, picket.Exit{Class: picket.ExitReleased})
	ok(t, err)

	task := f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}).TaskID
	f.callTwice(t, func() error { _, err := f.Expire(f.ctx, idempotent("3"), task, "r"); return err })
	other := idempotent("3")
	other.Idempotency.Body = strings.Repeat("c", 64)
	_, err = f.Expire(f.ctx, other, task, "r")
	refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Expire(f.ctx, operator, task, "r")
	refused(t, err, picket.CodeStateConflict)
	_, err = f.Expire(f.ctx, operator, noTask, "r")
	refused(t, err, picket.CodeNotFound)
	run := f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}).RunID
	f.callTwice(t, func() error { return f.Undeliver(f.ctx, run, noRun) })
	f.callTwice(t, func() error { _, err := f.Cancel(f.ctx, idempotent("4"), task, "r"); return err })
	_, err = f.Cancel(f.ctx, other, task, "r") // key 3 has another body
	refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Cancel(f.ctx, operator, task, "r")
	refused(t, err, picket.CodeTaskClosed)
	_, err = f.Expire(f.ctx, operator, task, "r")
	refused(t, err, picket.CodeTaskClosed)
	_, err = f.Cancel(f.ctx, operator, noTask, "r")
	refused(t, err, picket.CodeNotFound)
	f.submitAndLease(t, picket.TaskSpec{}) // left leased
	f.cancelAll(t)
	ok(t, f.Tick(f.ctx))
}

// coverProcessWait takes the ways of a task that waits for the process of a run.
func coverProcessWait(t *testing.T, f *fixture) {
	launched := []picket.RunEvent{{
		Type:          picket.EventRunLaunched,
		Containment:   picket.ContainmentGroup,
		WorkspacePath: "/srv/here",
	}}
	exit := picket.Exit{Class: picket.ExitKilled, Signal: ptr("SIGKILL")}
	// Waits, and the exit lets it go on.
	task, h := f.submitAndLease(t, picket.TaskSpec{})
	f.callTwice(t, func() error { return f.RunEvents(f.ctx, h, launched) })
	_, err := f.Expire(f.ctx, operator, task.TaskID, "r")
	ok(t, err)
	ok(t, f.RunExit(f.ctx, h, exit, picket.ContainmentGroup))
	// Waits, but is cancelled before the exit comes.
	h = f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
	ok(t, f.RunEvents(f.ctx, h, launched))
	_, err = f.Expire(f.ctx, operator, task.TaskID, "r")
	ok(t, err)
	_, err = f.Cancel(f.ctx, operator, task.TaskID, "r")
	ok(t, err)
	ok(t, f.RunExit(f.ctx, h, exit, ""))
	// Waits until the old deadline.
	task, h = f.submitAndLease(t, picket.TaskSpec{})
	ok(t, f.RunEvents(f.ctx, h, launched))
	_, err = f.Expire(f.ctx, operator, task.TaskID, "r")
	ok(t, err)
	f.jumpStoreTime(t, time.Hour)
	ok(t, f.Tick(f.ctx))
	// while it runs
	ok(t, f.RunExit(f.ctx, f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})), exit, ""))
	f.cancelAll(t)
	// An entry of delayed whose task is gone: only a damaged store has one.
	ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:delayed", redis.Z{Score: 1, Member: noTask}).Err())
	ok(t, f.Tick(f.ctx))
}

func coverPause(t *testing.T, f *fixture) {
	f.submitAndLease(t, picket.TaskSpec{})
	task, _ := f.submitAndLease(t, picket.TaskSpec{})
	_, err := f.ExpireRun(f.ctx, operator, task.TaskID, "run_01HZZZZZZZZZZZZZZZZZZZZZZZ", "r")
	refused(t, err, picket.CodeStateConflict)
	_, err = f.RunChores(f.ctx, 100)
	ok(t, err)
	_, err = f.Resume(f.ctx, operator, "r") // nothing to resume
	ok(t, err)
	f.callTwice(t, func() error { _, err := f.Pause(f.ctx, idempotent("e"), false, "r"); return err })
	clash := idempotent("e")
	clash.Idempotency.Body = strings.Repeat("c", 64)
	_, err = f.Pause(f.ctx, clash, false, "r")
	refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Resume(f.ctx, clash, "r")
	refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Acquire(f.ctx, operator, picket.AcquireRequest{})
	ok(t, err)
	// As if a hard pause had found more runs than a batch holds.
	ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:chores", redis.Z{Score: 1, Member: "pause"}).Err())
	ok(t, f.Tick(f.ctx))
	for range 3 {
		_, err = f.RunChores(f.ctx, 1)
		ok(t, err)
	}
	for _, hard := range []bool{true, false} { // the second one changes nothing
		_, err = f.Pause(f.ctx, operator, hard, "r")
		ok(t, err)
	}
	_, err = f.PauseUnlessChanged(f.ctx, operator, false, "r", 1)
	refused(t, err, picket.CodeStateConflict)
	_, err = f.ResumeUnlessChanged(f.ctx, operator, "r", 1)
	refused(t, err, picket.CodeStateConflict)
	f.callTwice(t, func() error { _, err := f.Resume(f.ctx, idempotent("f"), "r"); return err })
	f.cancelAll(t)
}
