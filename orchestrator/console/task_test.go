package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// wantText checks that a page shows all of the texts.
func (p response) wantText(t testing.TB, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.text(), text) && !strings.Contains(p.body, text) {
			t.Errorf("the page does not show %q: %s", text, p.text())
		}
	}
}

// wantNoText checks that a page shows none of them.
func (p response) wantNoText(t testing.TB, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(p.text(), text) || strings.Contains(p.body, text) {
			t.Errorf("the page shows %q", text)
		}
	}
}

// The page of a task tells its whole story.
func TestThePageOfATask(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		ctx, s := t.Context(), o.signedIn(picket.ScopeReviewer)
		attempts := 3
		id, first := o.startRun(picket.TaskSpec{
			Title:  "Fix the fence",
			Input:  picket.RawJSON(`{"issue":7}`),
			Role:   "coder",
			Labels: map[string]string{"team": "a"},
			Retry:  &picket.Retry{MaxAttempts: &attempts, On: []picket.ExitClass{picket.ExitCrash}},
		})
		_, err := o.Renew(ctx, first)
		must(t, err)
		_, err = o.Report(ctx, first, "r1",
			picket.Progress{
				Summary:   "Looked at the posts",
				Beliefs:   []string{"one is rotten"},
				Attempted: []picket.Attempted{{Action: "push it", Outcome: "it fell"}},
				NextStep:  "dig",
				Blockers:  []string{"no spade"},
			})
		must(t, err)
		printed := "\x1b[32mgreen\x1b[0m\r\n 10 %\r 20 %\nline <three>\n"
		_, err = o.RunLog(ctx, first, picket.LogWrite{Stream: "stdout", Data: []byte(printed)})
		must(t, err)
		p := s.mustGet("/console/tasks/" + id)
		p.wantText(t, "Fix the fence", "by a1", "lease, token 1", `data-how="left" data-ttl="300000"`, `data-left-bar`,
			"Looked at the posts", "one is rotten", "no spade", "push it", "→ it fell",
			"green\n 20 %\nline &lt;three&gt;", fmt.Sprintf(`data-offset="%d"`, len(printed)), "task.progress",
			"picket task watch "+id, `href="/console/tasks?label=team%3Da"`, "{\n  &#34;issue&#34;: 7\n}")
		code := 137
		_, err = o.Release(ctx, first, picket.Exit{Class: picket.ExitCrash, Code: &code, Detail: "out of memory"})
		must(t, err)
		must(t, o.RunExit(ctx, first, picket.Exit{Class: picket.ExitCrash, Code: &code}, ""))
		p = s.mustGet("/console/tasks/" + id)
		p.wantText(t, "fencing token", "crash code 137", "out of memory", "1 failed", "picket adapter --agent-id a1")
		o.passTime(time.Minute)
		leases, err := o.Acquire(ctx, picket.Caller{Actor: "test"}, picket.AcquireRequest{AgentID: "a1"})
		must(t, err)
		second, err := o.sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
		must(t, err)
		help, err := o.RequestHelp(ctx, second,
			picket.HelpRequest{Question: "Oak or pine?", Options: []string{"oak", "pine"}})
		must(t, err)
		s.mustGet("/console/tasks/"+id).
			wantText(t, "Run 1", "Run 2", "token 2", "Waits for a person", "Oak or pine?",
				"/console/handoffs/"+help.HandoffID)
		oak := "oak"
		_, err = o.Answer(ctx, picket.Caller{Actor: "key_person"}, help.HandoffID, picket.AnswerRequest{Option: &oak})
		must(t, err)
		leases, err = o.Acquire(ctx, picket.Caller{Actor: "test"}, picket.AcquireRequest{AgentID: "a1"})
		must(t, err)
		third, err := o.sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
		must(t, err)
		must(t, o.RunEvidence(ctx, third,
			picket.Evidence{
				Branch:   "picket/fence",
				Base:     "abc",
				Diffstat: "1 file changed",
				Diff:     "--- a/post\n+++ b/post\n@@ -1 +1 @@\n-rotten\n+oak\n",
			}))
		_, err = o.Complete(ctx, third,
			picket.Completion{Output: picket.RawJSON(`{"posts":1}`), Summary: "stands again"})
		must(t, err)
		s.mustGet("/console/tasks/"+id).
			wantText(t, "Answered by key_person", "Waits for a review", "/console/reviews/"+id, "stands again",
				"&#34;posts&#34;: 1", "picket/fence", "<del>-rotten</del>", "<ins>&#43;oak</ins>")
		s.mustGet("/console/tasks/"+id+"?run="+first.RunID).wantText(t, "Work of run 1", "green")
		shown, err := o.Task(ctx, id)
		must(t, err)
		_, err = o.Approve(ctx, picket.Caller{Actor: "key_boss"}, id,
			picket.Decision{Note: "well done", Digest: shown.Review.Digest})
		must(t, err)
		p = s.mustGet("/console/tasks/" + id)
		p.wantText(t, "completed", "Reviewed approve by key_boss", "well done", "task.approved")
		p.wantNoText(t, "/cancel", "/top-up", "Retry")
		if p := s.get("/console/tasks/task_01HZZZZZZZZZZZZZZZZZZZZZZZ"); p.status != http.StatusNotFound {
			t.Errorf("no such task: %d", p.status)
		}
		if p := s.get("/console/tasks/nonsense"); p.status != http.StatusBadRequest {
			t.Errorf("no id: %d", p.status)
		}
	})
}

// A tree shows who was carved from whom, and links lead through it.
func TestTheTreeOfATask(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		id, held := o.startRun(picket.TaskSpec{
			Title:          "all of it",
			BudgetEnvelope: &budget.Envelope{Tokens: 1000, USD: 5_000_000_000},
		})
		part, err := o.Delegate(t.Context(), held, "d1",
			picket.Subtask{Title: "a part of it", BudgetEnvelope: &budget.Envelope{Tokens: 100, USD: 2_000_000_000}})
		must(t, err)
		s.mustGet("/console/tasks/"+id).
			wantText(t, "Subtasks as a list queued a part of it", "/console/tasks?parent="+id, "this task", "$3.00",
				"$2.00")
		s.mustGet("/console/tasks/"+part.TaskID).wantText(t, "subtask of", "/console/tasks/"+id)
		s.mustGet("/console/budgets/"+id).wantText(t, "all of it", "a part of it", "given on", "$2.00")
	})
}

func TestWhatAnOperatorDoesToATask(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		ctx, s, reviewer := t.Context(), o.signedIn(picket.ScopeOperator), o.signedIn(picket.ScopeReviewer)
		id, held := o.startRun(picket.TaskSpec{Title: "x"})
		page := "/console/tasks/" + id
		reviewer.mustGet(page).wantNoText(t, page+"/cancel", page+"/expire", page+"/top-up")
		for _, verb := range []string{"cancel", "retry", "expire", "top-up"} {
			if p := reviewer.post(page+"/"+verb, "reason", "x", "once",
				reviewer.newNonce()); p.status != http.StatusForbidden {
				t.Errorf("a reviewer may %s: %d", verb, p.status)
			}
		}
		form := s.mustGet(page).nonce(t)
		for range 2 {
			s.follow(s.post(page+"/top-up", "usd", "0.25", "reason", "more", "once", form)).
				wantText(t, "Topped up.", "spent of $1.25")
		}
		p := s.post(page+"/top-up", "usd", "much", "reason", "kept", "once", s.mustGet(page).nonce(t))
		if p.status != http.StatusBadRequest {
			t.Errorf("no amount: %d", p.status)
		}
		p.wantText(t, `<details class="act" open>`, `value="much"`, `value="kept"`)
		s.follow(s.submit(page, page+"/expire", "reason", "it is stuck")).
			wantText(t, "The lease has been taken", "queued", "it is stuck")
		if _, err := o.Renew(ctx, held); picket.CodeOf(err) != picket.CodeLeaseExpired {
			t.Errorf("a lease that was taken is renewed: %v", err)
		}
		once := s.mustGet(page).nonce(t)
		s.follow(s.post(page+"/cancel", "reason", "enough", "once", once)).
			wantText(t, "Cancelled. The task ends here.", "“enough”")
		p = s.post(page+"/cancel", "reason", "once more", "once", s.mustGet("/console/tasks/new").nonce(t))
		if p.status != http.StatusConflict {
			t.Errorf("cancelled twice: %d", p.status)
		}
		p.wantText(t, `role="alert"`)
		again := s.submit(page, page+"/retry", "reason", "try")
		to := again.header.Get("Location")
		s.follow(again).wantText(t, "tries again", id)
		if strings.HasPrefix(to, page) {
			t.Errorf("it goes on with the old task: %s", to)
		}
		if p := s.post(page+"/retry", "reason", strings.Repeat("x", 5000), "once",
			once); p.status != http.StatusBadRequest {
			t.Errorf("a reason of 5,000 bytes: %d", p.status)
		}
		events, err := o.Events(ctx,
			picket.EventQuery{
				Types: []string{picket.EventTaskCancelled, picket.EventBudgetToppedUp, picket.EventLeaseExpired},
			})
		must(t, err)
		for _, ev := range events.Events {
			if ev.Actor != s.key.KeyID {
				t.Errorf("%s is by %s", ev.Type, ev.Actor)
			}
		}
		if len(events.Events) != 3 {
			t.Errorf("%d events", len(events.Events))
		}
	})
}

// The long texts of a task are whole on pages of their own.
func TestLongTexts(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		ctx, s := t.Context(), o.signedIn(picket.ScopeReviewer)
		long := strings.Repeat("a line of the input\n", 8000)
		id, held := o.startRun(picket.TaskSpec{Title: "x", Input: quoted(long)})
		at := int64(0)
		for range 3 {
			piece := strings.Repeat("0123456789abcde\n", 2048)
			_, err := o.RunLog(ctx, held, picket.LogWrite{Stream: "stdout", Offset: at, Data: []byte(piece)})
			must(t, err)
			at += int64(len(piece))
		}
		p := s.mustGet("/console/tasks/" + id)
		p.wantText(t, "all of it", "its end", "the whole")
		if len(p.body) > 60_000 {
			t.Errorf("the page of the task has %d bytes", len(p.body))
		}
		got := ""
		for next := "/console/tasks/" + id + "/input"; next != ""; {
			p := s.mustGet(next)
			got += between(p.body, `aria-label="Input">`, "</pre>")
			next = p.next()
		}
		if got != long {
			t.Errorf("the input in pages has %d bytes, want %d", len(got), len(long))
		}
		path := "/console/tasks/" + id + "/log?run=" + held.RunID
		p = s.mustGet(path)
		p.wantText(t, "What came before", "bytes 49\u202f152 to 98\u202f304 of 98\u202f304")
		if raw := s.mustGet("/console/tasks/" + id + "/log/raw?offset=98288&run=" +
			held.RunID); raw.body != "0123456789abcde\n" || raw.header.Get("X-Picket-Next") != "98304" ||
			raw.header.Get("X-Picket-Log") != "open" ||
			!strings.HasPrefix(raw.header.Get("Content-Type"), "text/plain") ||
			raw.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("the log itself: %q %v", raw.body, raw.header)
		}
		s.mustGet("/console/tasks/"+id+"/log?stream=stderr").wantText(t, "Nothing was printed here.")
		s.mustGet("/console/tasks/"+id+"/diff").wantText(t, "No run has handed in changes.")
		must(t, o.RunEvidence(ctx, held, picket.Evidence{Branch: "b", Diff: strings.Repeat("+x\n", 4500)}))
		p = s.mustGet("/console/tasks/" + id)
		p.wantText(t, "More of it")
		if n := strings.Count(p.body, "<ins>"); n != 300 {
			t.Errorf("%d lines of the diff", n)
		}
		lines := 0
		for next := "/console/tasks/" + id + "/diff?run=" + held.RunID; next != ""; {
			p := s.mustGet(next)
			lines, next = lines+strings.Count(p.body, "<ins>"), p.next()
		}
		if lines != 4500 {
			t.Errorf("%d lines of the diff in pages", lines)
		}
		s.mustGet("/console/tasks/"+id+"/output").wantText(t, "no output yet")
		s.mustGet("/console/tasks/"+id+"/reports").wantText(t, "No run has reported yet.")
	})
}

func quoted(text string) picket.RawJSON {
	return picket.RawJSON(`"` + strings.ReplaceAll(text, "\n", `\n`) + `"`)
}

// between is what stands between two marks of a page.
func between(body, from, to string) string {
	_, rest, _ := strings.Cut(body, from)
	got, _, _ := strings.Cut(rest, to)
	return got
}

// A task keeps its latest reports. Its pages tell that earlier ones were dropped.
func TestDroppedReportsAreMentioned(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		id, held := o.startRun(picket.TaskSpec{Title: "x"})
		for _, summary := range []string{"one", "two", "three"} {
			_, err := o.Report(t.Context(), held, "", picket.Progress{Summary: summary})
			must(t, err)
		}
		dropped := "the first 2 reports were dropped"
		s.mustGet("/console/tasks/"+id).wantNoText(t, "were dropped")
		must(t, o.redis.LPopCount(t.Context(), "pk:{default}:reports:"+id, 2).Err())
		s.mustGet("/console/tasks/"+id).wantText(t, dropped, "three")
	})
}
