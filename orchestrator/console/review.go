package console

import (
	"errors"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
)

// Bounds of the page of one review, in bytes or rows.
const (
	maxDiffShown    = 48 << 10
	maxDiffLines    = 1000
	maxReportsShown = 20
	maxCallsShown   = 50
	maxLogShown     = 8 << 10
	maxFilesShown   = 100
)

// reviewView is all the evidence of a task on one page.
type reviewView struct {
	picket.Task
	Run         *picket.Run      // that completed the task
	Work        *picket.Evidence // of that run, and of no other
	Others      []string         // the other runs that handed in changes
	Files       []picket.ChangedFile
	FilesMore   int
	Diff        []diffLine
	DiffMore    bool
	Reports     []picket.Report
	ReportsMore int
	Calls       []picket.LedgerRow
	CallsMore   bool
	Log         logTail
	Digest      string // of what the page shows, for the decision
}

// Decision is the review when it is decided, else nil.
func (w reviewView) Decision() *picket.Review {
	if w.Review == nil || w.Review.Decision == nil {
		return nil
	}
	return w.Review
}

// showReview shows the evidence as it is now.
func showReview(v *request) (page, error) {
	var w reviewView
	var err error
	if w.Task, err = v.backend.Tasks.Task(v.ctx(), v.Param("task")); err != nil {
		return page{}, err
	}
	w.Run = runOf(w.Task, w.CompletingRun())
	w.Answers = w.Answers[max(len(w.Answers)-maxAnswers, 0):]
	w.Digest = v.formDigest(w.Review)
	for _, part := range []func(*request) error{w.loadChanges, w.loadReports, w.loadCalls, w.loadLogTail} {
		if err := part(v); err != nil {
			return page{}, err
		}
	}
	return page{name: "review", title: w.Title, topics: []string{w.TaskID}, body: &w}, nil
}

// formDigest is the digest that a form has. When it is shown again it is that of the page on which
// the person decided, until a refusal reports that it has changed.
func (v *request) formDigest(now *picket.Review) string {
	typed := v.formValue("digest")
	changed := errors.Is(v.problem, picket.CodeVersion) || errors.Is(v.problem, picket.CodePreconditionRequired)
	if now != nil && (v.problem == nil || changed || typed == "") {
		return now.Digest
	}
	return typed
}

// loadChanges is what the run that completed the task has changed. Evidence of other
// runs is only named, because it is not part of the result.
func (w *reviewView) loadChanges(v *request) error {
	all, err := v.backend.Tasks.Evidence(v.ctx(), w.TaskID, "")
	if err != nil {
		return err
	}
	for i, ev := range all {
		if w.Run != nil && ev.RunID == w.Run.RunID {
			w.Work = &all[i]
		} else {
			w.Others = append(w.Others, ev.RunID)
		}
	}
	if w.Work == nil {
		return nil
	}
	w.Files, w.FilesMore = firstRows(w.Work.Files, maxFilesShown)
	w.Diff, w.DiffMore = diffExcerpt(w.Work.Diff, maxDiffShown, maxDiffLines)
	return nil
}

// loadReports are the reports, the latest first.
func (w *reviewView) loadReports(v *request) error {
	all, err := v.backend.Tasks.Reports(v.ctx(), w.TaskID)
	slices.Reverse(all)
	w.Reports, w.ReportsMore = firstRows(all, maxReportsShown)
	return err
}

// loadCalls are what the task has paid for, the latest first.
func (w *reviewView) loadCalls(v *request) error {
	rows, err := v.backend.Budgets.Ledger(v.ctx(),
		picket.LedgerQuery{TaskID: w.TaskID, NewestFirst: true, Limit: maxCallsShown})
	w.Calls, w.CallsMore = rows.Rows, rows.Next != ""
	return err
}

// loadLogTail is the end of what the run has printed.
func (w *reviewView) loadLogTail(v *request) (err error) {
	if w.Run != nil {
		w.Log, err = v.readLogTail(w.TaskID, w.Run.RunID, "stdout", maxLogShown)
	}
	return err
}

// showReviewText is one of the texts of a review at full length.
func showReviewText(v *request) error {
	id := v.Param("task")
	switch part := v.Param("part"); part {
	case "diff":
		t, err := v.backend.Tasks.Task(v.ctx(), id)
		if err != nil {
			return err
		}
		if run := t.CompletingRun(); run != "" {
			all, err := v.backend.Tasks.Evidence(v.ctx(), id, run)
			if err != nil {
				return err
			}
			if len(all) > 0 {
				return v.writeText(all[0].Diff)
			}
		}
	case "input", "output", "summary":
		t, err := v.backend.Tasks.Task(v.ctx(), id)
		if err != nil {
			return err
		}
		return v.writeText(map[string]string{
			"input":   indentJSON(t.CurrentInput()),
			"output":  indentJSON(t.Output),
			"summary": t.Summary,
		}[part])
	case "reports":
		all, err := v.backend.Tasks.Reports(v.ctx(), id)
		if err != nil {
			return err
		}
		var texts []string
		if dropped := picket.DroppedReports(all); dropped != "" {
			texts = append(texts, dropped)
		}
		for _, r := range all {
			texts = append(texts, r.At.String()+"  "+r.RunID+"\n"+reportText(r))
		}
		return v.writeText(strings.Join(texts, "\n\n"))
	}
	return notFound(v)
}
