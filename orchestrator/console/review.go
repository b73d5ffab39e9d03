package console

import (
	"errors"
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
	Path        string
	TaskPath    string
	Pending     bool
	Decision    *picket.Review
	Decider     string
	InputText   excerpt // the input
	Output      excerpt
	SummaryText excerpt // its own summary
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
	Log         excerpt
	LogMore     bool
	Labels      []pair
	Answers     []answerRow
	Typed       reviewInput
	Digest      string // of what the page shows, for the decision
}

// otherChanges links to the evidence of a run that did not complete the task.
type otherChanges struct {
	RunID string
	Path  string
}

// reviewInput is what a person has typed on the page, so that a refusal keeps it.
type reviewInput struct {
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

func showReview(v *request) error { return v.reviewPage(reviewInput{}, nil) }

// reviewPage shows the evidence as it is now, with what went wrong on it.
func (v *request) reviewPage(typed reviewInput, problem error) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	body, err := v.loadReview(v.Param("task"))
	if err != nil {
		return err
	}
	body.Typed, body.Digest = typed, formDigest(body.Digest, typed.Digest, problem)
	return v.render(page{
		name:    "review",
		title:   body.Title,
		nav:     "reviews",
		topics:  []string{body.TaskID},
		body:    body,
		problem: problem,
	})
}

// formDigest is the digest that a form has when it is shown again. It is that of the page on which
// the person decided, until a refusal reports that it has changed.
func formDigest(now, typed string, problem error) string {
	changed := errors.Is(problem, picket.CodeVersion) || errors.Is(problem, picket.CodePreconditionRequired)
	if problem == nil || changed || typed == "" {
		return now
	}
	return typed
}

func (v *request) loadReview(id string) (w reviewView, err error) {
	if w.Task, err = v.backend.Tasks.Task(v.ctx(), id); err != nil {
		return w, err
	}
	w.Path, w.TaskPath, w.Pending = reviewPath(id), taskPath(id), w.State == picket.TaskReview
	w.InputText, w.Output, w.SummaryText = newExcerpt(indentJSON(w.Task.CurrentInput()), maxExcerpt),
		newExcerpt(indentJSON(w.Task.Output), maxExcerpt), newExcerpt(w.Task.Summary, maxExcerpt)
	w.Labels = sortedLabels(w.Task.Labels)
	if r := w.Task.Review; r != nil && r.Decision != nil {
		w.Decision, w.Decider = r, v.displayName(r.By)
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
			answerRow{a, v.displayName(a.By), clip(maxSnippet, answerText(a)), clip(maxSnippet, a.Question), excerpt{}})
	}
	for _, part := range []func(*request) error{w.loadChanges, w.loadReports, w.loadCalls, w.loadLogTail} {
		if err := part(v); err != nil {
			return w, err
		}
	}
	return w, nil
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
			w.Others = append(w.Others, otherChanges{ev.RunID, queryPath(w.TaskPath+"/diff", "run", ev.RunID)})
		}
	}
	if w.Work == nil {
		return nil
	}
	w.Files, w.FilesMore = w.Work.Files[:min(len(w.Work.Files), maxFilesShown)], max(len(w.Work.Files)-maxFilesShown, 0)
	part := newExcerpt(w.Work.Diff, maxDiffShown)
	w.Diff, w.DiffMore = diffLines(part.Text), part.More
	if len(w.Diff) > maxDiffLines {
		w.Diff, w.DiffMore = w.Diff[:maxDiffLines], true
	}
	w.Merge, w.ShowAll = w.Work.MergeCommand(w.TaskID), w.Work.DiffCommand(w.TaskID)
	return nil
}

// loadReports are the reports, the latest first.
func (w *reviewView) loadReports(v *request) error {
	all, err := v.backend.Tasks.Reports(v.ctx(), w.TaskID)
	for i := len(all) - 1; i >= 0 && len(w.Reports) < maxReportsShown; i-- {
		w.Reports = append(w.Reports, all[i])
	}
	w.ReportsMore = len(all) - len(w.Reports)
	return err
}

// loadCalls are what the task has paid for, the latest first.
func (w *reviewView) loadCalls(v *request) error {
	rows, err := v.backend.Budgets.Ledger(v.ctx(),
		picket.LedgerQuery{TaskID: w.TaskID, NewestFirst: true, Limit: maxCallsShown})
	w.Calls, w.CallsMore = rows.Rows, rows.Next != ""
	return err
}

// loadLogTail is the end of what the run has printed: first it asks where that is.
func (w *reviewView) loadLogTail(v *request) error {
	if w.Run == nil {
		return nil
	}
	end, err := v.backend.Tasks.Log(v.ctx(), w.TaskID, w.Run.RunID, "stdout", picket.MaxNumber, 1)
	if err != nil || end.Offset == 0 {
		return err
	}
	tail, err := v.backend.Tasks.Log(v.ctx(), w.TaskID, w.Run.RunID, "stdout", max(end.Offset-maxLogShown, 0),
		maxLogShown)
	text := terminalText(tail.Data)
	if i := strings.IndexByte(text, '\n'); tail.MidLine && i >= 0 {
		text = text[i+1:]
	}
	w.Log, w.LogMore = excerpt{Text: text, Size: len(text)}, tail.Offset > 0
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
		for _, r := range all {
			texts = append(texts, r.At.String()+"  "+r.RunID+"\n"+reportText(r))
		}
		return v.writeText(strings.Join(texts, "\n\n"))
	}
	return notFound(v)
}
