package orchestrator_test

import (
	"slices"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// leasedTask is a task that is leased, with helpers for what is below it.
type leasedTask struct {
	*fixture
	lease picket.Lease
	held  picket.LeaseCredential
}

func (f *fixture) leaseTask(t *testing.T, spec picket.TaskSpec) leasedTask {
	t.Helper()
	f.MustSubmit(t, spec)
	l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "worker"})
	return leasedTask{f, l, f.OpenLease(t, l)}
}

// mustDelegate delegates a subtask; an empty key makes another each time.
func (f leasedTask) mustDelegate(t *testing.T, key string, s picket.Subtask) picket.Delegated {
	t.Helper()
	if s.Title == "" {
		s.Title = "a part"
	}
	d, err := f.Delegate(f.Ctx, f.held, key, s)
	kit.OK(t, err)
	return d
}

// acquireTask leases one of the tasks that are queued and leaves the others.
func (f leasedTask) acquireTask(t *testing.T, taskID string) (got leasedTask) {
	t.Helper()
	leases, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "helper", Max: kit.Ptr(30)})
	kit.OK(t, err)
	for _, l := range leases {
		if l.TaskID == taskID {
			got = leasedTask{f.fixture, l, f.fixture.OpenLease(t, l)}
		} else {
			kit.OK(t, f.Undeliver(f.Ctx, l.RunID))
		}
	}
	if got.fixture == nil {
		t.Fatalf("%s is not among %d leases", taskID, len(leases))
	}
	return got
}

func (f leasedTask) mustComplete(t *testing.T, c picket.Completion) picket.TaskState {
	t.Helper()
	if c.Output == nil {
		c.Output = picket.RawJSON(`"done"`)
	}
	state, err := f.Complete(f.Ctx, f.held, c)
	kit.OK(t, err)
	return state
}

func envelopeOf(m budget.Money, tokens int64) *budget.Envelope {
	return &budget.Envelope{USD: m, Tokens: tokens}
}

func TestDelegateAwaitReview(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		window, priority := 60, 7
		p := f.leaseTask(t, picket.TaskSpec{
			BudgetEnvelope:     envelopeOf(1_000_000_000, 1000),
			LeaseWindowSeconds: &window,
			Priority:           &priority,
			Labels:             map[string]string{"issue": "12"},
		})
		d := p.mustDelegate(t, "one", picket.Subtask{
			Input:          picket.RawJSON(`{"n":1}`),
			BudgetEnvelope: envelopeOf(400_000_000, 100),
		})
		if d.State != picket.TaskQueued || d.Available != *envelopeOf(600_000_000, 900) {
			t.Fatalf("delegated %+v", d)
		}
		again := p.mustDelegate(t, "one",
			picket.Subtask{Input: picket.RawJSON(`{"n":1}`), BudgetEnvelope: envelopeOf(400_000_000, 100)})
		if again != d {
			t.Fatalf("the same key again made %+v, before %+v", again, d)
		}
		_, err := f.Delegate(f.Ctx, p.held, "one", picket.Subtask{Title: "another part"})
		kit.Refused(t, err, picket.CodeIdempotencyConflict)

		s, err := f.AwaitSubtask(f.Ctx, p.held, d.TaskID, 0)
		kit.OK(t, err)
		if s.Settled || s.State != picket.TaskQueued || len(s.Because) == 0 {
			t.Fatalf("a queued subtask is %+v", s)
		}
		_, err = f.ReviewSubtask(f.Ctx, p.held, "", picket.SubtaskReview{TaskID: d.TaskID, Decision: "approve"})
		kit.Refused(t, err, picket.CodeStateConflict)

		c := p.acquireTask(t, d.TaskID)
		task, err := f.Task(f.Ctx, d.TaskID)
		kit.OK(t, err)
		if task.Parent == nil || *task.Parent != p.lease.TaskID || task.Root != p.lease.TaskID ||
			task.LeaseWindowSeconds != window ||
			task.Priority != priority || task.Labels["issue"] != "12" || task.ReviewBy != picket.ReviewByParent ||
			task.CreatedBy != p.lease.RunID || c.lease.BudgetEnvelope != *envelopeOf(400_000_000, 100) {
			t.Fatalf("the subtask is %+v", task)
		}
		if state := c.mustComplete(t,
			picket.Completion{Output: picket.RawJSON(`{"made":1}`), Summary: "made it"}); state != picket.TaskReview {
			t.Fatalf("handed in, it is %s", state)
		}
		s, err = f.AwaitSubtask(f.Ctx, p.held, d.TaskID, 0)
		kit.OK(t, err)
		if !s.Settled || s.State != picket.TaskReview || string(s.Output) != `{"made":1}` || s.Summary != "made it" {
			t.Fatalf("in review it is %+v", s)
		}
		for range 2 { // the second time its answer was lost
			s, err = f.ReviewSubtask(f.Ctx, p.held, "",
				picket.SubtaskReview{TaskID: d.TaskID, Decision: "approve", Note: "good"})
			kit.OK(t, err)
			if s.State != picket.TaskCompleted || s.Review.By != p.lease.RunID || s.Review.Note != "good" {
				t.Fatalf("approved it is %+v, %+v", s, s.Review)
			}
		}
		_, err = f.ReviewSubtask(f.Ctx, p.held, "", picket.SubtaskReview{TaskID: d.TaskID, Decision: "reject"})
		kit.Refused(t, err, picket.CodeTaskClosed)
		if state := p.mustComplete(t, picket.Completion{}); state != picket.TaskReview {
			t.Fatalf("the parent is %s", state)
		}
	})
}

func TestARejectedSubtaskIsRepairedByAnother(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{BudgetEnvelope: envelopeOf(1_000_000_000, 0)})
		d := p.mustDelegate(t, "", picket.Subtask{
			Title:          "draft",
			Input:          picket.RawJSON(`"a poem"`),
			Role:           "",
			BudgetEnvelope: envelopeOf(400_000_000, 0),
		})
		c := p.acquireTask(t, d.TaskID)
		_, err := f.ReviewSubtask(f.Ctx, c.held, "", picket.SubtaskReview{TaskID: d.TaskID, Decision: "approve"})
		kit.Refused(t, err, picket.CodeAuthorCannotReview)
		c.mustComplete(t, picket.Completion{})
		// Nobody but the run of the parent.
		other := f.leaseTask(t, picket.TaskSpec{})
		_, err = f.ReviewSubtask(f.Ctx, other.held, "", picket.SubtaskReview{TaskID: d.TaskID, Decision: "approve"})
		kit.Refused(t, err, picket.CodeNotFound)
		_, err = f.AwaitSubtask(f.Ctx, other.held, d.TaskID, 0)
		kit.Refused(t, err, picket.CodeNotFound)

		var fix string
		for range 2 {
			s, err := f.ReviewSubtask(f.Ctx, p.held, "",
				picket.SubtaskReview{TaskID: d.TaskID, Decision: "reject", Note: "it must rhyme"})
			kit.OK(t, err)
			if s.State != picket.TaskRejected || s.Review.FixTaskID == nil || fix != "" && fix != *s.Review.FixTaskID {
				t.Fatalf("rejected it is %+v, %+v", s, s.Review)
			}
			fix = *s.Review.FixTaskID
		}
		task, err := f.Task(f.Ctx, p.lease.TaskID)
		kit.OK(t, err)
		if !slices.Equal(task.Children, []string{d.TaskID, fix}) || task.Available != *envelopeOf(600_000_000, 0) {
			t.Fatalf("the parent has children %v and %v left", task.Children, task.Available)
		}
		c = p.acquireTask(t, fix)
		if c.lease.Task.ReviewNote != "it must rhyme" || string(c.lease.Task.Input) != `"a poem"` ||
			c.lease.Task.Title != "draft" ||
			c.lease.BudgetEnvelope != *envelopeOf(400_000_000, 0) || c.lease.Task.Fixes == nil ||
			*c.lease.Task.Fixes != d.TaskID {
			t.Fatalf("the repair is %+v with %v", c.lease.Task, c.lease.BudgetEnvelope)
		}
		c.mustComplete(t, picket.Completion{})
		s, err := f.ReviewSubtask(f.Ctx, p.held, "", picket.SubtaskReview{TaskID: fix, Decision: "approve"})
		kit.OK(t, err)
		if s.State != picket.TaskCompleted {
			t.Fatalf("the repair is %+v", s)
		}
		p.mustComplete(t, picket.Completion{})
	})
}
