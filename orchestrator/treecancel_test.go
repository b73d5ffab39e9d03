package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// chores does what is left behind, and returns how many steps that took.
func (f *fixture) countChoreSteps(t *testing.T) int {
	t.Helper()
	for steps := 0; ; steps++ {
		n, err := f.RunChores(f.Ctx, 100)
		kit.OK(t, err)
		if n == 0 {
			return steps
		}
	}
}

// delegateMany delegates n subtasks and takes them all.
func (f leasedTask) delegateMany(t *testing.T, n int) []leasedTask {
	t.Helper()
	var out []leasedTask
	for range n {
		out = append(out, f.acquireTask(t, f.mustDelegate(t, "", picket.Subtask{}).TaskID))
	}
	return out
}

// treeEnds are the ways in which a task takes along what is below it.
var treeEnds = map[string]func(f leasedTask) error{
	"Cancel": func(f leasedTask) error {
		_, err := f.Cancel(f.Ctx, kit.Operator, f.lease.TaskID, "enough")
		return err
	},
	"Complete": func(f leasedTask) error {
		_, err := f.Complete(f.Ctx, f.held,
			picket.Completion{Output: picket.RawJSON(`1`), Children: picket.ChildrenCancel})
		return err
	},
	"Fail": func(f leasedTask) error {
		_, err := f.Fail(f.Ctx, f.held, "no idea", false)
		return err
	},
}

func TestTheEndOfATreeHoldsAtOnce(t *testing.T) {
	rig.SkipShort(t)
	for name, end := range treeEnds {
		t.Run(name, func(t *testing.T) {
			if name == "Cancel" { // a tree is slow in memory: once is enough
				onBothStores(t, func(t *testing.T, f *fixture) { endsATree(t, f, end) })
				return
			}
			f := openFixture(t, rig.Real(t))
			defer f.Close()
			endsATree(t, f, end)
		})
	}
}

func endsATree(t *testing.T, f *fixture, end func(f leasedTask) error) {
	root := f.leaseTask(t, picket.TaskSpec{})
	var below []leasedTask
	for _, c := range root.delegateMany(t, 13) {
		below = append(append(below, c), c.delegateMany(t, 19)...)
	}
	waiting := below[0].mustDelegate(t, "", picket.Subtask{}).TaskID // of 261 below the root one is queued
	last := below[len(below)-1]
	kit.OK(t, end(root))
	left := 0
	for _, c := range below {
		if task, err := f.Task(f.Ctx, c.lease.TaskID); err != nil || task.State == picket.TaskLeased {
			left++
		}
	}
	if left < len(below)-100 || left > len(below)-60 {
		t.Fatalf("one step left %d of %d leased", left, len(below))
	}
	// Whatever is not written down yet, nothing is admitted any more.
	f.WantState(t, last.lease.TaskID, picket.TaskLeased)
	_, err := f.Renew(f.Ctx, last.held)
	kit.Refused(t, err, picket.CodeTaskCancelled)
	_, err = f.Complete(f.Ctx, last.held, picket.Completion{})
	kit.Refused(t, err, picket.CodeTaskCancelled)
	_, err = f.Delegate(f.Ctx, last.held, "", picket.Subtask{Title: "more"})
	kit.Refused(t, err, picket.CodeTaskCancelled)
	w, changed, err := f.Watch(f.Ctx, last.held, time.Minute)
	kit.OK(t, err)
	if !changed || w.State != picket.WatchCancelled {
		t.Fatalf("its watch says %+v", w)
	}
	if steps := f.countChoreSteps(t); steps < 2 {
		t.Fatalf("the rest of %d took %d steps", len(below), steps)
	}
	for _, c := range below {
		f.WantState(t, c.lease.TaskID, picket.TaskCancelled)
	}
	f.WantState(t, waiting, picket.TaskCancelled)
	if stray, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "late"}); err != nil ||
		len(stray) > 0 {
		t.Fatalf("a cancelled tree still gave %v, %v", stray, err)
	}
}

// TestAGrantTakesNothingThatIsCancelled: what waits below a cancelled task is
// not granted, in a lane or once its time has come, while nobody has written it
// down yet.
func TestAGrantTakesNothingThatIsCancelled(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		root := f.leaseTask(t, picket.TaskSpec{
			Retry: &picket.Retry{On: []picket.ExitClass{picket.ExitCrash}, BackoffSeconds: kit.Ptr(2)},
		})
		c := root.delegateMany(t, 1)[0]
		queued := c.mustDelegate(t, "", picket.Subtask{}).TaskID
		failing := c.delegateMany(t, 1)[0]
		for range 2 { // the second failure is tried again later
			state, err := f.Release(f.Ctx, failing.held, picket.Exit{Class: picket.ExitCrash})
			kit.OK(t, err)
			if state != picket.TaskQueued {
				t.Fatalf("crashed it is %s", state)
			}
			if failing.lease.Attempt == 1 {
				failing = failing.acquireTask(t, failing.lease.TaskID)
			}
		}
		// The mark alone, as it stands between the step and its chores.
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:tree:"+root.lease.TaskID, c.lease.TaskID, "1").Err())
		why, err := f.Explain(f.Ctx, queued)
		kit.OK(t, err)
		if !strings.Contains(strings.Join(why.Because, " "), "cancelled with "+c.lease.TaskID) {
			t.Fatalf("explained as %v", why.Because)
		}
		leases, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "late", Max: kit.Ptr(5)})
		kit.OK(t, err)
		if len(leases) != 0 {
			t.Fatalf("granted %+v", leases)
		}
		f.WantState(t, queued, picket.TaskCancelled)
		f.RunReaperFor(t, 5*time.Second)
		f.WantState(t, failing.lease.TaskID, picket.TaskCancelled)
	})
}

// TestNothingThatIsCancelledStarts: the start of a task that was cancelled with
// one above it ends the task. It would wait in a lane, where nobody might ask
// for it.
func TestNothingThatIsCancelledStarts(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		root := f.leaseTask(t, picket.TaskSpec{})
		c := root.delegateMany(t, 1)[0]
		source := c.acquireTask(t, c.mustDelegate(t, "", picket.Subtask{Review: picket.ReviewByHuman}).TaskID)
		source.mustComplete(t, picket.Completion{})
		_, later, err := f.Reject(f.Ctx, kit.Operator, source.lease.TaskID, picket.Decision{Note: "no"},
			&picket.TaskSpec{Title: "again", NotBefore: picket.InstantOf(time.Now().Add(time.Minute))})
		kit.OK(t, err)
		// The mark alone, as it stands between the step and its chores.
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:tree:"+root.lease.TaskID, c.lease.TaskID, "1").Err())
		kit.OK(t, f.Tick(f.Ctx))
		f.WantState(t, later, picket.TaskQueued)
		// Its start comes by the clock on the wall, while store time stands still.
		if f.Virtual {
			time.Sleep(2 * time.Minute)
		} else {
			kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:starts", kit.ZMember(1, later)).Err())
		}
		kit.OK(t, f.Tick(f.Ctx))
		f.WantState(t, later, picket.TaskCancelled)
	})
}

func TestOpenSubtasksOfATaskThatEnds(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{})
		running := p.delegateMany(t, 1)[0]
		early := func(want string) {
			t.Helper()
			_, err := f.Complete(f.Ctx, p.held, picket.Completion{Output: picket.RawJSON(`1`)})
			kit.Refused(t, err, picket.CodeChildrenOpen)
			if !strings.Contains(err.Error(), want) {
				t.Errorf("told %q, want %q", err, want)
			}
		}
		early("the subtask " + running.lease.TaskID + " has not ended")
		queued := p.mustDelegate(t, "", picket.Subtask{Review: picket.ReviewByNone}).TaskID
		early("2 subtasks have not ended, the first of them is " + running.lease.TaskID)
		for range 2 {
			if state := p.mustComplete(t,
				picket.Completion{Children: picket.ChildrenDetach}); state != picket.TaskReview {
				t.Fatalf("detached it is %s", state)
			}
		}
		if task := f.WantState(t, running.lease.TaskID, picket.TaskLeased); task.ReviewBy != picket.ReviewByHuman {
			t.Fatalf("a detached subtask is reviewed by %s", task.ReviewBy)
		}
		if task := f.WantState(t, queued, picket.TaskQueued); task.ReviewBy != picket.ReviewByNone {
			t.Fatalf("a detached subtask that nobody was to review is reviewed by %s", task.ReviewBy)
		}
		running.mustComplete(t, picket.Completion{})
		_, err := f.Approve(f.Ctx, kit.Operator, running.lease.TaskID, picket.Decision{})
		kit.OK(t, err)
		_, err = f.Cancel(f.Ctx, kit.Operator, queued, "")
		kit.OK(t, err)

		p = f.leaseTask(t, picket.TaskSpec{Review: picket.ReviewByNone})
		running, queued = p.delegateMany(t, 1)[0], p.mustDelegate(t, "", picket.Subtask{}).TaskID
		deep := running.delegateMany(t, 1)[0]
		if state := p.mustComplete(t,
			picket.Completion{Children: picket.ChildrenCancel}); state != picket.TaskCompleted {
			t.Fatalf("it is %s", state)
		}
		for _, id := range []string{running.lease.TaskID, queued, deep.lease.TaskID} {
			f.WantState(t, id, picket.TaskCancelled)
		}
		_, err = f.Report(f.Ctx, deep.held, "", picket.Progress{Summary: "late"})
		kit.Refused(t, err, picket.CodeTaskCancelled)

		p = f.leaseTask(t, picket.TaskSpec{})
		d := p.mustDelegate(t, "a", picket.Subtask{})
		state, err := f.Fail(f.Ctx, p.held, "no idea", true)
		kit.OK(t, err)
		if state != picket.TaskQueued {
			t.Fatalf("failed it is %s", state)
		}
		f.WantState(t, d.TaskID, picket.TaskCancelled)
		// What the next run delegates under the same key is new work.
		p = p.acquireTask(t, p.lease.TaskID)
		if again := p.mustDelegate(t, "a", picket.Subtask{}); again.TaskID == d.TaskID ||
			again.State != picket.TaskQueued {
			t.Fatalf("the next run got %+v, the first one had %+v", again, d)
		}
	})
}

func TestSubtasksOutliveTheRunThatMadeThem(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{Retry: &picket.Retry{On: []picket.ExitClass{picket.ExitCrash}}})
		d := p.mustDelegate(t, "a", picket.Subtask{})
		_, err := f.Release(f.Ctx, p.held, picket.Exit{Class: picket.ExitCrash})
		kit.OK(t, err)
		f.WantState(t, d.TaskID, picket.TaskQueued)
		_, err = f.AwaitSubtask(f.Ctx, p.held, d.TaskID, 0)
		kit.Refused(t, err, picket.CodeLeaseReleased)
		leases, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "worker", Max: kit.Ptr(2)})
		kit.OK(t, err)
		if len(leases) != 2 {
			t.Fatalf("%d leases", len(leases))
		}
		for _, l := range leases {
			if l.TaskID == p.lease.TaskID {
				p = leasedTask{f, l, f.OpenLease(t, l)}
			}
		}
		if again := p.mustDelegate(t, "a", picket.Subtask{}); again.TaskID != d.TaskID ||
			again.State != picket.TaskLeased {
			t.Fatalf("the next run got %+v, the first one had %+v", again, d)
		}
		task, err := f.HeldTask(f.Ctx, p.held, "")
		kit.OK(t, err)
		if !slices.Equal(task.Children, []string{d.TaskID}) {
			t.Fatalf("get_task shows %v", task.Children)
		}
		s, err := f.AwaitSubtask(f.Ctx, p.held, d.TaskID, 0)
		kit.OK(t, err)
		if s.State != picket.TaskLeased {
			t.Fatalf("awaited %+v", s)
		}
	})
}

func TestTheLimitsOfATree(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{})
		root := p
		for range picket.MaxDepth {
			p = p.delegateMany(t, 1)[0]
		}
		_, err := f.Delegate(f.Ctx, p.held, "", picket.Subtask{Title: "deeper"})
		kit.Refused(t, err, picket.CodeDelegation)
		// Every ancestor of the deepest one voids its lease.
		path := strings.Fields(p.storedAncestors(t))
		if len(path) != picket.MaxDepth || path[0] != root.lease.TaskID {
			t.Fatalf("the path of the deepest one is %v", path)
		}
		for _, above := range path {
			tree := "pk:{default}:tree:" + root.lease.TaskID
			kit.OK(t, f.Raw.HSet(f.Ctx, tree, above, "1").Err())
			_, err = f.Renew(f.Ctx, p.held)
			kit.Refused(t, err, picket.CodeTaskCancelled)
			kit.OK(t, f.Raw.HDel(f.Ctx, tree, above).Err())
		}
		_, err = f.Renew(f.Ctx, p.held)
		kit.OK(t, err)

		for i := range picket.MaxFanOut - 1 {
			root.mustDelegate(t, fmt.Sprint(i), picket.Subtask{})
		}
		_, err = f.Delegate(f.Ctx, root.held, "one more", picket.Subtask{Title: "one more"})
		kit.Refused(t, err, picket.CodeDelegation)
		_, err = f.Delegate(f.Ctx, root.held, "3", picket.Subtask{Title: "a part"})
		kit.OK(t, err) // it exists
	})
}

// storedAncestors reads the ancestors of a task from its record, the root first.
func (f leasedTask) storedAncestors(t *testing.T) string {
	t.Helper()
	h, err := f.Raw.HGetAll(f.Ctx, "pk:{default}:task:"+f.lease.TaskID).Result()
	kit.OK(t, err)
	for field, v := range h {
		if len(v) > 64 {
			t.Errorf("the field %s has %d bytes, which costs the whole record its short form", field, len(v))
		}
	}
	return strings.Join([]string{h["root"], h["up1"], h["up2"], h["up3"], h["parent"]}, " ")
}

func TestTheSameDelegationByTwoAtOnce(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	p := f.leaseTask(t, picket.TaskSpec{BudgetEnvelope: envelopeOf(1_000_000_000, 0)})
	other := f.leaseTask(t, picket.TaskSpec{BudgetEnvelope: envelopeOf(1_000_000_000, 0)})
	made := map[string]bool{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range 24 {
		group.Go(func() {
			who := []leasedTask{p, other}[i%2]
			d, err := f.Delegate(f.Ctx, who.held, "k",
				picket.Subtask{Title: "once", BudgetEnvelope: envelopeOf(250_000_000, 0)})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			made[d.TaskID] = true
		})
	}
	group.Wait()
	if len(made) != 2 {
		t.Fatalf("made %v", made)
	}
	for _, who := range []leasedTask{p, other} {
		task, err := f.Task(f.Ctx, who.lease.TaskID)
		kit.OK(t, err)
		if len(task.Children) != 1 || task.Available != *envelopeOf(750_000_000, 0) {
			t.Fatalf("%d subtasks, %v left", len(task.Children), task.Available)
		}
	}
}
