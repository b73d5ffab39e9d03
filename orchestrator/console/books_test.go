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

// pays makes a paid call under a lease.
func (o *office) pays(held picket.LeaseCredential, tool string, cost budget.Money) {
	o.t.Helper()
	o.paysSaying(held, tool, cost, "200")
}

// paysSaying is pays with what the tool says of it.
func (o *office) paysSaying(held picket.LeaseCredential, tool string, cost budget.Money, detail string) {
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

const cents = budget.Money(10_000_000)

func TestTheDaysMoney(t *testing.T) {
	open(t, func(t *testing.T, o *office) {
		s := o.sit(picket.ScopeOperator)
		s.want("/console/budgets").
			has(t, "today has no limit", "No tasks yet.", "picket run --budget 0.50", "budget.house.usd: 20")
		poor, _ := o.run(picket.TaskSpec{Title: "without a limit"})
		s.want("/console/budgets").has(t, "without a limit", "/console/budgets/"+poor)
		if p := s.get("/console/budgets/house"); p.status != http.StatusNotFound {
			t.Errorf("no day's envelope: %d", p.status)
		}
		o.store.SetBudgets(&budget.Envelope{USD: 2000 * cents, Tokens: 50_000_000}, nil)
		var ids []string
		for n := range 20 {
			id, held := o.run(picket.TaskSpec{
				Title:          fmt.Sprint("task ", n),
				BudgetEnvelope: &budget.Envelope{USD: 50 * cents},
			})
			ids = append(ids, id)
			if n == 7 {
				o.pays(held, "http_request", 20*cents)
			}
		}
		p := s.want("/console/budgets")
		p.has(t, "2000-01-01", "granted $20.00", "given to tasks $10.00", "spent $0.20", "left $10.00",
			"tokens left 50M")
		if first, other := strings.Index(p.body, "task 7<"), strings.Index(p.body, "task 0<"); first < 0 ||
			first > other {
			t.Error("who has spent most does not come first")
		}
		before := s.want("/console/budgets?day=1999-12-31")
		before.has(t, "There are no books of 1999-12-31.", "the day after")
		before.hasNot(t, "no limit", "without a limit")
		s.want("/console/budgets?day=nonsense").has(t, "2000-01-01")
		day := s.want("/console/budgets/house:2000-01-01")
		day.has(t, "task 7", "Top up")
		s.follow(s.submit("/console/budgets/house:2000-01-01", "/console/budgets/house:2000-01-01/top-up", "usd", "5",
			"reason", "a busy day")).has(t, "Topped up.", "$25.00", "top_up", "by "+s.key.KeyID[:4])
		page := "/console/budgets/" + ids[0]
		once := s.want(page).once(t)
		for range 2 {
			s.follow(s.post(page+"/top-up", "usd", "0.30", "tokens", "1,000", "reason", "more", "once", once)).
				has(t, "Topped up.")
		}
		e, err := o.Envelope(t.Context(), ids[0])
		must(t, err)
		if (e.Granted != budget.Envelope{USD: 80 * cents, Tokens: 1000}) {
			t.Errorf("a form that was sent twice gives %+v", e.Granted)
		}
		for _, c := range [][2]string{{"", ""}, {"-1", ""}, {"x", ""}, {"", "1.5"}, {"99999", ""}} {
			p := s.post(page+"/top-up", "usd", c[0], "tokens", c[1], "reason", "kept", "once", s.want(page).once(t))
			if p.status < 400 || p.status >= 500 || !strings.Contains(p.body, `value="kept"`) ||
				!strings.Contains(p.body, `role="alert"`) {
				t.Errorf("%q dollars and %q tokens: %d %s", c[0], c[1], p.status, p.text())
			}
		}
		reviewer := o.sit(picket.ScopeReviewer)
		reviewer.want(page).hasNot(t, "/top-up")
		if p := reviewer.post(page+"/top-up", "usd", "1", "once", once); p.status != http.StatusForbidden {
			t.Errorf("a reviewer tops up: %d", p.status)
		}
	})
}

func TestTheLedgerInPages(t *testing.T) {
	open(t, func(t *testing.T, o *office) {
		s := o.sit(picket.ScopeReviewer)
		s.want("/console/ledger").has(t, "Nothing was charged yet.", "picket demo budget")
		id, held := o.run(picket.TaskSpec{
			Title:          "spends",
			BudgetEnvelope: &budget.Envelope{USD: 1000 * cents, Tokens: 1000},
		})
		_, other := o.run(picket.TaskSpec{Title: "another"})
		for n := range 110 {
			o.pays(held, fmt.Sprintf("tool-%d", n), cents)
		}
		o.pays(other, "elsewhere", cents)
		_, err := o.TopUp(t.Context(), picket.Caller{Actor: "key_rich"}, id,
			picket.TopUp{USD: 100 * cents, Reason: "more"})
		must(t, err)
		rows := func(p paper) int { return strings.Count(p.body, "<tr data-row") }
		p := s.want("/console/ledger")
		p.has(t, "top_up", "+$1.00", "by key_rich", "elsewhere", "tool-109")
		sizes := []int{rows(p)}
		for p.next() != "" {
			p = s.want(p.next())
			sizes = append(sizes, rows(p))
		}
		if fmt.Sprint(sizes) != "[50 50 12]" {
			t.Errorf("pages of %v rows", sizes)
		}
		s.want("/console/ledger?of="+id).hasNot(t, "elsewhere")
		only := s.want("/console/ledger?kind=top_up")
		if rows(only) != 1 || only.next() != "" {
			t.Errorf("top-ups: %d rows, next %q", rows(only), only.next())
		}
		seen := 0
		for at := "/console/ledger?kind=call&of=" + id; at != ""; {
			p := s.want(at)
			seen, at = seen+rows(p), p.next()
		}
		if seen != 110 {
			t.Errorf("%d calls in pages", seen)
		}
		s.want("/console/ledger?kind=usage").has(t, "No row matches")
		for _, query := range []string{"of=nonsense", "kind=gift"} {
			if p := s.get("/console/ledger?" + query); p.status != http.StatusBadRequest ||
				!strings.Contains(p.body, "nonsense") && !strings.Contains(p.text(), "gift") {
				t.Errorf("%s: %d", query, p.status)
			}
		}
	})
}

func TestEventsInPages(t *testing.T) {
	open(t, func(t *testing.T, o *office) {
		s := o.sit(picket.ScopeReviewer)
		var last string
		for n := range 60 {
			last = o.submitted(picket.TaskSpec{Title: fmt.Sprint(n)})
			time.Sleep(time.Second)
		}
		_, err := o.Cancel(t.Context(), picket.Caller{Actor: "key_x"}, last, "a duplicate")
		must(t, err)
		o.enlist("robot", "coder", 1)
		seqs := func(p paper) (all []string) {
			for _, m := range strings.Split(p.body, `<span class="n seq">`)[1:] {
				n, _, _ := strings.Cut(m, "<")
				all = append(all, n)
			}
			return all
		}
		p := s.want("/console/events")
		if got := seqs(p); len(got) != 50 || got[0] <= got[49] {
			t.Errorf("the first page: %v", got)
		}
		p.has(t, "task.cancelled", "a duplicate", `data-topics="*"`)
		all := len(seqs(p))
		for p.next() != "" {
			p = s.want(p.next())
			all += len(seqs(p))
		}
		p.has(t, `data-topics=""`, "The newest")
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
			if p := s.want("/console/events?" + query); len(seqs(p)) != want {
				t.Errorf("%s: %v, want %d", query, seqs(p), want)
			}
		}
		s.want("/console/events?type=budget.").has(t, "No event matches.")
		s.want("/console/events?type=task.cancelled").
			has(t, "&#34;reason&#34;: &#34;a duplicate&#34;", "/console/tasks/"+last, "by key_x")
		for _, query := range []string{"type=nonsense", "task=nonsense", "agent=%7B"} {
			if p := s.get("/console/events?" + query); p.status != http.StatusBadRequest {
				t.Errorf("%s: %d", query, p.status)
			}
		}
		out := s.want("/console/events/export?type=task.")
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
