package console

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/picket-dev/picket"
)

// reviewActs is what a person does to a task in review.
type reviewActs interface {
	Approve(ctx context.Context, by picket.Caller, taskID string, d picket.Decision) (picket.Task, error)
	Reject(ctx context.Context, by picket.Caller, taskID string, d picket.Decision,
		fix *picket.TaskSpec) (picket.Task, string, error)
	ApproveAll(ctx context.Context, by picket.Caller, b picket.BulkApproval) (picket.BulkApproved, error)
}

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
	Path        string
	TaskPath    string
	Pending     bool
	Decision    *picket.Review
	Decider     string
	Asked       extract // the input
	Output      extract
	Says        extract // its own summary
	Run         *picket.Run
	TookMs      int64
	Work        *picket.Evidence // of the completing run, and of no other
	Others      []otherChanges   // of the other runs
	Files       []picket.ChangedFile
	FilesMore   int
	Diff        []diffLine
	DiffMore    bool
	Merge       string // the command that merges approved work
	ShowAll     string // the command that shows a diff that was cut
	Reports     []picket.Report
	ReportsMore int
	Calls       []picket.LedgerRow
	CallsMore   bool
	Log         extract
	LogMore     bool
	Labels      []pair
	Answers     []answerRow
	Typed       reviewTyped
	Digest      string // of what the page shows, for the decision
}

// otherChanges links to the evidence of a run that did not complete the task.
type otherChanges struct {
	RunID string
	Path  string
}

// reviewTyped is what a person has typed on the page, so that a refusal keeps it.
type reviewTyped struct {
	Form    string
	Note    string
	Digest  string
	Title   string
	Input   string
	InputAs string
	Role    string // of the task that repairs
	USD     string
	Tokens  string
}

func review(v *visit) error { return v.reviewPage(reviewTyped{}, nil) }

// reviewPage shows the evidence as it is now, with what went wrong on it.
func (v *visit) reviewPage(typed reviewTyped, problem error) error {
	if err := v.look(); err != nil {
		return err
	}
	body, err := v.reviewView(v.Param("task"))
	if err != nil {
		return err
	}
	body.Typed, body.Digest = typed, shownDigest(body.Digest, typed.Digest, problem)
	status := http.StatusOK
	if problem != nil {
		status = picket.CodeOf(problem).Status()
	}
	return v.show(status, page{
		name:    "review",
		title:   body.Title,
		nav:     "reviews",
		topics:  []string{body.TaskID},
		body:    body,
		problem: problem,
	})
}

// shownDigest is the digest that a form has when it is shown again: the one of
// the page that the person decided on, until the refusal says that it changed.
func shownDigest(now, typed string, problem error) string {
	changed := errors.Is(problem, picket.CodeVersion) || errors.Is(problem, picket.CodePreconditionRequired)
	if problem == nil || changed || typed == "" {
		return now
	}
	return typed
}

func (v *visit) reviewView(id string) (w reviewView, err error) {
	if w.Task, err = v.desk.Task(v.ctx(), id); err != nil {
		return w, err
	}
	w.Path, w.TaskPath, w.Pending = reviewPath(id), taskPath(id), w.State == picket.TaskReview
	w.Asked, w.Output, w.Says = extractOf(pretty(w.Task.CurrentInput()), maxExcerpt),
		extractOf(pretty(w.Task.Output), maxExcerpt), extractOf(w.Task.Summary, maxExcerpt)
	w.Labels = labelsOf(w.Task.Labels)
	if r := w.Task.Review; r != nil && r.Decision != nil {
		w.Decision, w.Decider = r, v.name(r.By)
	}
	if w.Task.Review != nil {
		w.Digest = w.Task.Review.Digest
	}
	for i, r := range w.Runs {
		if r.RunID == w.CompletingRun() {
			w.Run = &w.Runs[i]
		}
	}
	if w.Run != nil && !w.Run.EndedAt.IsZero() {
		w.TookMs = int64(w.Run.EndedAt - w.Run.StartedAt)
	}
	for _, a := range w.Task.Answers[max(len(w.Task.Answers)-maxAnswers, 0):] {
		w.Answers = append(w.Answers,
			answerRow{a, v.name(a.By), clip(maxLine, answerText(a)), clip(maxLine, a.Question), extract{}})
	}
	for _, part := range []func(*visit) error{w.changes, w.trail, w.calls, w.log} {
		if err := part(v); err != nil {
			return w, err
		}
	}
	return w, nil
}

// changes is what the run that completed the task has changed. Evidence of other
// runs is only named, because it is not part of the result.
func (w *reviewView) changes(v *visit) error {
	all, err := v.desk.Evidence(v.ctx(), w.TaskID, "")
	if err != nil {
		return err
	}
	for i, ev := range all {
		if w.Run != nil && ev.RunID == w.Run.RunID {
			w.Work = &all[i]
		} else {
			w.Others = append(w.Others, otherChanges{ev.RunID, address(w.TaskPath+"/diff", "run", ev.RunID)})
		}
	}
	if w.Work == nil {
		return nil
	}
	w.Files, w.FilesMore = w.Work.Files[:min(len(w.Work.Files), maxFilesShown)], max(len(w.Work.Files)-maxFilesShown, 0)
	part := extractOf(w.Work.Diff, maxDiffShown)
	w.Diff, w.DiffMore = diffLines(part.Text), part.More
	if len(w.Diff) > maxDiffLines {
		w.Diff, w.DiffMore = w.Diff[:maxDiffLines], true
	}
	w.Merge, w.ShowAll = w.Work.MergeCommand(w.TaskID), w.Work.DiffCommand(w.TaskID)
	return nil
}

// trail are the reports, the latest first.
func (w *reviewView) trail(v *visit) error {
	all, err := v.desk.Reports(v.ctx(), w.TaskID)
	for i := len(all) - 1; i >= 0 && len(w.Reports) < maxReportsShown; i-- {
		w.Reports = append(w.Reports, all[i])
	}
	w.ReportsMore = len(all) - len(w.Reports)
	return err
}

// calls are what the task has paid for, the latest first.
func (w *reviewView) calls(v *visit) error {
	rows, err := v.desk.Ledger(v.ctx(), picket.LedgerQuery{TaskID: w.TaskID, NewestFirst: true, Limit: maxCallsShown})
	w.Calls, w.CallsMore = rows.Rows, rows.Next != ""
	return err
}

// log is the end of what the run has printed: first it asks where that is.
func (w *reviewView) log(v *visit) error {
	if w.Run == nil {
		return nil
	}
	end, err := v.desk.Log(v.ctx(), w.TaskID, w.Run.RunID, "stdout", picket.MaxNumber, 1)
	if err != nil || end.Offset == 0 {
		return err
	}
	tail, err := v.desk.Log(v.ctx(), w.TaskID, w.Run.RunID, "stdout", max(end.Offset-maxLogShown, 0), maxLogShown)
	text := output(tail.Data)
	if i := strings.IndexByte(text, '\n'); tail.MidLine && i >= 0 {
		text = text[i+1:]
	}
	w.Log, w.LogMore = extract{Text: text, Size: len(text)}, tail.Offset > 0
	return err
}

// reviewFull is one of the texts of a review at full length.
func reviewFull(v *visit) error {
	id := v.Param("task")
	switch part := v.Param("part"); part {
	case "diff":
		t, err := v.desk.Task(v.ctx(), id)
		if err != nil {
			return err
		}
		if run := t.CompletingRun(); run != "" {
			all, err := v.desk.Evidence(v.ctx(), id, run)
			if err != nil {
				return err
			}
			if len(all) > 0 {
				return v.fullText(all[0].Diff)
			}
		}
	case "input", "output", "summary":
		t, err := v.desk.Task(v.ctx(), id)
		if err != nil {
			return err
		}
		return v.fullText(map[string]string{
			"input":   pretty(t.CurrentInput()),
			"output":  pretty(t.Output),
			"summary": t.Summary,
		}[part])
	case "reports":
		all, err := v.desk.Reports(v.ctx(), id)
		if err != nil {
			return err
		}
		var texts []string
		for _, r := range all {
			texts = append(texts, r.At.String()+"  "+r.RunID+"\n"+reportText(r))
		}
		return v.fullText(strings.Join(texts, "\n\n"))
	}
	return nowhere(v)
}
