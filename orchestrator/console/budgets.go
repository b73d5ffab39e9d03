package console

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// envelopeRow is an envelope in a tree, written as a list.
type envelopeRow struct {
	picket.EnvelopeState
	Title string // of its task, where it is known
	Depth int    // 0 for the one at the top
}

// flattenTree writes the first n envelopes of a tree as a list, each before what was
// carved from it.
func flattenTree(top picket.EnvelopeState, n int) (rows []envelopeRow, more bool) {
	var walk func(e picket.EnvelopeState, depth int)
	walk = func(e picket.EnvelopeState, depth int) {
		if len(rows) == n {
			more = true
			return
		}
		rows = append(rows, envelopeRow{EnvelopeState: e, Depth: depth})
		for _, child := range e.Children {
			walk(child, depth+1)
		}
	}
	walk(top, 0)
	return rows, more
}

// nameRows gives envelopes the titles of their tasks.
func nameRows(rows []envelopeRow, tasks []picket.Task) {
	titles := titlesOf(tasks)
	for i := range rows {
		rows[i].Title = titles[rows[i].ID]
	}
}

// budgetsView is what the page of all money shows.
type budgetsView struct {
	Day        string
	Before     string
	After      string // UTC dates; After is empty today
	Daily      *picket.EnvelopeState
	Bar        bar           // of the day
	Rows       []envelopeRow // what was carved from the day, who spent most first
	More       int
	TotalSpent budget.Envelope // what was spent from the day and from all below it
	AtLeast    bool            // there is more than was looked at
	Tasks      []picket.Task   // the newest, where no day has a limit
}

func showBudgets(v *request) (page, error) {
	today := v.now().Time().Format(time.DateOnly)
	day := v.parameter("day")
	date, err := time.Parse(time.DateOnly, day)
	if err != nil || day >= today {
		day, date = today, v.now().Time()
	}
	b := budgetsView{Day: day, Before: queryPath(budgetsPath, "day", date.AddDate(0, 0, -1).Format(time.DateOnly))}
	if day != today {
		b.After = queryPath(budgetsPath, "day", date.AddDate(0, 0, 1).Format(time.DateOnly))
	}
	return page{
		name:   "budgets",
		title:  "Budgets",
		topics: []string{"budget.", "tool.", "task.submitted", "namespace."},
		body:   &b,
	}, v.fillDay(&b)
}

func (v *request) fillDay(b *budgetsView) error {
	e, err := v.backend.Budgets.Envelope(v.ctx(), "house:"+b.Day)
	if errors.Is(err, picket.CodeNotFound) {
		if b.After != "" { // of a day that is over nothing else is known
			return nil
		}
		newest, err := v.backend.Tasks.Tasks(v.ctx(), picket.TaskQuery{Limit: pageRows})
		b.Tasks = newest.Tasks
		return err
	}
	if err != nil {
		return err
	}
	named, err := v.backend.Tasks.Tasks(v.ctx(), picket.TaskQuery{Limit: 200})
	if err != nil {
		return err
	}
	b.Daily = &e
	b.TotalSpent, b.AtLeast = totalSpent(e)
	given := e.Account // as if all of it were spent by the day itself
	given.Carved, given.Spent = e.Carved.Sub(b.TotalSpent.Sub(e.Spent)), b.TotalSpent
	b.Bar = accountBar(given)
	slices.SortStableFunc(e.Children, func(x, y picket.EnvelopeState) int {
		return cmp.Or(cmp.Compare(y.Spent.USD, x.Spent.USD), cmp.Compare(y.Spent.Tokens, x.Spent.Tokens))
	})
	shown, more := firstRows(e.Children, pageRows)
	for _, child := range shown {
		b.Rows = append(b.Rows, envelopeRow{EnvelopeState: child})
	}
	nameRows(b.Rows, named.Tasks)
	b.More = more
	return nil
}

// totalSpent is what was spent from an envelope and from all that was carved
// from it. Where that was not counted from its beginning, it is added up, and
// may be more than of the envelopes that are there.
func totalSpent(e picket.EnvelopeState) (spent budget.Envelope, atLeast bool) {
	if e.SpentInAll != nil {
		return *e.SpentInAll, false
	}
	spent, seen := sumSpent(e)
	return spent, seen >= picket.MaxEnvelopes
}

func sumSpent(e picket.EnvelopeState) (spent budget.Envelope, envelopes int) {
	spent, envelopes = e.Spent, 1
	for _, child := range e.Children {
		s, n := sumSpent(child)
		spent, envelopes = spent.Add(s), envelopes+n
	}
	return spent, envelopes
}

// budgetView is what the page of one envelope shows.
type budgetView struct {
	envelopeRow
	OfTask   bool // else of a day
	Tree     []envelopeRow
	TreeMore bool
	Calls    []picket.OpenCall
	Ledger   []picket.LedgerRow
	All      string // the ledger of this envelope
}

func showBudget(v *request) (page, error) {
	e, err := v.backend.Budgets.Envelope(v.ctx(), v.Param("id"))
	if err != nil {
		return page{}, err
	}
	found, err := v.backend.Budgets.Ledger(v.ctx(), picket.LedgerQuery{TaskID: e.ID, Limit: maxTreeRows,
		NewestFirst: true})
	if err != nil {
		return page{}, err
	}
	tasks, err := v.treeTasks(e)
	if err != nil {
		return page{}, err
	}
	b := budgetView{OfTask: isTaskEnvelope(e.ID), Ledger: found.Rows, All: queryPath(ledgerPath, "of", e.ID)}
	b.Calls, _ = firstRows(e.Calls, maxTreeRows)
	b.Tree, b.TreeMore = flattenTree(e, pageRows)
	nameRows(b.Tree, tasks)
	b.envelopeRow = b.Tree[0]
	return page{
		name:   "budget",
		title:  "Budget of " + cmp.Or(b.Title, e.ID),
		topics: []string{"budget.", e.ID, "namespace."},
		body:   b,
	}, nil
}

// isTaskEnvelope tells the envelope of a task from that of a day.
func isTaskEnvelope(envelope string) bool { return strings.HasPrefix(envelope, "task_") }

// treeTasks are the tasks at the top of a tree: the task and what was carved from it,
// or the newest tasks of a day.
func (v *request) treeTasks(e picket.EnvelopeState) ([]picket.Task, error) {
	q := picket.TaskQuery{Limit: 200}
	if isTaskEnvelope(e.ID) {
		q.Parent = e.ID
	}
	page, err := v.backend.Tasks.Tasks(v.ctx(), q)
	if err != nil || !isTaskEnvelope(e.ID) {
		return page.Tasks, err
	}
	top, err := v.backend.Tasks.Task(v.ctx(), e.ID)
	return append(page.Tasks, top), err
}

func topUpBudget(v *request, by picket.Caller, reason string) (string, error) {
	did, err := v.topUp(by, v.Param("id"), "", reason)
	return withFlash(budgetPath(v.Param("id")), did, ""), err
}

// ledgerView is what the page of the ledger shows.
type ledgerView struct {
	Filter filter
	Kinds  []picket.LedgerKind
	Rows   []picket.LedgerRow
	Next   string
	Looked int // rows that a filter was held against
}

var ledgerKinds = []picket.LedgerKind{picket.LedgerCall, picket.LedgerUsage, picket.LedgerCorrection,
	picket.LedgerTopUp, picket.LedgerUnverified}

// ledgerScanRows is how many rows a page looks through for those of a kind.
const ledgerScanRows = 500

func showLedger(v *request) (page, error) {
	l := ledgerView{Filter: v.filter("of", "kind", "before"), Kinds: ledgerKinds}
	err := v.fillLedger(&l)
	topics := []string{"budget.", "tool.", "namespace."}
	if l.Filter["before"] != "" {
		topics = nil
	}
	return page{name: "ledger", title: "Ledger", nav: "budgets", topics: topics, body: l, problem: err}, nil
}

func (v *request) fillLedger(l *ledgerView) error {
	kind := l.Filter["kind"]
	q := picket.LedgerQuery{TaskID: l.Filter["of"], After: v.position("before"), Limit: pageRows, NewestFirst: true}
	if kind != "" {
		if !slices.Contains(ledgerKinds, picket.LedgerKind(kind)) {
			return picket.Invalid("kind", "Choose one from the list.", "%q is not a kind of row", clip(64, kind))
		}
		q.Limit = ledgerScanRows
	}
	found, err := v.backend.Budgets.Ledger(v.ctx(), q)
	if err != nil {
		return err
	}
	next := found.Next
	for _, row := range found.Rows {
		if len(l.Rows) == pageRows {
			break
		}
		l.Looked++
		if kind == "" || string(row.Kind) == kind {
			if l.Rows = append(l.Rows, row); len(l.Rows) == pageRows && l.Looked < len(found.Rows) {
				next = strconv.FormatInt(row.Seq, 10)
			}
		}
	}
	if next != "" {
		l.Next = l.Filter.with("before", next).link(ledgerPath)
	}
	return nil
}
