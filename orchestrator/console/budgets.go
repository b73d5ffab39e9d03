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

const budgetsPath = "/console/budgets"

func budgetPath(id string) string { return budgetsPath + "/" + id }

func budgetRoutes() []route {
	read := []string{"GET /api/v1/envelopes/:id"}
	return []route{
		show("budgets", budgetsPath, personScopes, showBudgets, append(read, "GET /api/v1/tasks")...).inNav("Budgets"),
		show("budget", budgetsPath+"/:id", personScopes, showBudget, append(read, "GET /api/v1/ledger")...),
		act("budget.topup", budgetsPath+"/:id/top-up", operatorScopes, topUpBudget,
			"POST /api/v1/envelopes/:id/top-up"),
		show("ledger", "/console/ledger", personScopes, showLedger, "GET /api/v1/ledger"),
	}
}

// envelopeRow is an envelope in a tree, written as a list.
type envelopeRow struct {
	picket.EnvelopeState
	Title string
	Depth int // 0 for the one at the top
	Path  string
	Bar   bar
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
		rows = append(rows, envelopeRow{
			EnvelopeState: e,
			Depth:         depth,
			Path:          budgetPath(e.ID),
			Bar:           accountBar(e.Account),
		})
		for _, child := range e.Children {
			walk(child, depth+1)
		}
	}
	walk(top, 0)
	return rows, more
}

// budgetsView is what the page of all money shows.
type budgetsView struct {
	Day        string
	Before     string
	After      string // UTC dates; After is empty today
	Daily      *envelopeRow
	Rows       []envelopeRow // what was carved from the day, who spent most first
	More       int
	TotalSpent budget.Envelope // what was spent from the day and from all below it
	AtLeast    bool            // there is more than was looked at
	Tasks      []taskRow       // the newest, where no day has a limit
}

func showBudgets(v *request) error {
	if err := v.loadStats(); err != nil {
		return err
	}
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
	if err := v.fillDay(&b); err != nil {
		return err
	}
	return v.render(page{
		name:   "budgets",
		title:  "Budgets",
		topics: []string{"budget.", "tool.", "task.submitted", "namespace."},
		body:   b,
	})
}

func (v *request) fillDay(b *budgetsView) error {
	e, err := v.backend.Budgets.Envelope(v.ctx(), "house:"+b.Day)
	if errors.Is(err, picket.CodeNotFound) {
		if b.After != "" { // of a day that is over nothing else is known
			return nil
		}
		newest, err := v.backend.Tasks.Tasks(v.ctx(), picket.TaskQuery{Limit: pageRows})
		b.Tasks = taskRows(newest.Tasks)
		return err
	}
	if err != nil {
		return err
	}
	named, err := v.backend.Tasks.Tasks(v.ctx(), picket.TaskQuery{Limit: 200})
	if err != nil {
		return err
	}
	rows, _ := flattenTree(e, 1)
	b.Daily = &rows[0]
	b.TotalSpent, b.AtLeast = totalSpent(e)
	given := e.Account // as if all of it were spent by the day itself
	given.Carved, given.Spent = e.Carved.Sub(b.TotalSpent.Sub(e.Spent)), b.TotalSpent
	b.Daily.Bar = accountBar(given)
	slices.SortStableFunc(e.Children, func(x, y picket.EnvelopeState) int {
		return cmp.Or(cmp.Compare(y.Spent.USD, x.Spent.USD), cmp.Compare(y.Spent.Tokens, x.Spent.Tokens))
	})
	b.More = max(len(e.Children)-pageRows, 0)
	titles := titlesOf(named.Tasks)
	for _, child := range e.Children[:min(len(e.Children), pageRows)] {
		b.Rows = append(b.Rows, envelopeRow{
			EnvelopeState: child,
			Title:         titles[child.ID],
			Path:          budgetPath(child.ID),
			Bar:           accountBar(child.Account),
		})
	}
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
	TaskPath   string // empty for a day
	ParentPath string // what it was carved from
	Tree       []envelopeRow
	TreeMore   bool
	Calls      []picket.OpenCall
	Ledger     []ledgerRow
	All        string // the ledger of this envelope
	Form       formInput
}

func showBudget(v *request) error { return v.budgetPage(formInput{}, nil) }

func (v *request) budgetPage(typed formInput, problem error) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	id := v.Param("id")
	e, err := v.backend.Budgets.Envelope(v.ctx(), id)
	if err != nil {
		return err
	}
	found, err := v.backend.Budgets.Ledger(v.ctx(), picket.LedgerQuery{TaskID: e.ID, Limit: maxTreeRows,
		NewestFirst: true})
	if err != nil {
		return err
	}
	b := budgetView{
		Ledger: ledgerRows(found.Rows),
		All:    queryPath("/console/ledger", "of", e.ID),
		Form:   typed,
		Calls:  e.Calls[:min(len(e.Calls), maxTreeRows)],
	}
	titles, err := v.treeTitles(e)
	if err != nil {
		return err
	}
	b.Tree, b.TreeMore = flattenTree(e, pageRows)
	for i := range b.Tree {
		b.Tree[i].Title = titles[b.Tree[i].ID]
	}
	b.envelopeRow = b.Tree[0]
	title := "Budget of " + cmp.Or(b.Title, e.ID)
	if isTaskEnvelope(e.ID) {
		b.TaskPath = taskPath(e.ID)
	}
	if e.Parent != "" {
		b.ParentPath = budgetPath(e.Parent)
	}
	return v.render(page{
		name:    "budget",
		title:   title,
		nav:     "budgets",
		topics:  []string{"budget.", e.ID, "namespace."},
		body:    b,
		problem: problem,
	})
}

// isTaskEnvelope tells the envelope of a task from that of a day.
func isTaskEnvelope(envelope string) bool { return strings.HasPrefix(envelope, "task_") }

// treeTitles are the titles at the top of a tree: of the task and what was carved
// from it, or of the newest tasks of a day.
func (v *request) treeTitles(e picket.EnvelopeState) (map[string]string, error) {
	q := picket.TaskQuery{Limit: 200}
	if isTaskEnvelope(e.ID) {
		q.Parent = e.ID
	}
	page, err := v.backend.Tasks.Tasks(v.ctx(), q)
	if err != nil || !isTaskEnvelope(e.ID) {
		return titlesOf(page.Tasks), err
	}
	top, err := v.backend.Tasks.Task(v.ctx(), e.ID)
	return titlesOf(append(page.Tasks, top)), err
}

func topUpBudget(v *request) error {
	if err := v.decide(func(by picket.Caller, reason string) error {
		_, err := v.topUp(by, v.Param("id"), reason)
		return err
	}); err != nil {
		return v.budgetPage(formInput{
			Open:   "topup",
			Reason: v.formValue("reason"),
			USD:    v.formValue("usd"),
			Tokens: v.formValue("tokens"),
		}, err)
	}
	return v.redirectWithFlash(budgetPath(v.Param("id")), "toppedup", "")
}

// ledgerView is what the page of the ledger shows.
type ledgerView struct {
	Of     string
	Kind   string
	Before string // as they were typed
	Kinds  []picket.LedgerKind
	Rows   []ledgerRow
	Next   string
	Looked int // rows that a filter was held against
}

type ledgerRow struct {
	picket.LedgerRow
	OfPath string
}

func ledgerRows(all []picket.LedgerRow) []ledgerRow {
	var rows []ledgerRow
	for _, r := range all {
		rows = append(rows, ledgerRow{r, budgetPath(r.TaskID)})
	}
	return rows
}

var ledgerKinds = []picket.LedgerKind{picket.LedgerCall, picket.LedgerUsage, picket.LedgerCorrection,
	picket.LedgerTopUp, picket.LedgerUnverified}

// ledgerScanRows is how many rows a page looks through for those of a kind.
const ledgerScanRows = 500

func showLedger(v *request) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	l := ledgerView{Of: v.parameter("of"), Kind: v.parameter("kind"), Before: v.parameter("before"), Kinds: ledgerKinds}
	err := v.fillLedger(&l)
	topics := []string{"budget.", "tool.", "namespace."}
	if l.Before != "" {
		topics = nil
	}
	return v.render(page{
		name:    "ledger",
		title:   "Ledger",
		nav:     "budgets",
		topics:  topics,
		body:    l,
		problem: err,
	})
}

func (v *request) fillLedger(l *ledgerView) error {
	q := picket.LedgerQuery{TaskID: l.Of, After: v.position("before"), Limit: pageRows, NewestFirst: true}
	if l.Kind != "" {
		if !slices.Contains(ledgerKinds, picket.LedgerKind(l.Kind)) {
			return picket.Invalid("kind", "Choose one from the list.", "%q is not a kind of row", clip(64, l.Kind))
		}
		q.Limit = ledgerScanRows
	}
	found, err := v.backend.Budgets.Ledger(v.ctx(), q)
	if err != nil {
		return err
	}
	next := found.Next
	var rows []picket.LedgerRow
	for _, row := range found.Rows {
		if len(rows) == pageRows {
			break
		}
		l.Looked++
		if l.Kind == "" || string(row.Kind) == l.Kind {
			if rows = append(rows, row); len(rows) == pageRows && l.Looked < len(found.Rows) {
				next = strconv.FormatInt(row.Seq, 10)
			}
		}
	}
	l.Rows = ledgerRows(rows)
	if next != "" {
		l.Next = queryPath("/console/ledger", "of", l.Of, "kind", l.Kind, "before", next)
	}
	return nil
}
