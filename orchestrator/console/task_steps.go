package console

import (
	"cmp"
	"slices"

	"github.com/picket-dev/picket"
)

// step is one line of the story of a task. Exactly one of its parts is set.
type step struct {
	At      picket.Instant
	Begun   bool // the task was submitted
	Run     *picket.Run
	TookMs  int64 // of a run that has ended
	Waiting *picket.Handoff
	Answer  *picket.Answer
	Review  *picket.Review
	Ended   picket.TaskState // without a decision: failed, cancelled
	Current bool
}

// taskSteps tells the story of a task, oldest first; of its runs the latest ones,
// unless all are wanted. earlier is how many runs are left out.
func taskSteps(t picket.Task, all bool) (steps []step, earlier int) {
	runs := t.Runs
	if !all && len(runs) > maxRunsShown {
		earlier = len(runs) - maxRunsShown
		runs = runs[earlier:]
	}
	from := picket.Instant(0) // what was answered before the first run shown is left out too
	if earlier > 0 {
		from = runs[0].StartedAt
	}
	for i := range t.Answers {
		if t.Answers[i].At >= from {
			steps = append(steps, step{At: t.Answers[i].At, Answer: &t.Answers[i]})
		}
	}
	for i := range runs {
		s := step{At: runs[i].StartedAt, Run: &runs[i], Current: runs[i].State == picket.RunRunning}
		if end := runs[i].EndedAt; end > 0 {
			s.TookMs = int64(end - runs[i].StartedAt)
		}
		steps = append(steps, s)
	}
	if h := t.Handoff; h != nil && h.State == picket.HandoffOpen {
		steps = append(steps, step{At: h.CreatedAt, Waiting: h, Current: true})
	}
	if r := t.Review; r != nil {
		steps = append(steps, step{At: cmp.Or(r.At, t.UpdatedAt), Review: r, Current: r.Decision == nil})
	}
	if t.State == picket.TaskFailed || t.State == picket.TaskCancelled {
		steps = append(steps, step{At: t.UpdatedAt, Ended: t.State})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.At, b.At) })
	return append([]step{{At: t.CreatedAt, Begun: true}}, steps...), earlier
}

// StateText is what can be said of the state in a few words.
func (t taskView) StateText() string {
	switch t.State {
	case picket.TaskLeased:
		if t.CurrentRun != nil && t.CurrentRun.AgentID != "" {
			return "by " + clip(60, t.CurrentRun.AgentID)
		}
		return "by an agent without a name"
	case picket.TaskQueued:
		if len(t.Why.Because) > 0 {
			return clip(160, t.Why.Because[0])
		}
	case picket.TaskHandoff:
		return "waits for a person"
	case picket.TaskReview:
		return "waits for a review"
	case picket.TaskCompleted:
		return "is done"
	}
	return "will not run again"
}

// Reasons is what is left to be said of why the task is where it is.
func (t taskView) Reasons() []string {
	switch {
	case t.State == picket.TaskQueued && len(t.Why.Because) > 0:
		return t.Why.Because[1:]
	case t.State == picket.TaskHandoff:
		return t.Why.Because
	case t.State == picket.TaskReview:
		return t.Why.Because
	case t.State == picket.TaskLeased && len(t.Why.Because) > 1:
		return t.Why.Because[:1] // such as that no reaper runs, before what is shown anyway
	}
	return nil
}
