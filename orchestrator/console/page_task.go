package console

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/picket-dev/picket"
)

// taskReads is what the page of a task asks of the engine.
type taskReads interface {
	Task(ctx context.Context, taskID string) (picket.Task, error)
	Explain(ctx context.Context, taskID string) (picket.Explanation, error)
	Reports(ctx context.Context, taskID string) ([]picket.Report, error)
	Evidence(ctx context.Context, taskID, runID string) ([]picket.Evidence, error)
	Log(ctx context.Context, taskID, runID, stream string, offset int64, limit int) (picket.LogChunk, error)
}

func taskPages() []route {
	return []route{
		{
			name:   "task",
			method: get,
			path:   tasksPath + "/:id",
			scopes: people,
			as: []string{"GET /api/v1/tasks/:id", "GET /api/v1/tasks/:id/explain",
				"GET /api/v1/tasks/:id/reports", "GET /api/v1/tasks/:id/evidence", "GET /api/v1/tasks/:id/logs"},
			handle: task,
		},
		{
			name:   "task.cancel",
			method: post,
			path:   tasksPath + "/:id/cancel",
			scopes: operators,
			as:     []string{"POST /api/v1/tasks/:id/cancel"},
			handle: cancelTask,
		},
		{
			name:   "task.retry",
			method: post,
			path:   tasksPath + "/:id/retry",
			scopes: operators,
			as:     []string{"POST /api/v1/tasks/:id/retry"},
			handle: retryTask,
		},
		{
			name:   "task.expire",
			method: post,
			path:   tasksPath + "/:id/expire",
			scopes: operators,
			as:     []string{"POST /api/v1/leases/:task/expire"},
			handle: expireTask,
		},
		{
			name:   "task.topup",
			method: post,
			path:   tasksPath + "/:id/top-up",
			scopes: operators,
			as:     []string{"POST /api/v1/envelopes/:id/top-up"},
			handle: topUpTask,
		},
	}
}

// Bounds of the page, in bytes of text or in rows.
const (
	maxExcerpt    = 6 << 10
	maxRunsShown  = 20
	maxReports    = 10
	maxTreeRows   = 25
	maxEventsHere = 25
	maxDiffHere   = 12 << 10
	fewDiffLines  = 300
)

// taskView is what the page of a task shows.
type taskView struct {
	picket.Task
	Path      string
	Labels    []pair
	Input     extract
	Output    extract
	Why       picket.Explanation
	Steps     []step
	Earlier   int // runs that are not shown
	Reports   []picket.Report
	More      int // older reports
	Tree      []treeRow
	TreeMore  bool
	Calls     []picket.OpenCall
	Family    []taskRow // subtasks
	Run       *picket.Run
	Evidence  *picket.Evidence
	Diff      []diffLine
	DiffMore  bool
	Logs      []logTail
	Events    []eventRow
	Acting    acting
	MayCancel bool
	MayRetry  bool
	MayExpire bool
	MayTopUp  bool
}

// acting is what a person has typed into one of the forms of a page, so that a
// refusal keeps it.
type acting struct {
	Open   string // which form
	Reason string
	USD    string
	Tokens string
	Task   string // to be stopped
}

func task(v *visit) error { return v.taskPage(acting{}, nil) }

// taskPage shows the task in the address, with what went wrong on it.
func (v *visit) taskPage(typed acting, problem error) error {
	if err := v.look(); err != nil {
		return err
	}
	t, err := v.taskView(v.Param("id"))
	if err != nil {
		return err
	}
	t.Acting = typed
	status := http.StatusOK
	if problem != nil {
		status = picket.CodeOf(problem).Status()
	}
	return v.show(status, page{
		name:    "task",
		title:   t.Title,
		nav:     "tasks",
		topics:  append([]string{t.TaskID, "namespace."}, t.Children...),
		body:    t,
		problem: problem,
	})
}

func (v *visit) taskView(id string) (t taskView, err error) {
	if t.Task, err = v.desk.Task(v.ctx(), id); err != nil {
		return t, err
	}
	t.Path, t.Labels = taskPath(id), labelsOf(t.Task.Labels)
	t.Input, t.Output = extractOf(pretty(t.Task.Input), maxExcerpt), extractOf(pretty(t.Task.Output), maxExcerpt)
	for _, part := range []func(*visit) error{t.explain, t.reports, t.money, t.family, t.evidence, t.logs, t.events} {
		if err := part(v); err != nil {
			return t, err
		}
	}
	t.Steps, t.Earlier = stepsOf(t.Task, v.parameter("runs") == "all")
	closed := t.State.Terminal()
	escalated := t.State == picket.TaskHandoff && t.Handoff != nil && t.Handoff.Kind == picket.HandoffEscalation
	t.MayCancel, t.MayTopUp = !closed, !closed
	t.MayRetry = escalated || closed && t.State != picket.TaskCompleted
	t.MayExpire = t.State == picket.TaskLeased
	return t, nil
}

func (t *taskView) explain(v *visit) (err error) {
	t.Why, err = v.desk.Explain(v.ctx(), t.TaskID)
	return err
}

func (t *taskView) reports(v *visit) error {
	all, err := v.desk.Reports(v.ctx(), t.TaskID)
	slices.Reverse(all)
	t.Reports = all[:min(len(all), maxReports)]
	t.More = len(all) - len(t.Reports)
	return err
}

func (t *taskView) money(v *visit) error {
	e, err := v.desk.Envelope(v.ctx(), t.TaskID)
	if errors.Is(err, picket.CodeNotFound) {
		return nil // its books have been deleted
	}
	t.Tree, t.TreeMore = treeOf(e, maxTreeRows)
	t.Calls = e.Calls[:min(len(e.Calls), maxTreeRows)]
	return err
}

// family are the subtasks. There is a question only where there are some.
func (t *taskView) family(v *visit) error {
	if len(t.Children) == 0 {
		return nil
	}
	page, err := v.desk.Tasks(v.ctx(), picket.TaskQuery{Parent: t.TaskID, Limit: pageRows})
	t.Family = taskRows(page.Tasks)
	titles := titlesOf(page.Tasks)
	titles[t.TaskID] = t.Title
	for i := range t.Tree {
		t.Tree[i].Title = titles[t.Tree[i].ID]
	}
	return err
}

// chosen is the run whose work is shown: the one in the address, or the latest.
func (t *taskView) chosen(v *visit) *picket.Run {
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

func (t *taskView) evidence(v *visit) error {
	run := t.chosen(v)
	if run == nil {
		return nil
	}
	all, err := v.desk.Evidence(v.ctx(), t.TaskID, run.RunID)
	if err != nil || len(all) == 0 {
		return err
	}
	t.Evidence = &all[0]
	part := extractOf(all[0].Diff, maxDiffHere)
	lines := diffLines(part.Text)
	t.Diff = lines[:min(len(lines), fewDiffLines)]
	t.DiffMore = part.More || len(t.Diff) < len(lines)
	return nil
}

func (t *taskView) events(v *visit) error {
	q := picket.EventQuery{TaskID: t.TaskID, NewestFirst: true, Limit: maxEventsHere}
	page, err := v.desk.Events(v.ctx(), q)
	if err != nil {
		return err
	}
	found := page.Events
	if lowest := wholeNumber(page.Next); len(found) < maxEventsHere && lowest > 0 {
		// The others are further back than a look goes: they are where the task was
		// changed last, or a quarter of an hour later, when its processes were told of.
		q.Until = t.UpdatedAt + 15*60*1000
		if page, err = v.desk.Events(v.ctx(), q); err != nil {
			return err
		}
		for _, ev := range page.Events {
			if ev.Seq < lowest && len(found) < maxEventsHere {
				found = append(found, ev)
			}
		}
	}
	t.Events = v.eventRows(found)
	return nil
}
