package orchestrator

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Bounds of the totals of a day. Agents choose roles and models, and people labels, so what is
// beyond the first ones is counted together.
const (
	maxSpendingPairs  = 300 // of role and model
	maxSpendingLabels = 500
)

// Bounds of one script and of one call.
const (
	spendingBatch   = 200 // rows of the ledger
	spendingBatches = 100 // before a report says that it is not complete
	spendingDays    = 31  // that are read at once
)

// CountSpending adds the rows of the ledger that are new to the totals of their days. It reports
// whether it counted all of them. Each row is counted once, no matter who calls.
func (e *Engine) CountSpending(ctx context.Context) (all bool, err error) {
	for range spendingBatches {
		n, err := e.runCount(ctx, "count_spending", spendingBatch, maxSpendingPairs, maxSpendingLabels)
		if err != nil || n < spendingBatch {
			return err == nil, err
		}
	}
	return false, nil
}

// Spending reports what was spent, from totals that are kept by UTC day. It costs what the days have
// different roles, models and labels, however many calls there were.
func (e *Engine) Spending(ctx context.Context, q picket.SpendingQuery) (picket.SpendingReport, error) {
	since, until, err := q.Check(time.Now())
	if err != nil {
		return picket.SpendingReport{}, err
	}
	report := picket.SpendingReport{
		By:    q.By,
		Since: since.Format(time.DateOnly),
		Until: until.Format(time.DateOnly),
	}
	if report.Complete, err = e.CountSpending(ctx); err != nil {
		return picket.SpendingReport{}, err
	}
	rows := map[picket.SpendingRow]picket.Spending{}
	for day := since; !day.After(until); day = day.AddDate(0, 0, spendingDays) {
		args := []any{q.Label()}
		for i := 0; i < spendingDays && !day.AddDate(0, 0, i).After(until); i++ {
			args = append(args, day.AddDate(0, 0, i).Format(time.DateOnly))
		}
		r := e.run(ctx, "spending", args...)
		var found struct {
			Days []spendingDay `reply:"days"`
		}
		r.Decode(&found)
		if r.Err != nil {
			return picket.SpendingReport{}, r.Err
		}
		for _, of := range found.Days {
			of.addTo(&report, rows)
		}
	}
	report.Rows = sortSpending(rows)
	if len(report.Rows) > picket.MaxSpendingRows {
		report.Rows, report.Complete = report.Rows[:picket.MaxSpendingRows], false
	}
	return report, nil
}

// spendingDay is what the script spending answers of a day.
type spendingDay struct {
	Day    string            `reply:"day"`
	Totals map[string]string `reply:"totals"`
	Labels map[string]string `reply:"labels"`
}

// addTo adds the totals of a day to the rows of a report.
func (v spendingDay) addTo(report *picket.SpendingReport, rows map[picket.SpendingRow]picket.Spending) {
	by := func(dimension string) bool { return slices.Contains(report.By, dimension) }
	label := picket.SpendingQuery{By: report.By}.Label()
	var rest picket.Spending // of the tasks without the label
	for pair, amount := range spendingByName(v.Totals) {
		report.Total, rest = report.Total.Add(amount), rest.Add(amount)
		if label != "" {
			continue
		}
		role, model, _ := strings.Cut(pair, " ")
		var key picket.SpendingRow
		if by(picket.SpendingByDay) {
			key.Day = v.Day
		}
		if by(picket.SpendingByRole) {
			key.Role = role
		}
		if by(picket.SpendingByModel) {
			key.Model = model
		}
		rows[key] = rows[key].Add(amount)
	}
	if label == "" {
		return
	}
	var key picket.SpendingRow
	if by(picket.SpendingByDay) {
		key.Day = v.Day
	}
	for name, amount := range spendingByName(v.Labels) {
		of, value, _ := strings.Cut(name, "=")
		if of != label {
			report.Complete = false // of labels that have no totals of their own
			continue
		}
		key.Label = value
		rows[key], rest = rows[key].Add(amount), rest.Sub(amount)
	}
	key.Label = ""
	rows[key] = rows[key].Add(rest)
}

// spendingByName reads the fields of a key of totals: "FIGURE NAME".
func spendingByName(fields map[string]string) map[string]picket.Spending {
	all := map[string]picket.Spending{}
	for field, text := range fields {
		figure, name, ok := strings.Cut(field, " ")
		if !ok {
			continue // how many names there are
		}
		s, n := all[name], store.ParseInt(text)
		switch figure {
		case "calls":
			s.Calls += n
		default:
			addFigure(&s, figure, n)
		}
		all[name] = s
	}
	return all
}

// addFigure adds to the amount that a figure such as spent_u names.
func addFigure(s *picket.Spending, figure string, n int64) {
	column, dimension, _ := strings.Cut(figure, "_")
	of := map[string]*budget.Envelope{
		"spent":      &s.Spent,
		"uncertain":  &s.Uncertain,
		"unverified": &s.Unverified,
		"returned":   &s.Returned,
	}[column]
	switch {
	case of == nil:
	case dimension == "t":
		of.Tokens += n
	default:
		of.USD += budget.Money(n)
	}
}

// sortSpending lists the rows that are not empty, by day, and then what was spent most on first.
func sortSpending(rows map[picket.SpendingRow]picket.Spending) []picket.SpendingRow {
	sorted := []picket.SpendingRow{}
	for key, amount := range rows {
		if amount == (picket.Spending{}) {
			continue
		}
		key.Spending = amount
		sorted = append(sorted, key)
	}
	slices.SortFunc(sorted, func(a, b picket.SpendingRow) int {
		return cmp.Or(strings.Compare(a.Day, b.Day), cmp.Compare(b.Spent.USD, a.Spent.USD),
			cmp.Compare(b.Spent.Tokens, a.Spent.Tokens), strings.Compare(a.Role, b.Role),
			strings.Compare(a.Model, b.Model), strings.Compare(a.Label, b.Label))
	})
	return sorted
}
