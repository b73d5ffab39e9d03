package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// leaseWithProcess starts a run whose adapter announces a process.
func (f *fixture) leaseWithProcess(t *testing.T) picket.LeaseCredential {
	t.Helper()
	h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
	_, err := f.Renew(f.Ctx, h)
	kit.OK(t, err)
	kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched, Containment: "group"}}))
	return h
}

// A repeat of a repeat still waits for the process of the first.
func TestBarrierIsInheritedOverAChain(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		first := f.MustSubmit(t, picket.TaskSpec{})
		h := f.leaseWithProcess(t)
		_, err := f.Cancel(f.Ctx, kit.Operator, first.TaskID, "")
		kit.OK(t, err)
		second, err := f.Retry(f.Ctx, kit.Operator, first.TaskID, "")
		kit.OK(t, err)
		_, err = f.Cancel(f.Ctx, kit.Operator, second.TaskID, "")
		kit.OK(t, err)
		third, err := f.Retry(f.Ctx, kit.Operator, second.TaskID, "")
		kit.OK(t, err)
		fix := f.MustSubmit(t, picket.TaskSpec{Fixes: second.TaskID})
		none, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{Max: kit.Ptr(9)})
		kit.OK(t, err)
		if len(none) != 0 {
			t.Fatalf("%s started beside the open process", none[0].TaskID)
		}
		kit.OK(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitKilled, Code: kit.Ptr(137)}, "group"))
		got, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{Max: kit.Ptr(9)})
		kit.OK(t, err)
		if len(got) != 2 || got[0].TaskID != third.TaskID || got[1].TaskID != fix.TaskID {
			t.Fatalf("after the exit: %+v", got)
		}
	})
}

// notBefore is an instant on the wall: while nobody keeps store time, as over
// night with the server stopped, it comes all the same.
func TestNotBeforeComesWhileStoreTimeStandsStill(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		kit.OK(t, f.Tick(f.Ctx))
		task := f.MustSubmit(t, picket.TaskSpec{NotBefore: picket.InstantOf(time.Now().Add(300 * time.Millisecond))})
		cancelled := f.MustSubmit(t, picket.TaskSpec{NotBefore: picket.InstantOf(time.Now().Add(time.Hour))})
		_, err := f.Cancel(f.Ctx, kit.Operator, cancelled.TaskID, "")
		kit.OK(t, err)
		if f.Virtual {
			time.Sleep(9 * time.Hour)
		} else { // the same, seen from the store: much time passed since the last reading
			kit.OK(t, f.Raw.HIncrBy(f.Ctx, "pk:{default}:meta", "now", -time.Hour.Milliseconds()).Err())
			kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:starts", kit.ZMember(1, task.TaskID)).Err())
		}
		kit.OK(t, f.Tick(f.Ctx))
		if l := f.AcquireOne(t, picket.AcquireRequest{}); l.TaskID != task.TaskID {
			t.Fatalf("leased %s", l.TaskID)
		}
		if n := f.Raw.ZCard(f.Ctx, "pk:{default}:starts").Val(); n != 0 {
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
				l, err := f.Acquire(f.Ctx, kit.Operator,
					picket.AcquireRequest{Role: "coder", Capabilities: caps, WaitSeconds: kit.Ptr(20)})
				if err != nil {
					t.Error(err)
				}
				got <- len(l)
			}
			go wait("go")
			go wait()
			for s := (picket.Stats{}); s.Waiters < 2; {
				var err error
				s, err = f.Stats(f.Ctx)
				kit.OK(t, err)
			}
			_, err := f.Pause(f.Ctx, kit.Operator, false, "both tasks come at once")
			kit.OK(t, err)
			f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
			f.MustSubmit(t, picket.TaskSpec{Role: "coder", Needs: []string{"go"}, Priority: kit.Ptr(9)})
			_, err = f.Resume(f.Ctx, kit.Operator, "")
			kit.OK(t, err)
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
		pipe := f.Raw.Pipeline()
		const n = 25_000
		for i := 1; i <= n; i++ {
			pipe.XAdd(f.Ctx, kit.OldEvent(i))
			if i%500 == 0 {
				_, err := pipe.Exec(f.Ctx)
				kit.OK(t, err)
			}
		}
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:meta", "seq", n).Err())
		calls := 0
		for deleted := 100; deleted >= 100; calls++ {
			var err error
			deleted, err = f.ApplyRetention(f.Ctx,
				picket.Retention{MaxEvents: 12_000, Events: 100 * 365 * 24 * time.Hour}, 100)
			kit.OK(t, err)
		}
		if left := f.Raw.XLen(f.Ctx, "pk:{default}:events").Val(); left != 12_000 || calls > 3 {
			t.Fatalf("%d events left after %d calls", left, calls)
		}
		got, err := f.ApplyRetention(f.Ctx, picket.Retention{Events: time.Nanosecond}, 100)
		kit.OK(t, err)
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
			last = f.MustSubmit(t, picket.TaskSpec{Role: fmt.Sprintf("r%d", i), NotBefore: soon})
		}
		_, err := f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "t", Role: "new"})
		kit.Refused(t, err, picket.CodeTooManyLanes)
		f.MustSubmit(t, picket.TaskSpec{Role: "r7", NotBefore: soon})
		_, err = f.Cancel(f.Ctx, kit.Operator, last.TaskID, "")
		kit.OK(t, err)
		f.MustSubmit(t, picket.TaskSpec{Role: "new"})
	})
}

// Retention cannot be undone, so it goes by store time: a jump of the server's
// clock deletes nothing.
func TestAClockJumpDeletesNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		_, err := f.Cancel(f.Ctx, kit.Operator, task.TaskID, "")
		kit.OK(t, err)
		// The reading before lies ten years back: that is the jump.
		kit.OK(t, f.Raw.HIncrBy(f.Ctx, "pk:{default}:meta", "raw", -10*365*24*time.Hour.Milliseconds()).Err())
		for range 5 {
			kit.OK(t, f.Tick(f.Ctx))
			_, err := f.ApplyRetention(f.Ctx, picket.Retention{}, 100)
			kit.OK(t, err)
		}
		f.WantState(t, task.TaskID, picket.TaskCancelled)
	})
}

// An answer of many large leases ends early; the rest is granted next time.
func TestAGrantOfLargeTasksEndsEarly(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		input := picket.RawJSON(`"` + strings.Repeat("x", 250_000) + `"`)
		for range 40 {
			f.MustSubmit(t, picket.TaskSpec{Input: input})
		}
		total := 0
		for total < 40 {
			got, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{Max: kit.Ptr(100)})
			kit.OK(t, err)
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
		rare := f.MustSubmit(t, picket.TaskSpec{Labels: map[string]string{"x": "y"}})
		for range 2100 {
			f.MustSubmit(t, picket.TaskSpec{})
		}
		page, err := f.Tasks(f.Ctx,
			picket.TaskQuery{States: []picket.TaskState{picket.TaskQueued}, Labels: map[string]string{"x": "y"}})
		kit.OK(t, err)
		if len(page.Tasks) != 1 || page.Tasks[0].TaskID != rare.TaskID {
			t.Fatalf("found %d tasks", len(page.Tasks))
		}
	})
}

// The largest lists fit into one reply of a few MiB, and say the latest.
func TestListingsAreBounded(t *testing.T) {
	rig.SkipShort(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(86_400)})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		large := strings.Repeat("x", 250_000)
		for i := range 40 {
			_, err := f.Report(f.Ctx, h, "", picket.Progress{Summary: fmt.Sprint(i), NextStep: large})
			kit.OK(t, err)
		}
		reports, err := f.Reports(f.Ctx, task.TaskID)
		kit.OK(t, err)
		if n := len(reports); n < 10 || n > 20 || reports[n-1].Summary != "39" || !reports[n-1].Pinned ||
			reports[0].Seq != int64(41-n) {
			t.Fatalf("%d reports, the last %.20q", n, reports[n-1].Summary)
		}
		_, err = f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`"` + large + `"`)})
		kit.OK(t, err)
		for range 30 {
			f.MustSubmit(t, picket.TaskSpec{})
			h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
			_, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`"` + large + `"`)})
			kit.OK(t, err)
		}
		reviews, err := f.Reviews(f.Ctx, picket.ReviewQuery{})
		kit.OK(t, err)
		if n := len(reviews.Reviews); n < 10 || n > 20 || reviews.Total != 31 || reviews.NextCursor == nil ||
			reviews.Reviews[0].TaskID != task.TaskID {
			t.Fatalf("%d reviews", n)
		}
		for range 30 {
			f.MustSubmit(t, picket.TaskSpec{})
			h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
			_, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: large})
			kit.OK(t, err)
		}
		handoffs, err := f.Handoffs(f.Ctx, picket.HandoffQuery{})
		kit.OK(t, err)
		if n := len(handoffs.Handoffs); n < 10 || n > 20 || handoffs.Total != 30 || handoffs.NextCursor == nil {
			t.Fatalf("%d hand-offs", n)
		}
	})
}

func TestARevokedKeyIsNotHandedOutAgain(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		req := picket.KeyRequest{Name: "w", Scopes: []picket.Scope{picket.ScopeAgent}}
		k, err := f.CreateKey(f.Ctx, kit.Idempotent("k"), req)
		kit.OK(t, err)
		_, err = f.RevokeKey(f.Ctx, kit.Operator, k.KeyID)
		kit.OK(t, err)
		_, err = f.CreateKey(f.Ctx, kit.Idempotent("k"), req)
		kit.Refused(t, err, picket.CodeStateConflict)
	})
}

func TestARunningTaskIsNotRepaired(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		f.AcquireOne(t, picket.AcquireRequest{})
		_, err := f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "fix", Fixes: task.TaskID})
		kit.Refused(t, err, picket.CodeStateConflict)
	})
}

// The fix of a rejection waits for the process that handed the result in.
func TestAFixWaitsForTheProcessOfWhatItRepairs(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		h := f.leaseWithProcess(t)
		_, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(t, err)
		_, fix, err := f.Reject(f.Ctx, kit.Operator, task.TaskID, picket.Decision{}, &picket.TaskSpec{Title: "fix"})
		kit.OK(t, err)
		none, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
		kit.OK(t, err)
		if len(none) != 0 {
			t.Fatal("the fix started beside the open process")
		}
		kit.OK(t, f.RunExit(f.Ctx, h, picket.Exit{Class: picket.ExitSuccess, Code: kit.Ptr(0)}, "group"))
		if l := f.AcquireOne(t, picket.AcquireRequest{}); l.TaskID != fix {
			t.Fatalf("leased %s", l.TaskID)
		}
	})
}

func TestNullIsNoAnswer(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		_, hid := f.askPerson(t, "a1", picket.HelpRequest{Question: "?"})
		_, err := f.Answer(f.Ctx, kit.Operator, hid, picket.AnswerRequest{Answer: picket.RawJSON(`null`)})
		kit.Refused(t, err, picket.CodeValidation)
		_, err = f.Finish(f.Ctx, kit.Operator, hid, picket.RawJSON(`null`))
		kit.Refused(t, err, picket.CodeValidation)
	})
}
