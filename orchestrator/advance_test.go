package orchestrator_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// completeAndAcquire completes the lease of h and asks for one more.
func (f *fixture) completeAndAcquire(h picket.LeaseCredential, by picket.Caller,
	req picket.AcquireRequest) (picket.Advanced, error) {
	return f.Advance(f.Ctx, h, by, picket.AdvanceRequest{Output: picket.RawJSON(`1`), Acquire: req})
}

func tasksOf(leases []picket.Lease) []string {
	ids := []string{}
	for _, l := range leases {
		ids = append(ids, l.TaskID)
	}
	return ids
}

// eventTypesAfter lists the types of the events after a sequence number, and tells the
// last one.
func (f *fixture) eventTypesAfter(t *testing.T, after int64) (kinds []string, last int64) {
	t.Helper()
	page, err := f.Events(f.Ctx, picket.EventQuery{After: after})
	kit.OK(t, err)
	for _, e := range page.Events {
		kinds = append(kinds, e.Type)
	}
	last, err = strconv.ParseInt(page.Next, 10, 64)
	kit.OK(t, err)
	return kinds, last
}

// One step ends a lease and grants the next; a repeat tells the same and
// changes nothing.
func TestAdvanceIsOneStep(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		first, h := f.SubmitAndLease(t, picket.TaskSpec{})
		second := f.MustSubmit(t, picket.TaskSpec{})
		third := f.MustSubmit(t, picket.TaskSpec{})
		_, cursor := f.eventTypesAfter(t, 0)
		got, err := f.completeAndAcquire(h, kit.Idempotent("1"), picket.AcquireRequest{AgentID: "a1"})
		kit.OK(t, err)
		if got.State != picket.TaskReview || !slices.Equal(tasksOf(got.Leases), []string{second.TaskID}) {
			t.Fatalf("advanced to %+v", got)
		}
		f.WantState(t, first.TaskID, picket.TaskReview)
		f.WantState(t, second.TaskID, picket.TaskLeased)
		kinds, cursor := f.eventTypesAfter(t, cursor)
		if !slices.Equal(kinds, []string{picket.EventTaskReview, picket.EventTaskLeased}) {
			t.Errorf("events: %v", kinds)
		}
		again, err := f.completeAndAcquire(h, kit.Idempotent("1"), picket.AcquireRequest{AgentID: "a1"})
		kit.OK(t, err)
		if again.State != got.State || len(again.Leases) != 1 ||
			again.Leases[0].LeaseToken != got.Leases[0].LeaseToken {
			t.Errorf("again: %+v, first: %+v", again, got)
		}
		if kinds, _ := f.eventTypesAfter(t, cursor); len(kinds) > 0 {
			t.Errorf("a repeat wrote %v", kinds)
		}
		f.WantState(t, third.TaskID, picket.TaskQueued)
	})
}

// A repeat whose leases have ended does not wait for what it will not get.
func TestAdvanceRepeatedTooLateDoesNotWait(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		f.MustSubmit(t, picket.TaskSpec{})
		req := picket.AcquireRequest{AgentID: "a1", WaitSeconds: kit.Ptr(50)}
		got, err := f.completeAndAcquire(h, kit.Idempotent("1"), req)
		kit.OK(t, err)
		kit.OK(t, f.Undeliver(f.Ctx, got.Leases[0].RunID))
		began := time.Now()
		again, err := f.completeAndAcquire(h, kit.Idempotent("1"), req)
		kit.OK(t, err)
		if again.State != picket.TaskReview || len(again.Leases) != 0 || time.Since(began) > 25*time.Second {
			t.Errorf("again: %+v after %v", again, time.Since(began))
		}
	})
}

// Work that comes while it waits is granted, and the lease it ended stays ended.
func TestAdvanceWaits(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		first, h := f.SubmitAndLease(t, picket.TaskSpec{})
		type result struct {
			got picket.Advanced
			err error
		}
		done := make(chan result, 1)
		go func() {
			got, err := f.completeAndAcquire(h, kit.Idempotent("1"),
				picket.AcquireRequest{AgentID: "a1", WaitSeconds: kit.Ptr(50)})
			done <- result{got, err}
		}()
		for waiting := int64(0); waiting == 0; {
			stats, err := f.Stats(f.Ctx)
			kit.OK(t, err)
			waiting = stats.Waiters
		}
		f.WantState(t, first.TaskID, picket.TaskReview)
		task := f.MustSubmit(t, picket.TaskSpec{})
		r := <-done
		kit.OK(t, r.err)
		if r.got.State != picket.TaskReview || !slices.Equal(tasksOf(r.got.Leases), []string{task.TaskID}) {
			t.Errorf("advanced to %+v", r.got)
		}
	})
}

// While the namespace is paused the lease is completed, and none is granted.
func TestAdvanceWhilePaused(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		first, h := f.SubmitAndLease(t, picket.TaskSpec{Review: picket.ReviewByNone})
		second := f.MustSubmit(t, picket.TaskSpec{})
		_, err := f.Pause(f.Ctx, kit.Operator, false, "")
		kit.OK(t, err)
		got, err := f.completeAndAcquire(h, kit.Operator, picket.AcquireRequest{AgentID: "a1"})
		kit.OK(t, err)
		if got.State != picket.TaskCompleted || len(got.Leases) != 0 {
			t.Errorf("advanced to %+v", got)
		}
		f.WantState(t, first.TaskID, picket.TaskCompleted)
		f.WantState(t, second.TaskID, picket.TaskQueued)
	})
}

// When the tokens above the floor are used up the lease is completed all the
// same, and the next is granted under a new floor in the same call.
func TestAdvanceWhenTheTokensAreUsedUp(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		first, h := f.SubmitAndLease(t, picket.TaskSpec{})
		second := f.MustSubmit(t, picket.TaskSpec{})
		f.ExhaustTokens(t, second.TaskID)
		before, err := f.Stats(f.Ctx)
		kit.OK(t, err)
		got, err := f.completeAndAcquire(h, kit.Idempotent("1"),
			picket.AcquireRequest{AgentID: "a1", WaitSeconds: kit.Ptr(50)})
		kit.OK(t, err)
		after, err := f.Stats(f.Ctx)
		kit.OK(t, err)
		if got.State != picket.TaskReview || !slices.Equal(tasksOf(got.Leases), []string{second.TaskID}) ||
			after.Floor <= before.Floor || got.Leases[0].FencingToken <= after.Floor {
			t.Errorf("floor %d, then %d: %+v", before.Floor, after.Floor, got)
		}
		f.WantState(t, first.TaskID, picket.TaskReview)
	})
}

// A lease from before an adoption is reclaimed and completed, as by complete.
func TestAdvanceAfterAnAdoption(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		first, h := f.SubmitAndLease(t, picket.TaskSpec{})
		second := f.MustSubmit(t, picket.TaskSpec{})
		f.AdoptOnNewServer(t)
		got, err := f.completeAndAcquire(h, kit.Operator, picket.AcquireRequest{AgentID: "a1"})
		kit.OK(t, err)
		if got.State != picket.TaskReview || !slices.Equal(tasksOf(got.Leases), []string{second.TaskID}) {
			t.Errorf("advanced to %+v", got)
		}
		f.WantState(t, first.TaskID, picket.TaskReview)
	})
}

// A grant that is refused because the tokens are used up has moved due tasks on
// all the same: what is written of them is whole.
func TestARefusedGrantLeavesWholeTasks(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		due := f.MustSubmit(t, picket.TaskSpec{
			NotBefore: picket.InstantOf(time.Now().Add(time.Hour)),
			Priority:  kit.Ptr(1),
		})
		urgent := f.MustSubmit(t, picket.TaskSpec{Priority: kit.Ptr(9)})
		f.ExhaustTokens(t, urgent.TaskID)
		f.JumpStoreTime(t, 2*time.Hour)
		for _, want := range []string{urgent.TaskID, due.TaskID} {
			if l := f.AcquireOne(t, picket.AcquireRequest{}); l.TaskID != want {
				t.Fatalf("granted %s, want %s", l.TaskID, want)
			}
		}
		none, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{})
		kit.OK(t, err)
		if len(none) > 0 {
			t.Errorf("granted twice: %v", tasksOf(none))
		}
		if kinds, _ := f.eventTypesAfter(t, 0); slices.Contains(kinds, picket.EventInvariantRepaired) {
			t.Errorf("something had to be repaired: %v", kinds)
		}
	})
}
