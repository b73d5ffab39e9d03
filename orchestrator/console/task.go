package console

import (
	"errors"
	"slices"

	"github.com/picket-dev/picket"
)

// Bounds of the page, in bytes of text or in rows.
const (
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
	Why      picket.Explanation
	Steps    []step
	Earlier  int // runs that are not shown
	Reports  []picket.Report
	More     int    // older reports
	Dropped  string // what tells that the first reports are gone
	Tree     []envelopeRow
	TreeMore bool
	Calls    []picket.OpenCall
	Subtasks []picket.Task
	Run      *picket.Run // whose work is shown: the one in the address, or the latest
	Evidence *picket.Evidence
	Diff     []diffLine
	DiffMore bool
	Logs     []logTail
	Events   []picket.Event
	Messages conversation
}

func showTask(v *request) (page, error) {
	var t taskView
	var err error
	if t.Task, err = v.backend.Tasks.Task(v.ctx(), v.Param("id")); err != nil {
		return page{}, err
	}
	for i, r := range t.Runs {
		if r.RunID == v.parameter("run") || t.Run == nil && i == len(t.Runs)-1 {
			t.Run = &t.Runs[i]
		}
	}
	for _, part := range []func(*request) error{t.loadExplanation, t.loadReports, t.loadMoney, t.loadSubtasks,
		t.loadEvidence, t.loadLogs, t.loadEvents, t.loadMessages} {
		if err := part(v); err != nil {
			return page{}, err
		}
	}
	t.Steps, t.Earlier = taskSteps(t.Task, v.parameter("runs") == "all")
	return page{
		name:   "task",
		title:  t.Title,
		topics: append([]string{t.TaskID, "namespace."}, t.Children...),
		body:   &t,
	}, nil
}

func (t *taskView) loadMessages(v *request) (err error) {
	t.Messages, err = v.conversation("task", t.TaskID, !t.State.Terminal())
	return err
}

// MayRetry reports whether the task can be tried again.
func (t taskView) MayRetry() bool {
	escalated := t.State == picket.TaskHandoff && t.Handoff != nil && t.Handoff.Kind == picket.HandoffEscalation
	return escalated || t.State.Terminal() && t.State != picket.TaskCompleted
}

func (t *taskView) loadExplanation(v *request) (err error) {
	t.Why, err = v.backend.Tasks.Explain(v.ctx(), t.TaskID)
	return err
}

func (t *taskView) loadReports(v *request) error {
	all, err := v.backend.Tasks.Reports(v.ctx(), t.TaskID)
	t.Dropped = picket.DroppedReports(all)
	slices.Reverse(all)
	t.Reports, t.More = firstRows(all, maxReports)
	return err
}

func (t *taskView) loadMoney(v *request) error {
	e, err := v.backend.Budgets.Envelope(v.ctx(), t.TaskID)
	if errors.Is(err, picket.CodeNotFound) {
		return nil // its books have been deleted
	}
	t.Tree, t.TreeMore = flattenTree(e, maxTreeRows)
	t.Calls, _ = firstRows(e.Calls, maxTreeRows)
	return err
}

// loadSubtasks are the subtasks. There is a question only where there are some.
func (t *taskView) loadSubtasks(v *request) error {
	if len(t.Children) == 0 {
		return nil
	}
	page, err := v.backend.Tasks.Tasks(v.ctx(), picket.TaskQuery{Parent: t.TaskID, Limit: pageRows})
	t.Subtasks = page.Tasks
	nameRows(t.Tree, append(page.Tasks, t.Task))
	return err
}

func (t *taskView) loadEvidence(v *request) error {
	if t.Run == nil {
		return nil
	}
	all, err := v.backend.Tasks.Evidence(v.ctx(), t.TaskID, t.Run.RunID)
	if err != nil || len(all) == 0 {
		return err
	}
	t.Evidence = &all[0]
	t.Diff, t.DiffMore = diffExcerpt(all[0].Diff, maxDiffExcerpt, maxDiffExcerptLines)
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
	t.Events = found
	return nil
}
