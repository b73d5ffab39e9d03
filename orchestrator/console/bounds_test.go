package console_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// expensiveText is n bytes of what takes most room in a page.
func expensiveText(n int) string { return strings.Repeat("\"\n", n/2) }

// longDiff has more bytes and, by its blank ones, more lines than a page shows.
var longDiff = strings.Repeat(strings.Repeat(`"`, 200)+"\n", 400) + strings.Repeat("\n", 5000)

// fillQueues fills the queues with hand-offs and reviews whose every text is long.
func (o *fixture) fillQueues(n int) (handoff, review string) {
	o.t.Helper()
	long, title := expensiveText(20_000), strings.Repeat(`"`, 190)
	for range n {
		var options []string
		for range 20 {
			options = append(options, expensiveText(500)+fmt.Sprint(len(options)))
		}
		_, handoff = o.addHandoff(title, picket.HelpRequest{Question: long, Options: options})
		review = o.addReview(picket.TaskSpec{
			Title:  title,
			Labels: map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"},
		}, picket.Completion{Output: quoteJSON(long), Summary: expensiveText(3000)})
	}
	return handoff, review
}

func quoteJSON(s string) picket.RawJSON {
	return picket.RawJSON(`"` + strings.NewReplacer(`"`, `\"`, "\n", `\n`).Replace(s) + `"`)
}

// addFullTask makes one task whose every text is as long as it may be, with as many
// reports, files and paid calls as a page could want to show.
func (o *fixture) addFullTask() (held picket.LeaseCredential, task string) {
	o.t.Helper()
	ctx := o.t.Context()
	huge := expensiveText(120_000)
	task, held = o.startRun(picket.TaskSpec{Title: strings.Repeat(`"`, 190), Input: quoteJSON(huge)})
	for i := range 60 {
		many := make([]string, 100)
		tried := make([]picket.Attempted, 100)
		for j := range many {
			many[j], tried[j] = expensiveText(300),
				picket.Attempted{Action: expensiveText(300), Outcome: expensiveText(300)}
		}
		_, err := o.Report(ctx, held, "",
			picket.Progress{
				Summary:   fmt.Sprint(i, expensiveText(5000)),
				Beliefs:   many,
				Attempted: tried,
				Blockers:  many,
				NextStep:  expensiveText(3000),
			})
		must(o.t, err)
		_, err = o.ReportUsage(ctx, held, picket.UsageReport{Source: "s", Session: fmt.Sprint(i), Tokens: 1})
		must(o.t, err)
	}
	_, err := o.RunLog(ctx, held, picket.LogWrite{Stream: "stdout", Data: []byte(expensiveText(60_000))})
	must(o.t, err)
	files := make([]picket.ChangedFile, 60)
	for i := range files {
		files[i].Path = strings.Repeat(`"`, 200)
	}
	must(o.t, o.RunEvidence(ctx, held,
		picket.Evidence{Branch: "b", Diffstat: expensiveText(20_000), Diff: longDiff, Files: files}))
	return held, task
}

// A page has a bounded number of rows and of bytes, and asks the engine a fixed
// number of questions, however much there is.
func TestPagesAreBounded(t *testing.T) {
	rig.SkipShort(t)
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		o.fillQueues(60)
		held, reviewed := o.addFullTask()
		_, err := o.Complete(t.Context(), held,
			picket.Completion{Output: quoteJSON(expensiveText(120_000)), Summary: expensiveText(3000)})
		must(t, err)
		held, asked := o.addFullTask()
		h, err := o.RequestHelp(t.Context(), held,
			picket.HelpRequest{Question: expensiveText(100_000), Options: []string{expensiveText(10_000)}})
		must(t, err)
		_ = asked
		const kib = 1 << 10
		for _, page := range []struct {
			path  string
			rows  int
			bytes int
			calls map[string]int64
		}{
			{"/console/", 12, 64 * kib, map[string]int64{"handoffs": 1, "leases": 1, "reviews": 1}},
			{"/console/handoffs", 50, 128 * kib, map[string]int64{"handoffs": 1}},
			{"/console/reviews", 50, 160 * kib, map[string]int64{"reviews": 1}},
			{"/console/reviews/approve", 61, 128 * kib, map[string]int64{"reviews": 1}},
			{"/console/handoffs/" + h.HandoffID, 0, 320 * kib, map[string]int64{"handoffs": 1, "task": 1}},
			{"/console/reviews/" + reviewed, 0, 560 * kib,
				map[string]int64{"task": 1, "evidence": 1, "reports": 1, "ledger": 1, "log": 2}},
		} {
			var p response
			made := o.scriptCalls(func() { p = s.mustGet(page.path) })
			page.calls["session"], page.calls["stats"] = 1, 1
			if !maps.Equal(made, page.calls) {
				t.Errorf("%s asks %v, want %v", page.path, made, page.calls)
			}
			if rows := strings.Count(p.body, "data-row"); rows > page.rows || rows < page.rows*9/10 {
				t.Errorf("%s has %d rows, want %d", page.path, rows, page.rows)
			}
			if len(p.body) > page.bytes {
				t.Errorf("%s has %d KiB, at most %d are allowed", page.path, len(p.body)/kib, page.bytes/kib)
			}
			t.Logf("%s: %d KiB, %v", page.path[:min(len(page.path), 30)], len(p.body)/kib, made)
		}
	})
}

// Every row is on exactly one of the pages.
func TestPagesFollowEachOther(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		for i := range 120 {
			o.addHandoff(fmt.Sprintf("ask-%03d", i), picket.HelpRequest{Question: fmt.Sprintf("ask-%03d?", i)})
			o.addReview(picket.TaskSpec{Title: fmt.Sprintf("done-%03d", i)},
				picket.Completion{Output: picket.RawJSON(`1`)})
		}
		for list, name := range map[string]string{
			"/console/handoffs": "ask-%03d?</a>",
			"/console/reviews":  "done-%03d</a>",
		} {
			var all string
			path, pages := list, 0
			for path != "" {
				p := s.mustGet(path)
				all, path = all+p.body, nextOf(p)
				pages++
			}
			if pages != 3 {
				t.Errorf("%s has %d pages", list, pages)
			}
			for i := range 120 {
				if n := strings.Count(all, fmt.Sprintf(name, i)); n != 1 {
					t.Errorf("%s is on %d pages", fmt.Sprintf(name, i), n)
				}
			}
		}
	})
}

// What a page has clipped is there at full length, as text and nothing else.
func TestClippedTextsAreThereInFull(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		long := strings.Repeat("<b>words</b>\n", 2000)
		_, handoff := o.addHandoff("x", picket.HelpRequest{Question: long})
		page := "/console/handoffs/" + handoff
		if p := s.mustGet(page); !strings.Contains(p.body, page+"/full/question") {
			t.Error("there is no link to all of the question")
		}
		held, id := o.addFullTask()
		_, err := o.Complete(t.Context(), held, picket.Completion{Output: quoteJSON(long)})
		must(t, err)
		for path, want := range map[string]string{
			page + "/full/question":                   long,
			"/console/reviews/" + id + "/full/output": long,
			"/console/reviews/" + id + "/full/diff":   longDiff,
		} {
			p := s.mustGet(path)
			if p.body != want || p.header.Get("Content-Type") != "text/plain; charset=UTF-8" ||
				p.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %d bytes of %s", path, len(p.body), p.header.Get("Content-Type"))
			}
		}
		if p := s.get(page + "/full/none"); p.status != 404 {
			t.Errorf("no such text: %d", p.status)
		}
	})
}
