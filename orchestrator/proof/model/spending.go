package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// The model's totals of what was spent, by role, model and label.

// modelBooking is a row of the ledger that totals count.
type modelBooking struct {
	task  string
	model string // the language model
	picket.Spending
}

func (m *model) book(task, model string, s picket.Spending) {
	m.booked = append(m.booked, modelBooking{task, model, s})
}

// bookCall books what a call has come to.
func (m *model) bookCall(c *modelCall, cost budget.Envelope) {
	s := picket.Spending{Calls: 1, Spent: cost}
	switch c.outcome {
	case picket.CallUndispatched:
		s.Calls = 0
	case picket.CallUncertain:
		s.Uncertain = cost
	}
	m.book(c.task, c.model(), s)
}

// model is the language model that is called.
func (c *modelCall) model() string {
	if c.tool == "llm_messages" {
		return "m1"
	}
	return ""
}

// spending sums what was booked, by the name that a booking has for the report.
func (m *model) spending(by string) (rows map[string]picket.Spending, total picket.Spending) {
	rows = map[string]picket.Spending{}
	for _, b := range m.booked {
		t := m.tasks[b.task]
		name := map[string]string{picket.SpendingByRole: t.role, picket.SpendingByModel: b.model,
			"label:team": t.team}[by]
		rows[name], total = rows[name].Add(b.Spending), total.Add(b.Spending)
	}
	maps.DeleteFunc(rows, func(_ string, s picket.Spending) bool { return s == picket.Spending{} })
	return rows, total
}

// spending counts what is new in the ledger, and mostly asks for a report.
func (x *machine) spending() {
	if x.chance("count only", 30) {
		all, err := x.e.CountSpending(x.ctx)
		x.ok(err)
		x.same("count spending: all", all, true)
		return
	}
	by := oneOf(x, "by", picket.SpendingByRole, picket.SpendingByModel, "label:team")
	got, err := x.e.Spending(x.ctx, picket.SpendingQuery{By: []string{by}})
	x.ok(err)
	rows, total := x.m.spending(by)
	x.same("spending: complete", got.Complete, true)
	x.same("spending: total", got.Total, total)
	found := map[string]picket.Spending{}
	for _, row := range got.Rows {
		found[cmp.Or(row.Role, row.Model, row.Label)] = row.Spending
	}
	x.same("spending by "+by, fmt.Sprint(found), fmt.Sprint(rows))
	x.same("spending: rows", len(got.Rows), len(slices.Collect(maps.Keys(rows))))
}
