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

// stepsOf tells the story of a task, oldest first; of its runs the latest ones,
// unless all are wanted. earlier is how many runs are left out.
func stepsOf(t picket.Task, all bool) (steps []step, earlier int) {
	runs := t.Runs
	if !all && len(runs) > maxRunsShown {
		earlier = len(runs) - maxRunsShown
		runs = runs[earlier:]
	}
	from := picket.Instant(0) // what was answered before the first run shown is left out too
	if earlier > 0 {
		from = runs[0].StartedAt
	}
	for i := range runs {
		s := step{At: runs[i].StartedAt, Run: &runs[i], Current: runs[i].State == picket.RunRunning}
		if end := runs[i].EndedAt; end > 0 {
			s.TookMs = int64(end - runs[i].StartedAt)
		}
		steps = append(steps, s)
	}
	for i := range t.Answers {
		if t.Answers[i].At >= from {
			steps = append(steps, step{At: t.Answers[i].At, Answer: &t.Answers[i]})
		}
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
