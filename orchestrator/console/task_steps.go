package console

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"

	"github.com/picket-dev/picket"
)

// step is one line of the story of a task. Exactly one of its parts is set.
type step struct {
	At      picket.Instant
	Begun   bool // the task was submitted
	Run     *picket.Run
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
		steps = append(steps,
			step{At: runs[i].StartedAt, Run: &runs[i], Current: runs[i].State == picket.RunRunning})
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

// runOf is a run of a task, nil if it has no such run.
func runOf(t picket.Task, id string) *picket.Run {
	for i := range t.Runs {
		if t.Runs[i].RunID == id {
			return &t.Runs[i]
		}
	}
	return nil
}

// runTime is how long a run took, in ms; 0 until it has ended.
func runTime(r *picket.Run) int64 {
	if r.EndedAt.IsZero() {
		return 0
	}
	return int64(r.EndedAt - r.StartedAt)
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

// WindowMs is how long a renewal makes the lease last.
func (t taskView) WindowMs() int64 { return int64(t.LeaseWindowSeconds) * 1000 }

// TimeLeft is what is left of the lease; near its end it calls for a look.
func (t taskView) TimeLeft(now picket.Instant) template.HTML {
	at, ttl, class := t.LeaseExpiresAt, t.WindowMs(), ""
	switch left := int64(at - now); {
	case left <= 0:
		class = "over"
	case left < ttl/5:
		class = "ending"
	}
	return template.HTML(fmt.Sprintf(`<time class="%s" datetime="%s" title="%s" data-at="%d" data-how="left" data-ttl="%d">%s</time>`,
		class, at, at.Time().Format("2006-01-02 15:04:05 UTC"), int64(at), ttl, untilText(at.Time().Sub(now.Time()))))
}

// LeaseShare is what is left of the lease in hundredths of the window.
func (t taskView) LeaseShare(now picket.Instant) int {
	if t.LeaseWindowSeconds <= 0 {
		return 0
	}
	return int(min(max(int64(t.LeaseExpiresAt-now)*100/t.WindowMs(), 0), 100))
}
