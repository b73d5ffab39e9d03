package console_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// What was spent is said of the day where it has a limit, of all time where it
// has none, after what corrections gave back; and not at all where it was not
// counted from the beginning of the day.
func TestTheOverviewAddsUpTheMoney(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		_, held := o.startRun(picket.TaskSpec{Title: "before there was a limit"})
		o.payCall(held, "http_request", 30*cent)
		r, err := o.Reserve(t.Context(), held,
			picket.CallRequest{
				CallID:       "c",
				Nonce:        "n",
				Tool:         "http_request",
				Reserve:      budget.Envelope{USD: 40 * cent},
				PriceVersion: "v1",
				Effects:      picket.EffectsNone,
				TimeoutMs:    1000,
			})
		must(t, err)
		for _, outcome := range []picket.CallOutcome{picket.CallUncertain, picket.CallDone} { // and then it is known
			_, err = o.Settle(t.Context(),
				picket.Settlement{
					CallID:  "c",
					TaskID:  r.TaskID,
					Nonce:   "n",
					Outcome: outcome,
					Cost:    budget.Envelope{USD: 5 * cent},
				})
			must(t, err)
		}
		s.mustGet("/console/").wantText(t, "Spent so far", "$0.35", "No limit a day is set")
		o.store.SetBudgets(&budget.Envelope{USD: 2000 * cent, Tokens: 50_000_000}, nil)
		s.mustGet("/console/").wantText(t, "Spent today", "$0.00 of $20.00", "Free to give to tasks $20.00",
			"Tokens 0 of 50M")
		for n := range 12 {
			_, held := o.startRun(picket.TaskSpec{
				Title:          fmt.Sprint("task ", n),
				BudgetEnvelope: &budget.Envelope{USD: 50 * cent, Tokens: 1000},
			})
			o.payCall(held, "http_request", 10*cent)
			_, err := o.Complete(t.Context(), held, picket.Completion{Output: picket.RawJSON(`1`)})
			must(t, err)
		}
		p := s.mustGet("/console/")
		p.wantText(t, "Spent today", "$1.20 of $20.00", "Free to give to tasks $14.00", "Tokens 0 of 50M")
		if !strings.Contains(p.body, `<rect class="spent" width="6"`) ||
			!strings.Contains(p.body, `<rect class="carved" x="6" width="24"`) {
			t.Errorf("the bar: %s", regexp.MustCompile(`<svg class="bar.*</svg>`).FindString(p.body))
		}
		must(t, o.redis.HDel(t.Context(), "pk:{default}:env:house:2000-01-01", "total_t", "total_u").Err())
		p = s.mustGet("/console/")
		p.wantText(t, "Limit today", "$20.00", "Free to give to tasks $14.00")
		p.wantNoText(t, "Spent")
	})
}

// The chart has a bar for each two minutes, the last one that of now.
func TestTheOverviewDrawsTheLastHour(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		bars := func() string {
			p := s.mustGet("/console/")
			return fmt.Sprint(regexp.MustCompile(`<rect( class="bad")? x="\d+" y="\d+" width="10" height="\d+"`).
				FindAllString(p.body, -1))
		}
		if got := bars(); got != "[]" {
			t.Errorf("an empty hour: %s", got)
		}
		finish := func() {
			_, held := o.startRun(picket.TaskSpec{Title: "done"})
			_, err := o.Complete(t.Context(), held, picket.Completion{})
			must(t, err)
		}
		for range 3 {
			finish()
		}
		_, held := o.startRun(picket.TaskSpec{Title: "not done"})
		_, err := o.Fail(t.Context(), held, "no", false)
		must(t, err)
		const first = `<rect x="%d" y="15" width="10" height="45" <rect class="bad" x="%[1]d" y="0" width="10" height="15"`
		if got, want := bars(), fmt.Sprintf("["+first+"]", 348); got != want {
			t.Errorf("the bar of now: %s, want %s", got, want)
		}
		time.Sleep(4 * time.Minute)
		finish()
		if got, want := bars(), fmt.Sprintf("["+first+` <rect x="348" y="45" width="10" height="15"]`,
			324); got != want {
			t.Errorf("four minutes later: %s, want %s", got, want)
		}
		s.mustGet("/console/").wantText(t, "Results handed in 4", "Runs without a result 1", "Handed to people 1")
		if p := s.mustGet("/console/"); !strings.Contains(p.body,
			`aria-label="In the last hour 4 results were handed in and 1 runs ended without one"`) {
			t.Error("the chart is not told in words")
		}
		time.Sleep(57 * time.Minute)
		s.mustGet("/console/").wantText(t, "Results handed in 1", "Runs without a result 0", "Handed to people 0")
		time.Sleep(4 * time.Minute)
		if got := bars(); got != "[]" {
			t.Errorf("after the hour: %s", got)
		}
	})
}

// The budget of a run is shown in tokens where a larger part of those is used than of the dollars.
func TestRunningShowsWhatIsUsedMost(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		_, held := o.startRun(picket.TaskSpec{Title: "reads a lot",
			BudgetEnvelope: &budget.Envelope{Tokens: 4000, USD: 2e9}})
		budgetOf := func(calls ...budget.Envelope) string {
			t.Helper()
			for i, most := range calls {
				_, err := o.Reserve(t.Context(), held, picket.CallRequest{
					CallID: fmt.Sprintf("call%d-%d", most.Tokens, i), Nonce: "once", Tool: "sql", Reserve: most,
					PriceVersion: "v1", Effects: picket.EffectsNone, TimeoutMs: 60_000,
				})
				must(t, err)
			}
			return between(s.mustGet("/console/").body, `data-label="Budget"`, `</td>`)
		}
		for _, c := range []struct {
			want string
			call budget.Envelope
		}{
			{`of $2.00</span>`, budget.Envelope{USD: 1e9}},
			{"3\u202f000<span class=\"sub\">of 4\u202f000 tokens</span>", budget.Envelope{Tokens: 3000}},
		} {
			if got := budgetOf(c.call); !strings.Contains(got, c.want) {
				t.Errorf("a run that has used more of %+v shows %s, want %s", c.call, got, c.want)
			}
		}
	})
}

// What runs is shown on the overview and on the page of agents, with its last report. What needs a look
// is red: a timeout that is nearly used up, and an agent that was nudged.
func TestRunningIsRedWhereItNeedsALook(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		timeout, window := 100, 3600
		_, held := o.startRun(picket.TaskSpec{Title: "migrates the table", TimeoutSeconds: &timeout,
			LeaseWindowSeconds: &window})
		want := func(texts ...string) {
			t.Helper()
			for _, path := range []string{"/console/", "/console/agents"} {
				running := between(s.mustGet(path).body, `id="running"`, `</section>`)
				for _, text := range texts {
					part, absent := strings.CutPrefix(text, "not ")
					if absent == strings.Contains(running, part) {
						t.Errorf("%s, want %s: %s", path, text, running)
					}
				}
			}
		}
		want("migrates the table", "no report yet", `<td class="n" data-label="Timeout">`)
		_, err := o.Report(t.Context(), held, "", picket.Progress{Summary: "half of it"})
		must(t, err)
		time.Sleep(78 * time.Second)
		want("half of it", `<td class="n" data-label="Timeout">`, "not nudged")
		time.Sleep(4 * time.Second)
		want("half of it", `<td class="n bad" data-label="Timeout">`, "not nudged")
		idle := 82.0
		must(t, o.RunEvents(t.Context(), held, []picket.RunEvent{{Type: picket.EventRunStalled, IdleSeconds: &idle}}))
		want(`<span class="sub bad">nudged`, "no report, output or tool call for 1m22s")
	})
}
