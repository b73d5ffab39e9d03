package orchestrator_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

type awaitResult struct {
	state picket.SubtaskState
	err   error
}

// awaitInBackground waits for a subtask beside the test; on the virtual clock it returns
// once the wait stands.
func (f leasedTask) awaitInBackground(id string, wait time.Duration) <-chan awaitResult {
	got := make(chan awaitResult, 1)
	go func() {
		s, err := f.AwaitSubtask(f.Ctx, f.held, id, wait)
		got <- awaitResult{s, err}
	}()
	if f.Virtual {
		synctest.Wait()
	}
	return got
}

func TestAwaitWakesWithTheSubtask(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{StallAfterSeconds: kit.Ptr(3600)})
		for _, c := range []struct {
			want picket.TaskState
			act  func(c leasedTask) error
		}{
			{picket.TaskReview, func(c leasedTask) error {
				_, err := f.Complete(f.Ctx, c.held, picket.Completion{Output: picket.RawJSON(`1`)})
				return err
			}},
			{picket.TaskHandoff, func(c leasedTask) error {
				_, err := f.RequestHelp(f.Ctx, c.held, picket.HelpRequest{Question: "which?"})
				return err
			}},
			{picket.TaskCancelled, func(c leasedTask) error {
				_, err := f.Cancel(f.Ctx, kit.Operator, c.lease.TaskID, "no")
				return err
			}},
		} {
			child := p.delegateMany(t, 1)[0]
			got := p.awaitInBackground(child.lease.TaskID, 50*time.Second)
			began := time.Now()
			kit.OK(t, c.act(child))
			a := <-got
			if took := time.Since(began); f.Virtual && took > time.Second {
				t.Fatalf("it woke %s later", took)
			}
			kit.OK(t, a.err)
			if a.state.State != c.want || !a.state.Settled {
				t.Fatalf("awaited %+v, want %s", a.state, c.want)
			}
			if c.want == picket.TaskHandoff && a.state.Reason != "which?" {
				t.Fatalf("the parent is told %q", a.state.Reason)
			}
		}
		// A child that waits for its agent reports it when the wait runs out.
		queued := p.mustDelegate(t, "", picket.Subtask{Role: "poet"}).TaskID
		s, err := f.AwaitSubtask(f.Ctx, p.held, queued, time.Second)
		kit.OK(t, err)
		why := strings.Join(s.Because, "; ")
		if s.Settled || !strings.Contains(why, "nobody is waiting on this lane (role poet)") ||
			!strings.Contains(why, "no registered agent serves this lane") {
			t.Fatalf("awaited %+v", s)
		}
		// Anyone who waits is alive, however long it takes; the end of the parent's own
		// lease ends its waiting.
		got := p.awaitInBackground(queued, 50*time.Second)
		if f.Virtual {
			f.RunReaperFor(t, 30*time.Second)
			if r, err := f.Renew(f.Ctx, p.held); err != nil || r.IdleMs == nil || *r.IdleMs != 0 {
				t.Fatalf("a parent that waits is told to be idle: %+v, %v", r, err)
			}
		}
		_, err = f.Expire(f.Ctx, kit.Operator, p.lease.TaskID, "")
		kit.OK(t, err)
		a := <-got
		kit.Refused(t, a.err, picket.CodeLeaseExpired)
	})
}

func TestWaitingForASubtaskIsNoLoop(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(3600)})
		d := p.mustDelegate(t, "", picket.Subtask{})
		for range 12 {
			_, err := f.AwaitSubtask(f.Ctx, p.held, d.TaskID, time.Millisecond)
			kit.OK(t, err)
		}
		f.WantState(t, p.lease.TaskID, picket.TaskLeased)
		// One that does not wait at all and asks for ever is in a loop.
		var err error
		for i := 0; err == nil && i < 12; i++ {
			_, err = f.AwaitSubtask(f.Ctx, p.held, d.TaskID, 0)
		}
		kit.Refused(t, err, picket.CodeLeaseReleased)
	})
}

func TestPeopleAndTheTree(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{BudgetEnvelope: envelopeOf(1_000_000_000, 0)})
		// A person may decide for the parent; the repair stands where the first one stood.
		d := p.mustDelegate(t, "", picket.Subtask{BudgetEnvelope: envelopeOf(900_000_000, 0)})
		p.acquireTask(t, d.TaskID).mustComplete(t, picket.Completion{})
		_, fix, err := f.Reject(f.Ctx, kit.Operator, d.TaskID, picket.Decision{Note: "no"},
			&picket.TaskSpec{Title: "better"})
		kit.OK(t, err)
		repair := f.WantState(t, fix, picket.TaskQueued)
		if repair.Parent == nil || *repair.Parent != p.lease.TaskID ||
			repair.BudgetEnvelope != *envelopeOf(1_000_000_000, 0) {
			t.Fatalf("the repair has %v under %v", repair.BudgetEnvelope, repair.Parent)
		}
		_, err = f.Cancel(f.Ctx, kit.Operator, fix, "")
		kit.OK(t, err)
		again, err := f.Retry(f.Ctx, kit.Operator, fix, "")
		kit.OK(t, err)
		if again.Parent == nil || *again.Parent != p.lease.TaskID {
			t.Fatalf("the repeat stands under %v", again.Parent)
		}
		// What a person reviews, the parent does not.
		h := p.mustDelegate(t, "", picket.Subtask{Review: picket.ReviewByHuman})
		p.acquireTask(t, h.TaskID).mustComplete(t, picket.Completion{})
		_, err = f.ReviewSubtask(f.Ctx, p.held, "", picket.SubtaskReview{TaskID: h.TaskID, Decision: "approve"})
		kit.Refused(t, err, picket.CodeForbidden)
		asking := p.acquireTask(t, again.TaskID)
		help, err := f.RequestHelp(f.Ctx, asking.held, picket.HelpRequest{Question: "which?"})
		kit.OK(t, err)

		// Once the tree is cancelled nobody brings anything of it back, though it
		// is not written down yet.
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:tree:"+p.lease.TaskID, p.lease.TaskID, "1").Err())
		_, err = f.Answer(f.Ctx, kit.Operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`"a"`)})
		kit.Refused(t, err, picket.CodeTaskClosed)
		_, err = f.Approve(f.Ctx, kit.Operator, h.TaskID, picket.Decision{})
		kit.Refused(t, err, picket.CodeTaskClosed)
		kit.OK(t, f.Raw.HDel(f.Ctx, "pk:{default}:tree:"+p.lease.TaskID, p.lease.TaskID).Err())
		_, err = f.Cancel(f.Ctx, kit.Operator, p.lease.TaskID, "")
		kit.OK(t, err)
		f.WantState(t, h.TaskID, picket.TaskCancelled)
		alone, err := f.Retry(f.Ctx, kit.Operator, h.TaskID, "")
		kit.OK(t, err)
		if alone.Parent != nil || alone.Root != alone.TaskID || alone.ReviewBy != picket.ReviewByHuman {
			t.Fatalf("repeated after its parent was over it is %+v", alone)
		}
	})
}

// TestCancelAgainstGrant: in either order, what is below a cancelled task ends cancelled, and no
// lease of it holds.
func TestCancelAgainstGrant(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	granted := 0
	for round := range 40 {
		root := f.leaseTask(t, picket.TaskSpec{})
		d := root.mustDelegate(t, "", picket.Subtask{})
		var leases []picket.Lease
		acts := []func() error{
			func() error { _, err := f.Cancel(f.Ctx, kit.Operator, root.lease.TaskID, ""); return err },
			func() (err error) {
				leases, err = f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "late"})
				return err
			},
		}
		other := make(chan error, 1)
		go func() { other <- acts[round%2]() }()
		kit.OK(t, acts[1-round%2]())
		kit.OK(t, <-other)
		for _, l := range leases {
			granted++
			_, err := f.Renew(f.Ctx, f.OpenLease(t, l))
			kit.Refused(t, err, picket.CodeTaskCancelled)
		}
		f.countChoreSteps(t)
		f.WantState(t, d.TaskID, picket.TaskCancelled)
	}
	t.Logf("40 rounds of cancel against grant, the grant came first in %d", granted)
}

func TestATreeIsKeptUntilAllOfItHasEnded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{Review: picket.ReviewByNone})
		open, done := p.delegateMany(t, 1)[0], p.delegateMany(t, 1)[0]
		done.mustComplete(t, picket.Completion{})
		_, err := f.ReviewSubtask(f.Ctx, p.held, "",
			picket.SubtaskReview{TaskID: done.lease.TaskID, Decision: "approve"})
		kit.OK(t, err)
		p.mustComplete(t, picket.Completion{Children: picket.ChildrenDetach})
		later := func() {
			kit.OK(t, f.Raw.HIncrBy(f.Ctx, "pk:{default}:meta", "now", (2*time.Hour).Milliseconds()).Err())
		}
		keep := picket.Retention{Tasks: time.Minute}
		later()
		retain := func() {
			for range 10 {
				_, err := f.ApplyRetention(f.Ctx, keep, 100)
				kit.OK(t, err)
			}
		}
		retain()
		if task := f.WantState(t, p.lease.TaskID, picket.TaskCompleted); len(task.Children) != 2 {
			t.Fatalf("of its subtasks %v are left", task.Children)
		}
		_, err = f.Cancel(f.Ctx, kit.Operator, open.lease.TaskID, "")
		kit.OK(t, err)
		// The children go first, then, an hour later, what they stood under.
		later()
		retain()
		for _, c := range []leasedTask{open, done} {
			_, err = f.Task(f.Ctx, c.lease.TaskID)
			kit.Refused(t, err, picket.CodeNotFound)
		}
		later()
		retain()
		_, err = f.Task(f.Ctx, p.lease.TaskID)
		kit.Refused(t, err, picket.CodeNotFound)
		keys, err := f.Raw.Keys(f.Ctx, "pk:{default}:*task_*").Result()
		kit.OK(t, err)
		if len(keys) > 0 {
			t.Fatalf("left behind: %v", keys)
		}
	})
}

func TestSubtasksOfAPinnedTask(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{Agent: "run-1"})
		l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "run-1", PinnedOnly: true})
		p := leasedTask{f, l, f.OpenLease(t, l)}
		plain, poem := p.mustDelegate(t, "", picket.Subtask{}).TaskID,
			p.mustDelegate(t, "", picket.Subtask{Role: "poet"}).TaskID
		deep := func(l picket.Lease) string {
			return leasedTask{f, l, f.OpenLease(t, l)}.mustDelegate(t, "",
				picket.Subtask{Needs: []string{"rhyme"}}).TaskID
		}
		if got, err := f.Acquire(f.Ctx, kit.Operator,
			picket.AcquireRequest{AgentID: "run-2", PinnedOnly: true, Max: kit.Ptr(9)}); err != nil || len(got) > 0 {
			t.Fatalf("another run's adapter got %v, %v", got, err)
		}
		poet := f.AcquireOne(t, picket.AcquireRequest{AgentID: "somebody", Role: "poet", Max: kit.Ptr(9)})
		if poet.TaskID != poem {
			t.Fatalf("the poet got %s", poet.TaskID)
		}
		below := deep(poet)
		got, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "run-1", PinnedOnly: true,
			Max: kit.Ptr(9)})
		kit.OK(t, err)
		var ids []string
		for _, l := range got {
			ids = append(ids, l.TaskID)
		}
		slices.Sort(ids)
		want := []string{plain, below}
		slices.Sort(want)
		if !slices.Equal(ids, want) {
			t.Fatalf("the run's adapter got %v, want %v", ids, want)
		}
		waits := p.mustDelegate(t, "", picket.Subtask{Role: "poet"}).TaskID
		why, err := f.Explain(f.Ctx, waits)
		kit.OK(t, err)
		if text := strings.Join(why.Because, "; "); !strings.Contains(text,
			"agent run-1, which runs the parent task") {
			t.Fatalf("explained as %s", text)
		}
		page, err := f.Tasks(f.Ctx, picket.TaskQuery{Parent: p.lease.TaskID})
		kit.OK(t, err)
		if len(page.Tasks) != 3 || page.Tasks[0].TaskID != waits || *page.Tasks[1].Parent != p.lease.TaskID {
			t.Fatalf("listed %+v", page.Tasks)
		}
	})
}
