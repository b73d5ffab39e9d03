package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// addFullReview makes a task in review with everything a reviewer looks at.
func (o *fixture) addFullReview(title string) string {
	o.t.Helper()
	ctx := o.t.Context()
	id, held := o.startRun(picket.TaskSpec{
		Title:  title,
		Role:   "coder",
		Input:  picket.RawJSON(`"make it fast"`),
		Labels: map[string]string{"team": "a"},
	})
	_, err := o.Report(ctx, held, "",
		picket.Progress{Summary: "half way there", NextStep: "measure", Blockers: []string{"no profiler"}})
	must(o.t, err)
	_, err = o.RunLog(ctx, held,
		picket.LogWrite{Stream: "stdout", Data: []byte("\x1b[32mok\x1b[0m  12 tests\nlast line\n")})
	must(o.t, err)
	_, err = o.ReportUsage(ctx, held, picket.UsageReport{Source: "claude", Session: "s", Tokens: 1234, USD: 42_000_000})
	must(o.t, err)
	_, err = o.Complete(ctx, held,
		picket.Completion{Output: picket.RawJSON(`{"speed":3.0000000000000001}`), Summary: "three times as fast"})
	must(o.t, err)
	must(o.t, o.RunEvidence(ctx, held,
		picket.Evidence{
			Repository: "/src/it's",
			Branch:     "picket/" + id,
			Base:       "abc",
			Diffstat:   "a.go | 2 +-",
			Diff:       "diff --git a/a.go b/a.go\n--- a/a.go\n+++ b/a.go\n@@ -1 +1 @@\n-slow\n+fast\n",
			Files:      []picket.ChangedFile{{Path: "a.go", Added: ptr(1), Removed: ptr(1)}},
		}))
	return id
}

func ptr[T any](v T) *T { return &v }

func TestAReviewHasAllTheEvidence(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		id := o.addFullReview("speed it up")
		list := s.mustGet("/console/reviews").text()
		for _, part := range []string{"speed it up", "three times as fast", "coder", "team=a", "$0.0420"} {
			if !strings.Contains(list, part) {
				t.Errorf("the list has no %q: %s", part, list)
			}
		}
		page := "/console/reviews/" + id
		p := s.mustGet(page)
		for _, part := range []string{"speed it up", "three times as fast", `"speed": 3.0000000000000001`, "a.go",
			"half way there", "measure", "no profiler", "claude", "$0.0420",
			"ok 12 tests last line", "make it fast", "picket/" + id} {
			if !strings.Contains(p.text(), part) {
				t.Errorf("the page has no %q: %s", part, p.text())
			}
		}
		if !strings.Contains(p.body, "<ins>&#43;fast</ins>") || !strings.Contains(p.body, "<del>-slow</del>") ||
			strings.Contains(p.body, "\x1b") {
			t.Error("the diff or the output is not shown as it is")
		}
		after := s.follow(s.submit(page, page+"/approve", "note", "good work"))
		for _, part := range []string{"Approved. The task is completed.", "approve by you", "good work",
			`git merge picket/` + id} {
			if !strings.Contains(after.text(), part) {
				t.Errorf("no %q: %s", part, after.text())
			}
		}
	})
}

// The page prints no command with words of the evidence.
func TestTheMergeCommandHasNoWordsOfTheAgent(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		for _, hostile := range []string{"--strategy=x", "x; touch pwned", "$(touch pwned)", "a'b", "a\nb",
			"picket/task_01ARZ3NDEKTSV4RRFFQ69G5FAV"} {
			id, held := o.startRun(picket.TaskSpec{Title: "speed it up"})
			_, err := o.Complete(t.Context(), held, picket.Completion{Output: picket.RawJSON(`1`), Summary: "done"})
			must(t, err)
			must(t, o.RunEvidence(t.Context(), held,
				picket.Evidence{
					Repository: "/tmp/$(touch pwned)",
					Branch:     hostile,
					Base:       "HEAD",
					Diff:       "+x\n",
					Truncated:  true,
				}))
			page := "/console/reviews/" + id
			after := s.follow(s.submit(page, page+"/approve", "note", "good work"))
			if text := after.text(); strings.Contains(text, "git merge") || strings.Contains(text, "git diff") ||
				strings.Contains(text, "/tmp/$(touch pwned)") {
				t.Errorf("branch %q: %s", hostile, text)
			}
		}
	})
}

func TestARejectionCanCarryItsRepair(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		id := o.addFullReview("speed it up")
		page := "/console/reviews/" + id
		form := s.post(page+"/fix", "note", "it leaks <memory>")
		if form.status != http.StatusOK {
			t.Fatalf("the form: %d", form.status)
		}
		for _, part := range []string{`value="Fix: speed it up"`, "it leaks &lt;memory&gt;",
			"Start from the branch of that task", "make it fast", `value="coder"`} {
			if !strings.Contains(form.body, part) {
				t.Errorf("the form has no %q", part)
			}
		}
		if task, err := o.Task(t.Context(), id); err != nil || task.State != picket.TaskReview {
			t.Fatalf("a form has decided: %s %v", task.State, err)
		}
		after := s.follow(s.post(page+"/reject", "fix", "1", "note", "it leaks", "title", "Plug it", "input",
			"find the leak", "inputAs", "text", "role", "coder", "usd", "0.25", "tokens", "5000", "once", form.nonce(t),
			"digest", o.digest(id)))
		task, err := o.Task(t.Context(), id)
		must(t, err)
		if task.State != picket.TaskRejected || task.Review.Note != "it leaks" || task.Review.FixTaskID == nil ||
			!strings.Contains(after.text(), *task.Review.FixTaskID) {
			t.Fatalf("rejected: %s %+v: %s", task.State, task.Review, after.text())
		}
		fix, err := o.Task(t.Context(), *task.Review.FixTaskID)
		must(t, err)
		if fix.Title != "Plug it" || string(fix.Input) != `"find the leak"` || fix.Fixes == nil || *fix.Fixes != id ||
			fix.Role != "coder" || fix.BudgetEnvelope.USD != 250_000_000 ||
			fix.BudgetEnvelope.Tokens != 5000 || fix.Labels["team"] != "a" {
			t.Errorf("the repair: %+v", fix)
		}
	})
}

func TestAPlainRejection(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		id := o.addReview(picket.TaskSpec{Title: "x"}, picket.Completion{Output: picket.RawJSON(`1`)})
		page := "/console/reviews/" + id
		after := s.follow(s.post(page+"/reject", "note", "wrong", "once", s.mustGet(page).nonce(t)))
		if !strings.Contains(after.text(), "reject by you") || !strings.Contains(after.text(), "wrong") {
			t.Errorf("%s", after.text())
		}
	})
}

// The second to decide sees who was first, and keeps the note and the form.
func TestTheLoserOfAReviewSeesTheWinner(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		ada, bob := o.signedIn(picket.ScopeReviewer), o.signedIn(picket.ScopeReviewer)
		id := o.addReview(picket.TaskSpec{Title: "x"}, picket.Completion{Output: picket.RawJSON(`1`)})
		page := "/console/reviews/" + id
		form := bob.mustGet(page).nonce(t)
		ada.follow(ada.submit(page, page+"/approve", "note", "fine by Ada"))
		for _, path := range []string{page + "/approve", page + "/reject"} {
			p := bob.post(path, "note", "words of Bob", "once", form)
			for _, part := range []string{ada.key.KeyID, "fine by Ada", "words of Bob", "What you wrote was not sent"} {
				if p.status != http.StatusConflict || !strings.Contains(p.text(), part) {
					t.Errorf("%s: %d, no %q: %s", path, p.status, part, p.text())
				}
			}
		}
		p := bob.post(page+"/reject", "fix", "1", "note", "words of Bob", "title", "Bob's fix", "input", "much work",
			"once", form)
		for _, part := range []string{"Bob&#39;s fix", "much work", "words of Bob", ada.key.KeyID} {
			if p.status != http.StatusConflict || !strings.Contains(p.body, part) {
				t.Errorf("%d, no %q: %s", p.status, part, p.text())
			}
		}
		if task, err := o.Task(t.Context(), id); err != nil || task.Review.By != ada.key.KeyID ||
			task.Review.FixTaskID != nil {
			t.Errorf("decided by %s", task.Review.By)
		}
	})
}

// Many are approved at once, when the person types how many; another number
// decides nothing.
func TestManyAreApprovedWithTheirCount(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		var docs []string
		for i := range 5 {
			docs = append(docs, o.addReview(picket.TaskSpec{
				Title:  fmt.Sprint("docs ", i),
				Labels: map[string]string{"kind": "docs"},
			}, picket.Completion{Output: picket.RawJSON(`1`)}))
		}
		other := o.addReview(picket.TaskSpec{Title: "code"}, picket.Completion{Output: picket.RawJSON(`1`)})
		choose := "/console/reviews/approve?label=kind%3Ddocs"
		p := s.mustGet(choose)
		if !strings.Contains(p.text(), "Approve 5 tasks") || strings.Contains(p.body, other) {
			t.Fatalf("the confirmation: %s", p.text())
		}
		for count, status := range map[string]int{"": 400, "five": 400, "4": 409, "6": 409} {
			if p := s.submit(choose, "/console/reviews/approve", "label", "kind=docs", "count", count, "note",
				"kept words"); p.status != status || !strings.Contains(p.body, "kept words") {
				t.Errorf("count %q: %d %s", count, p.status, p.text())
			}
		}
		ticked := s.mustGet("/console/reviews/approve?task=" + docs[0] + "&task=" + docs[1])
		if !strings.Contains(ticked.text(), "Approve 2 tasks") {
			t.Errorf("those that were ticked: %s", ticked.text())
		}
		s.follow(s.post("/console/reviews/approve", "task", docs[0], "task", docs[1], "count", "2", "once",
			ticked.nonce(t)))
		after := s.follow(s.submit(choose, "/console/reviews/approve", "label", "kind=docs", "count", "3", "note",
			"all fine"))
		if !strings.Contains(after.text(), "3 approved.") {
			t.Errorf("%s", after.text())
		}
		for _, id := range docs {
			if task, err := o.Task(t.Context(), id); err != nil || task.State != picket.TaskCompleted ||
				task.Review.By != s.key.KeyID {
				t.Errorf("%s is %s", task.Title, task.State)
			}
		}
		if task, err := o.Task(t.Context(), other); err != nil || task.State != picket.TaskReview {
			t.Errorf("the other is %s", task.State)
		}
	})
}

var chosenTasks = regexp.MustCompile(`name="task" value="(task_[0-9A-Z]{26})"`)

// However far back in a long queue a task is, and with no filter at all, what
// was confirmed is approved, and nothing that came later.
func TestEverythingIsApprovedThatWasConfirmed(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		const many = 25
		var last string
		for i := range many { // more than one answer of the store holds
			last = o.addReview(picket.TaskSpec{Title: fmt.Sprint("long ", i)},
				picket.Completion{Output: quoteJSON(expensiveText(120_000))})
		}
		if p := s.mustGet("/console/reviews/approve?task=" + last); !strings.Contains(p.text(), "Approve 1 task ") {
			t.Errorf("the last of the queue: %s", p.text())
		}
		p := s.mustGet("/console/reviews/approve")
		if !strings.Contains(p.text(), fmt.Sprintf("Approve %d tasks", many)) ||
			!strings.Contains(p.text(), "everything in review") {
			t.Fatalf("all of it: %s", p.text())
		}
		later := o.addReview(picket.TaskSpec{Title: "later"}, picket.Completion{Output: picket.RawJSON(`1`)})
		fields := []string{"count", fmt.Sprint(many), "once", p.nonce(t)}
		for _, m := range chosenTasks.FindAllStringSubmatch(p.body, -1) {
			fields = append(fields, "task", m[1])
		}
		if after := s.follow(s.post("/console/reviews/approve", fields...)); !strings.Contains(after.text(),
			fmt.Sprintf("%d approved.", many)) {
			t.Errorf("%s", after.text())
		}
		if left, err := o.Reviews(t.Context(), picket.ReviewQuery{}); err != nil || left.Total != 1 ||
			left.Reviews[0].TaskID != later {
			t.Errorf("what is left: %+v, %v", left, err)
		}
	})
}
