package orchestrator

import (
	"fmt"

	"github.com/picket-dev/picket/budget"
)

// budgets is what the configuration grants: to a day, where that is capped,
// and to a task that asks for nothing else.
type budgets struct {
	perDay *budget.Envelope
	task   *budget.Envelope
}

// SetBudgets puts other amounts in force, from the next task on, as
// [Config.DailyLimit] and [Config.TaskEnvelope] describe them.
func (s *Store) SetBudgets(housePerDay, task *budget.Envelope) {
	if task == nil {
		usual := budget.Default()
		task = &usual
	}
	s.budgets.Store(&budgets{housePerDay, task})
}

// dailyLimitArg is the cap of a day as scripts read it, "" for none.
func (e *Engine) dailyLimitArg() string {
	cap := e.store.budgets.Load().perDay
	if cap == nil {
		return ""
	}
	return fmt.Sprintf("%d %d", cap.Tokens, int64(cap.USD))
}

// defaultEnvelope is the envelope of a task that names none.
func (e *Engine) defaultEnvelope() *budget.Envelope {
	task := e.DefaultEnvelope()
	return &task
}

// DefaultEnvelope is what a task gets that names no envelope.
func (e *Engine) DefaultEnvelope() budget.Envelope { return *e.store.budgets.Load().task }
