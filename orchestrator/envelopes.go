package orchestrator

import (
	"fmt"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// house is the cap of a day as scripts read it, "" for none.
func (c Config) house() string {
	if c.HousePerDay == nil {
		return ""
	}
	return fmt.Sprintf("%d %d", c.HousePerDay.Tokens, int64(c.HousePerDay.USD))
}

// pair reads {tokens, nano-dollars}.
func (r *reply) pair(v any) budget.Envelope {
	l := r.list(v)
	return budget.Envelope{Tokens: r.int(r.at(l, 0)), USD: budget.Money(r.int(r.at(l, 1)))}
}

// column reads one column of an envelope's record.
func column(h map[string]string, name string) budget.Envelope {
	return budget.Envelope{Tokens: integer(h[name+"_t"]), USD: budget.Money(integer(h[name+"_u"]))}
}

// money fills in what a task may spend and has spent.
func (r *reply) money(t *picket.Task, v any) {
	h := r.hash(v)
	t.BudgetEnvelope, t.Spent, t.Held, t.Available = column(h, "envelope"), column(h, "spent"), column(h, "held"), column(h, "available")
}
