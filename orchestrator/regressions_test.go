package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// leaseWithProcess starts a run whose adapter announces a process.
func (f *fixture) leaseWithProcess(t *testing.T) picket.LeaseCredential {
	t.Helper()
	h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
	_, err := f.Renew(f.ctx, h)
	ok(t, err)
	ok(t, f.RunEvents(f.ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched, Containment: "group"}}))
	return h
}

// A repeat of a repeat still waits for the process of the first.
func TestBarrierIsInheritedOverAChain(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		first := f.mustSubmit(t, picket.TaskSpec{})
		h := f.leaseWithProcess(t)
		_, err := f.Cancel(f.ctx, operator, first.TaskID, "")
		ok(t, err)
		second, err := f.Retry(f.ctx, operator, first.TaskID, "")
		ok(t, err)
		_, err = f.Cancel(f.ctx, operator, second.TaskID, "")
		ok(t, err)
		third, err := f.Retry(f.ctx, operator, second.TaskID, "")
		ok(t, err)
		fix := f.mustSubmit(t, picket.TaskSpec{Fixes: second.TaskID})
		none, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{Max: ptr(9)})
		ok(t, err)
		if len(none) != 0 {
			t.Fatalf("%s started beside the open process", none[0].TaskID)
		}
		ok(t, f.RunExit(f.ctx, h, picket.Exit{Class: picket.ExitKilled, Code: ptr(137)}, "group"))
		got, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{Max: ptr(9)})
		ok(t, err)
		if len(got) != 2 || got[0].TaskID != third.TaskID || got[1].TaskID != fix.TaskID {
			t.Fatalf("after the exit: %+v", got)
		}
	})
}

// notBefore is an instant on the wall: while nobody keeps store time, as over
// night with the server stopped, it comes all the same.
func TestNotBeforeComesWhileStoreTimeStandsStill(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		ok(t, f.Tick(f.ctx))
		task := f.mustSubmit(t, picket.TaskSpec{NotBefore: picket.InstantOf(time.Now().Add(300 * time.Millisecond))})
		cancelled := f.mustSubmit(t, picket.TaskSpec{NotBefore: picket.InstantOf(time.Now().Add(time.Hour))})
		_, err := f.Cancel(f.ctx, operator, cancelled.TaskID, "")
		ok(t, err)
		if f.virtual {
			time.Sleep(9 * time.Hour)
		} else { // the same, seen from the store: much time passed since the last reading
			ok(t, f.raw.HIncrBy(f.ctx, "pk:{default}:meta", "now", -time.Hour.Milliseconds()).Err())
			ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:starts", zMember(1, task.TaskID)).Err())
		}
		ok(t, f.Tick(f.ctx))
		if l := f.acquireOne(t, picket.AcquireRequest{}); l.TaskID != task.TaskID {
			t.Fatalf("leased %s", l.TaskID)
		}
		if n := f.raw.ZCard(f.ctx, "pk:{default}:starts").Val(); n != 0 {
			t.Fatalf("%d starts are left over", n)
		}
	})
}

// A waiter that is woken for one lane and takes a task of another hands the
// message on, so nobody sleeps beside a queued task.
func TestNoWakeUpIsLost(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for range 20 {
			got := make(chan int, 2)
			wait := func(caps ...string) {
				l, err := f.Acquire(f.ctx, operator,
					picket.AcquireRequest{Role: "coder", Capabilities: caps, WaitSeconds: ptr(20)})
				if err != nil {
					t.Error(err)
				}
				got <- len(l)
			}
			go wait("go")
			go wait()
			for s := (picket.Stats{}); s.Waiters < 2; {
				var err error
				s, err = f.Stats(f.ctx)
				ok(t, err)
			}
			_, err := f.Pause(f.ctx, operator, false, "both tasks come at once")
			ok(t, err)
			f.mustSubmit(t, picket.TaskSpec{Role: "coder"})
			f.mustSubmit(t, picket.TaskSpec{Role: "coder", Needs: []string{"go"}, Priority: ptr(9)})
			_, err = f.Resume(f.ctx, operator, "")
			ok(t, err)
			if a, b := <-got, <-got; a+b != 2 {
				t.Fatalf("%d and %d leases: a waiter slept through", a, b)
			}
		}
	})
}

// The cap on events is reached soon, however far it is passed, by number and
// by age.
func TestRetentionDeletesInLargeBatches(t *testing.T) {
	rig.SkipShort(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		pipe := f.raw.Pipeline()
		const n = 25_000
		for i := 1; i <= n; i++ {
			pipe.XAdd(f.ctx, oldEvent(i))
			if i%500 == 0 {
				_, err := pipe.Exec(f.ctx)
				ok(t, err)
			}
		}
		ok(t, f.raw.HSet(f.ctx, "pk:{default}:meta", "seq", n).Err())
		calls := 0
		for deleted := 100; deleted >= 100; calls++ {
			var err error
			deleted, err = f.ApplyRetention(f.ctx,
				picket.Retention{MaxEvents: 12_000, Events: 100 * 365 * 24 * time.Hour}, 100)
			ok(t, err)
		}
		if left := f.raw.XLen(f.ctx, "pk:{default}:events").Val(); left != 12_000 || calls > 3 {
			t.Fatalf("%d events left after %d calls", left, calls)
		}
		got, err := f.ApplyRetention(f.ctx, picket.Retention{Events: time.Nanosecond}, 100)
		ok(t, err)
		if got != 10_000 {
			t.Fatalf("%d old events deleted in one bite", got)
		}
	})
}

// Delayed tasks count for the limit of lanes: they cannot shut everybody else
// out when their time comes.
func TestDelayedTasksCountForTheLaneLimit(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		soon := picket.InstantOf(time.Now().Add(time.Hour))
		var last picket.Task
		for i := range 1024 {
			last = f.mustSubmit(t, picket.TaskSpec{Role: fmt.Sprintf("r%d", i), NotBefore: soon})
		}
		_, err := f.Submit(f.ctx, operator, picket.TaskSpec{Title: "t", Role: "new"})
		refused(t, err, picket.CodeTooManyLanes)
		f.mustSubmit(t, picket.TaskSpec{Role: "r7", NotBefore: soon})
		_, err = f.Cancel(f.ctx, operator, last.TaskID, "")
		ok(t, err)
		f.mustSubmit(t, picket.TaskSpec{Role: "new"})
	})
}

// Retention cannot be undone, so it goes by store time: a jump of the server's
// clock deletes nothing.
func TestAClockJumpDeletesNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.mustSubmit(t, picket.TaskSpec{})
		_, err := f.Cancel(f.ctx, operator, task.TaskID, "")
		ok(t, err)
		// The reading before lies ten years back: that is the jump.
		ok(t, f.raw.HIncrBy(f.ctx, "pk:{default}:meta", "raw", -10*365*24*time.Hour.Milliseconds()).Err())
		for range 5 {
			ok(t, f.Tick(f.ctx))
			_, err := f.ApplyRetention(f.ctx, picket.Retention{}, 100)
			ok(t, err)
		}
		f.wantState(t, task.TaskID, picket.TaskCancelled)
	})
}

// An answer of many large leases ends early; the rest is granted next time.
func TestAGrantOfLargeTasksEndsEarly(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		input := picket.RawJSON(`"` + strings.Repeat("x", 250_000) + `"`)
		for range 40 {
			f.mustSubmit(t, picket.TaskSpec{Input: input})
		}
		total := 0
		for total < 40 {
			got, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{Max: ptr(100)})
			ok(t, err)
			if len(got) == 0 || len(got) > 20 {
				t.Fatalf("%d large leases in one answer", len(got))
			}
			total += len(got)
		}
	})
}

func TestAFilterIsFoundBehindManyOthers(t *testing.T) {
	rig.SkipShort(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		rare := f.mustSubmit(t, picket.TaskSpec{Labels: map[string]string{"x": "y"}})
		for range 2100 {
			f.mustSubmit(t, picket.TaskSpec{})
		}
		page, err := f.Tasks(f.ctx,
			picket.TaskQuery{States: []picket.TaskState{picket.TaskQueued}, Labels: map[string]string{"x": "y"}})
		ok(t, err)
		if len(page.Tasks) != 1 || page.Tasks[0].TaskID != rare.TaskID {
			t.Fatalf("found %d tasks", len(page.Tasks))
		}
	})
}

// The largest lists fit into one reply of a few MiB, and say the latest.
func TestListingsAreBounded(t *testing.T) {
	rig.SkipShort(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.mustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: ptr(86_400)})
		h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		large := strings.Repeat("x", 250_000)
		for i := range 40 {
			_, err := f.Report(f.ctx, h, "", picket.Progress{Summary: fmt.Sprint(i), NextStep: large})
			ok(t, err)
		}
		reports, err := f.Reports(f.ctx, task.TaskID)
		ok(t, err)
		if n := len(reports); n < 10 || n > 20 || reports[n-1].Summary != "39" || !reports[n-1].Pinned ||
			reports[0].Seq != int64(41-n) {
			t.Fatalf("%d reports, the last %.20q", n, reports[n-1].Summary)
		}
		_, err = f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`"` + large + `"`)})
		ok(t, err)
		for range 30 {
			f.mustSubmit(t, picket.TaskSpec{})
			h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
			_, err := f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`"` + large + `"`)})
			ok(t, err)
		}
		reviews, err := f.Reviews(f.ctx, picket.ReviewQuery{})
		ok(t, err)
		if n := len(reviews.Reviews); n < 10 || n > 20 || reviews.Total != 31 || reviews.NextCursor == nil ||
			reviews.Reviews[0].TaskID != task.TaskID {
			t.Fatalf("%d reviews", n)
		}
		for range 30 {
			f.mustSubmit(t, picket.TaskSpec{})
			h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
			_, err := f.RequestHelp(f.ctx, h, picket.HelpRequest{Question: large})
			ok(t, err)
		}
		handoffs, err := f.Handoffs(f.ctx, picket.HandoffQuery{})
		ok(t, err)
		if n := len(handoffs.Handoffs); n < 10 || n > 20 || handoffs.Total != 30 || handoffs.NextCursor == nil {
			t.Fatalf("%d hand-offs", n)
		}
	})
}

func TestARevokedKeyIsNotHandedOutAgain(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		req := picket.KeyRequest{Name: "w", Scopes: []picket.Scope{picket.ScopeAgent}}
		k, err := f.CreateKey(f.ctx, idempotent("k"), req)
		ok(t, err)
		_, err = f.RevokeKey(f.ctx, operator, k.KeyID)
		ok(t, err)
		_, err = f.CreateKey(f.ctx, idempotent("k"), req)
		refused(t, err, picket.CodeStateConflict)
	})
}

func TestARunningTaskIsNotRepaired(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.mustSubmit(t, picket.TaskSpec{})
		f.acquireOne(t, picket.AcquireRequest{})
		_, err := f.Submit(f.ctx, operator, picket.TaskSpec{Title: "fix", Fixes: task.TaskID})
		refused(t, err, picket.CodeStateConflict)
	})
}

// The fix of a rejection waits for the process that handed the result in.
func TestAFixWaitsForTheProcessOfWhatItRepairs(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.mustSubmit(t, picket.TaskSpec{})
		h := f.leaseWithProcess(t)
		_, err := f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		ok(t, err)
		_, fix, err := f.Reject(f.ctx, operator, task.TaskID, picket.Decision{}, &picket.TaskSpec{Title: "fix"})
		ok(t, err)
		none, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{})
		ok(t, err)
		if len(none) != 0 {
			t.Fatal("the fix started beside the open process")
		}
		ok(t, f.RunExit(f.ctx, h, picket.Exit{Class: picket.ExitSuccess, Code: ptr(0)}, "group"))
		if l := f.acquireOne(t, picket.AcquireRequest{}); l.TaskID != fix {
			t.Fatalf("leased %s", l.TaskID)
		}
	})
}

func TestNullIsNoAnswer(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{})
		_, hid := f.askPerson(t, "a1", picket.HelpRequest{Question: "?"})
		_, err := f.Answer(f.ctx, operator, hid, picket.AnswerRequest{Answer: picket.RawJSON(`null`)})
		refused(t, err, picket.CodeValidation)
		_, err = f.Finish(f.ctx, operator, hid, picket.RawJSON(`null`))
		refused(t, err, picket.CodeValidation)
	})
}
