package console

import (
	"errors"
	"slices"

	"github.com/picket-dev/picket"
)

func taskRoutes() []route {
	return []route{
		show("task", tasksPath+"/:id", personScopes, showTask, "GET /api/v1/tasks/:id", "GET /api/v1/tasks/:id/explain",
			"GET /api/v1/tasks/:id/reports", "GET /api/v1/tasks/:id/evidence", "GET /api/v1/tasks/:id/logs"),
		act("task.cancel", tasksPath+"/:id/cancel", operatorScopes, cancelTask, "POST /api/v1/tasks/:id/cancel"),
		act("task.retry", tasksPath+"/:id/retry", operatorScopes, retryTask, "POST /api/v1/tasks/:id/retry"),
		act("task.expire", tasksPath+"/:id/expire", operatorScopes, expireTask, "POST /api/v1/leases/:task/expire"),
		act("task.topup", tasksPath+"/:id/top-up", operatorScopes, topUpTask, "POST /api/v1/envelopes/:id/top-up"),
	}
}

// Bounds of the page, in bytes of text or in rows.
const (
	maxExcerpt          = 6 << 10
	maxRunsShown        = 20
	maxReports          = 10
	maxTreeRows         = 25
	maxEventsShown      = 25
	maxDiffExcerpt      = 12 << 10
	maxDiffExcerptLines = 300
)

// taskView is what the page of a task shows.
type taskView struct {
	picket.Task
	Path      string
	Labels    []pair
	Input     excerpt
	Output    excerpt
	Why       picket.Explanation
	Steps     []step
	Earlier   int // runs that are not shown
	Reports   []picket.Report
	More      int // older reports
	Tree      []envelopeRow
	TreeMore  bool
	Calls     []picket.OpenCall
	Subtasks  []taskRow // subtasks
	Run       *picket.Run
	Evidence  *picket.Evidence
	Diff      []diffLine
	DiffMore  bool
	Logs      []logTail
	Events    []eventRow
	Form      formInput
	MayCancel bool
	MayRetry  bool
	MayExpire bool
	MayTopUp  bool
}

// formInput is what a person has typed into one of the forms of a page, so that a
// refusal keeps it.
type formInput struct {
	Open   string // which form
	Reason string
	USD    string
	Tokens string
	Task   string // to be stopped
}

func showTask(v *request) error { return v.taskPage(formInput{}, nil) }

// taskPage shows the task in the address, with what went wrong on it.
func (v *request) taskPage(typed formInput, problem error) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	t, err := v.loadTask(v.Param("id"))
	if err != nil {
		return err
	}
	t.Form = typed
	return v.render(page{
		name:    "task",
		title:   t.Title,
		nav:     "tasks",
		topics:  append([]string{t.TaskID, "namespace."}, t.Children...),
		body:    t,
		problem: problem,
	})
}

func (v *request) loadTask(id string) (t taskView, err error) {
	if t.Task, err = v.backend.Tasks.Task(v.ctx(), id); err != nil {
		return t, err
	}
	t.Path, t.Labels = taskPath(id), sortedLabels(t.Task.Labels)
	t.Input, t.Output = newExcerpt(indentJSON(t.Task.Input), maxExcerpt),
		newExcerpt(indentJSON(t.Task.Output), maxExcerpt)
	for _, part := range []func(*request) error{t.loadExplanation, t.loadReports, t.loadMoney, t.loadSubtasks,
		t.loadEvidence, t.loadLogs, t.loadEvents} {
		if err := part(v); err != nil {
			return t, err
		}
	}
	t.Steps, t.Earlier = taskSteps(t.Task, v.parameter("runs") == "all")
	closed := t.State.Terminal()
	escalated := t.State == picket.TaskHandoff && t.Handoff != nil && t.Handoff.Kind == picket.HandoffEscalation
	t.MayCancel, t.MayTopUp = !closed, !closed
	t.MayRetry = escalated || closed && t.State != picket.TaskCompleted
	t.MayExpire = t.State == picket.TaskLeased
	return t, nil
}

func (t *taskView) loadExplanation(v *request) (err error) {
	t.Why, err = v.backend.Tasks.Explain(v.ctx(), t.TaskID)
	return err
}

func (t *taskView) loadReports(v *request) error {
	all, err := v.backend.Tasks.Reports(v.ctx(), t.TaskID)
	slices.Reverse(all)
	t.Reports = all[:min(len(all), maxReports)]
	t.More = len(all) - len(t.Reports)
	return err
}

func (t *taskView) loadMoney(v *request) error {
	e, err := v.backend.Budgets.Envelope(v.ctx(), t.TaskID)
	if errors.Is(err, picket.CodeNotFound) {
		return nil // its books have been deleted
	}
	t.Tree, t.TreeMore = flattenTree(e, maxTreeRows)
	t.Calls = e.Calls[:min(len(e.Calls), maxTreeRows)]
	return err
}

// loadSubtasks are the subtasks. There is a question only where there are some.
func (t *taskView) loadSubtasks(v *request) error {
	if len(t.Children) == 0 {
		return nil
	}
	page, err := v.backend.Tasks.Tasks(v.ctx(), picket.TaskQuery{Parent: t.TaskID, Limit: pageRows})
	t.Subtasks = taskRows(page.Tasks)
	titles := titlesOf(page.Tasks)
	titles[t.TaskID] = t.Title
	for i := range t.Tree {
		t.Tree[i].Title = titles[t.Tree[i].ID]
	}
	return err
}

// selectRun is the run whose work is shown: the one in the address, or the latest.
func (t *taskView) selectRun(v *request) *picket.Run {
	if t.Run != nil || len(t.Runs) == 0 {
		return t.Run
	}
	t.Run = &t.Runs[len(t.Runs)-1]
	for i, r := range t.Runs {
		if r.RunID == v.parameter("run") {
			t.Run = &t.Runs[i]
		}
	}
	return t.Run
}

func (t *taskView) loadEvidence(v *request) error {
	run := t.selectRun(v)
	if run == nil {
		return nil
	}
	all, err := v.backend.Tasks.Evidence(v.ctx(), t.TaskID, run.RunID)
	if err != nil || len(all) == 0 {
		return err
	}
	t.Evidence = &all[0]
	part := newExcerpt(all[0].Diff, maxDiffExcerpt)
	lines := diffLines(part.Text)
	t.Diff = lines[:min(len(lines), maxDiffExcerptLines)]
	t.DiffMore = part.More || len(t.Diff) < len(lines)
	return nil
}

func (t *taskView) loadEvents(v *request) error {
	q := picket.EventQuery{TaskID: t.TaskID, NewestFirst: true, Limit: maxEventsShown}
	page, err := v.backend.Events.Events(v.ctx(), q)
	if err != nil {
		return err
	}
	found := page.Events
	if lowest := parseNumber(page.Next); len(found) < maxEventsShown && lowest > 0 {
		// The other events are older than the first read reaches. They are around the last change
		// of the task, or up to a quarter of an hour later, when its processes were reported.
		q.Until = t.UpdatedAt + 15*60*1000
		if page, err = v.backend.Events.Events(v.ctx(), q); err != nil {
			return err
		}
		for _, ev := range page.Events {
			if ev.Seq < lowest && len(found) < maxEventsShown {
				found = append(found, ev)
			}
		}
	}
	t.Events = v.eventRows(found)
	return nil
}
