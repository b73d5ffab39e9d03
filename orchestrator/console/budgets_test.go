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

// payCall makes a paid call under a lease.
func (o *fixture) payCall(held picket.LeaseCredential, tool string, cost budget.Money) {
	o.t.Helper()
	o.payCallWithDetail(held, tool, cost, "200")
}

// payCallWithDetail is pays with what the tool says of it.
func (o *fixture) payCallWithDetail(held picket.LeaseCredential, tool string, cost budget.Money, detail string) {
	o.t.Helper()
	o.agents++
	id := fmt.Sprintf("call-%d", o.agents)
	r, err := o.Reserve(o.t.Context(), held,
		picket.CallRequest{
			CallID:       id,
			Nonce:        id,
			Tool:         tool,
			Reserve:      budget.Envelope{USD: cost},
			PriceVersion: "v1",
			Effects:      picket.EffectsNone,
			TimeoutMs:    1000,
		})
	must(o.t, err)
	_, err = o.Settle(o.t.Context(),
		picket.Settlement{
			CallID:  r.CallID,
			TaskID:  r.TaskID,
			Nonce:   r.Nonce,
			Outcome: picket.CallDone,
			Cost:    budget.Envelope{USD: cost},
			Detail:  detail,
		})
	must(o.t, err)
}

const cent = budget.Money(10_000_000)

func TestTheBudgetOfADay(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		s.mustGet("/console/budgets").
			wantText(t, "today has no limit", "No tasks yet.", "picket run --budget 0.50", "budget.house.usd: 20")
		poor, _ := o.startRun(picket.TaskSpec{Title: "without a limit"})
		s.mustGet("/console/budgets").wantText(t, "without a limit", "/console/budgets/"+poor)
		if p := s.get("/console/budgets/house"); p.status != http.StatusNotFound {
			t.Errorf("no day's envelope: %d", p.status)
		}
		o.store.SetBudgets(&budget.Envelope{USD: 2000 * cent, Tokens: 50_000_000}, nil)
		var ids []string
		for n := range 20 {
			id, held := o.startRun(picket.TaskSpec{
				Title:          fmt.Sprint("task ", n),
				BudgetEnvelope: &budget.Envelope{USD: 50 * cent},
			})
			ids = append(ids, id)
			if n == 7 {
				o.payCall(held, "http_request", 20*cent)
			}
		}
		p := s.mustGet("/console/budgets")
		p.wantText(t, "2000-01-01", "granted $20.00", "given to tasks $10.00", "spent $0.20", "left $10.00",
			"tokens left 50M")
		if first, other := strings.Index(p.body, "task 7<"), strings.Index(p.body, "task 0<"); first < 0 ||
			first > other {
			t.Error("the task that has spent most does not come first")
		}
		before := s.mustGet("/console/budgets?day=1999-12-31")
		before.wantText(t, "There are no books of 1999-12-31.", "the day after")
		before.wantNoText(t, "no limit", "without a limit")
		s.mustGet("/console/budgets?day=nonsense").wantText(t, "2000-01-01")
		day := s.mustGet("/console/budgets/house:2000-01-01")
		day.wantText(t, "task 7", "Top up")
		s.follow(s.submit("/console/budgets/house:2000-01-01", "/console/budgets/house:2000-01-01/top-up", "usd", "5",
			"reason", "a busy day")).wantText(t, "Topped up.", "$25.00", "top_up", "by "+s.key.KeyID[:4])
		page := "/console/budgets/" + ids[0]
		once := s.mustGet(page).nonce(t)
		for range 2 {
			s.follow(s.post(page+"/top-up", "usd", "0.30", "tokens", "1,000", "reason", "more", "once", once)).
				wantText(t, "Topped up.")
		}
		e, err := o.Envelope(t.Context(), ids[0])
		must(t, err)
		if (e.Granted != budget.Envelope{USD: 80 * cent, Tokens: 1000}) {
			t.Errorf("a form that was sent twice gives %+v", e.Granted)
		}
		for _, c := range [][2]string{{"", ""}, {"-1", ""}, {"x", ""}, {"", "1.5"}, {"99999", ""}} {
			p := s.post(page+"/top-up", "usd", c[0], "tokens", c[1], "reason", "kept", "once", s.mustGet(page).nonce(t))
			if p.status < 400 || p.status >= 500 || !strings.Contains(p.body, `value="kept"`) ||
				!strings.Contains(p.body, `role="alert"`) {
				t.Errorf("%q dollars and %q tokens: %d %s", c[0], c[1], p.status, p.text())
			}
		}
		reviewer := o.signedIn(picket.ScopeReviewer)
		reviewer.mustGet(page).wantNoText(t, "/top-up")
		if p := reviewer.post(page+"/top-up", "usd", "1", "once", once); p.status != http.StatusForbidden {
			t.Errorf("a reviewer tops up: %d", p.status)
		}
	})
}

func TestTheLedgerInPages(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		s.mustGet("/console/ledger").wantText(t, "Nothing was charged yet.", "picket demo budget")
		id, held := o.startRun(picket.TaskSpec{
			Title:          "spends",
			BudgetEnvelope: &budget.Envelope{USD: 1000 * cent, Tokens: 1000},
		})
		_, other := o.startRun(picket.TaskSpec{Title: "another"})
		for n := range 110 {
			o.payCall(held, fmt.Sprintf("tool-%d", n), cent)
		}
		o.payCall(other, "elsewhere", cent)
		_, err := o.TopUp(t.Context(), picket.Caller{Actor: "key_rich"}, id,
			picket.TopUp{USD: 100 * cent, Reason: "more"})
		must(t, err)
		rows := func(p response) int { return strings.Count(p.body, "<tr data-row") }
		p := s.mustGet("/console/ledger")
		p.wantText(t, "top_up", "+$1.00", "by key_rich", "elsewhere", "tool-109")
		sizes := []int{rows(p)}
		for p.next() != "" {
			p = s.mustGet(p.next())
			sizes = append(sizes, rows(p))
		}
		if fmt.Sprint(sizes) != "[50 50 12]" {
			t.Errorf("pages of %v rows", sizes)
		}
		s.mustGet("/console/ledger?of="+id).wantNoText(t, "elsewhere")
		only := s.mustGet("/console/ledger?kind=top_up")
		if rows(only) != 1 || only.next() != "" {
			t.Errorf("top-ups: %d rows, next %q", rows(only), only.next())
		}
		seen := 0
		for at := "/console/ledger?kind=call&of=" + id; at != ""; {
			p := s.mustGet(at)
			seen, at = seen+rows(p), p.next()
		}
		if seen != 110 {
			t.Errorf("%d calls in pages", seen)
		}
		s.mustGet("/console/ledger?kind=usage").wantText(t, "No row matches")
		for _, query := range []string{"of=nonsense", "kind=gift"} {
			if p := s.get("/console/ledger?" + query); p.status != http.StatusBadRequest ||
				!strings.Contains(p.body, "nonsense") && !strings.Contains(p.text(), "gift") {
				t.Errorf("%s: %d", query, p.status)
			}
		}
	})
}

func TestEventsInPages(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		var last string
		for n := range 60 {
			last = o.addTask(picket.TaskSpec{Title: fmt.Sprint(n)})
			time.Sleep(time.Second)
		}
		_, err := o.Cancel(t.Context(), picket.Caller{Actor: "key_x"}, last, "a duplicate")
		must(t, err)
		o.registerAgent("robot", "coder", 1)
		seqs := func(p response) (all []string) {
			for _, m := range strings.Split(p.body, `<span class="n seq">`)[1:] {
				n, _, _ := strings.Cut(m, "<")
				all = append(all, n)
			}
			return all
		}
		p := s.mustGet("/console/events")
		if got := seqs(p); len(got) != 50 || got[0] <= got[49] {
			t.Errorf("the first page: %v", got)
		}
		p.wantText(t, "task.cancelled", "a duplicate", `data-topics="*"`)
		all := len(seqs(p))
		for p.next() != "" {
			p = s.mustGet(p.next())
			all += len(seqs(p))
		}
		p.wantText(t, `data-topics=""`, "The newest")
		if last, err := o.LastSeq(t.Context()); err != nil || int64(all) != last {
			t.Errorf("%d events in pages of %d, %v", all, last, err)
		}
		for query, want := range map[string]int{
			"type=task.cancelled":     1,
			"type=agent.":             1,
			"agent=robot":             1,
			"task=" + last:            2,
			"type=budget.":            0,
			"type=task.&task=" + last: 2,
		} {
			if p := s.mustGet("/console/events?" + query); len(seqs(p)) != want {
				t.Errorf("%s: %v, want %d", query, seqs(p), want)
			}
		}
		s.mustGet("/console/events?type=budget.").wantText(t, "No event matches.")
		s.mustGet("/console/events?type=task.cancelled").
			wantText(t, "&#34;reason&#34;: &#34;a duplicate&#34;", "/console/tasks/"+last, "by key_x")
		for _, query := range []string{"type=nonsense", "task=nonsense", "agent=%7B"} {
			if p := s.get("/console/events?" + query); p.status != http.StatusBadRequest {
				t.Errorf("%s: %d", query, p.status)
			}
		}
		out := s.mustGet("/console/events/export?type=task.")
		if lines := strings.Split(strings.TrimSpace(out.body), "\n"); len(lines) != 61 ||
			!strings.Contains(lines[60], `"task.cancelled"`) ||
			!strings.HasPrefix(out.header.Get("Content-Disposition"), "attachment") {
			t.Errorf("the export has %d lines: %v", len(lines), out.header)
		}
		if p := s.get("/console/events/export?type=nonsense"); p.status != http.StatusBadRequest {
			t.Errorf("an export of nothing: %d", p.status)
		}
	})
}

// The page of what was spent has a table, a chart without scripts, and the same as a file in which
// no cell is a formula.
func TestSpendingInPages(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		s.mustGet("/console/spending").wantText(t, "Nothing was spent on these days.", "picket budget report --by day")
		_, held := o.startRun(picket.TaskSpec{Title: "spends", Labels: map[string]string{"team": `=HYPERLINK("x")`}})
		o.payCall(held, "tool", 30*cent)
		_, held = o.startRun(picket.TaskSpec{Title: "spends", Labels: map[string]string{"team": "<b>web"}})
		o.payCall(held, "tool", 20*cent)
		p := s.mustGet("/console/spending?by=label&label=team&since=30d")
		p.wantText(t, "=HYPERLINK", "$0.30", "<b>web", "$0.20", "$0.50",
			"--by label:team --since 1999-12-03 --until 2000-01-01")
		if strings.Contains(p.body, "<b>web") || strings.Count(p.body, "<rect x=") != 1 ||
			!strings.Contains(p.body, `<title>2000-01-01: $0.50</title>`) {
			t.Errorf("the page is %s", p.body)
		}
		s.mustGet("/console/spending?by=role").wantText(t, "none", "$0.50")
		file := s.mustGet("/console/spending/csv?by=label&label=team&since=30d")
		if file.header.Get("Content-Disposition") !=
			`attachment; filename="picket-spending-1999-12-03-to-2000-01-01.csv"` ||
			!strings.HasPrefix(file.header.Get("Content-Type"), "text/csv") {
			t.Errorf("the file has %v", file.header)
		}
		if want := "label:team,calls,usd,tokens,uncertain_usd,uncertain_tokens,unverified_usd,unverified_tokens," +
			"returned_usd,returned_tokens\n" + `"'=HYPERLINK(""x"")",1,0.3,0,0,0,0,0,0,0` + "\n" +
			"<b>web,1,0.2,0,0,0,0,0,0,0\n"; file.body != want {
			t.Errorf("the file is %q, want %q", file.body, want)
		}
		for _, query := range []string{"by=agent", "since=x", "by=label", "by=label&label=a%20b"} {
			if p := s.get("/console/spending?" + query); p.status != http.StatusBadRequest {
				t.Errorf("%s: %d", query, p.status)
			}
			if p := s.get("/console/spending/csv?" + query); p.status != http.StatusBadRequest {
				t.Errorf("the file of %s: %d", query, p.status)
			}
		}
	})
}
