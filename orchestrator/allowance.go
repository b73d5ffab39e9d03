package orchestrator

import (
	"fmt"

	"github.com/picket-dev/picket/budget"
)

// allowance is what the configuration grants: to a day, where that is capped,
// and to a task that asks for nothing else.
type allowance struct {
	perDay *budget.Envelope
	task   *budget.Envelope
}

// Allow puts other amounts in force, from the next task on, as
// [Config.HousePerDay] and [Config.TaskEnvelope] describe them.
func (s *Store) Allow(housePerDay, task *budget.Envelope) {
	if task == nil {
		usual := budget.Default()
		task = &usual
	}
	s.allowed.Store(&allowance{housePerDay, task})
}

// house is the cap of a day as scripts read it, "" for none.
func (e *Engine) house() string {
	cap := e.store.allowed.Load().perDay
	if cap == nil {
		return ""
	}
	return fmt.Sprintf("%d %d", cap.Tokens, int64(cap.USD))
}

// usual is the envelope of a task that names none.
func (e *Engine) usual() *budget.Envelope {
	task := e.Usual()
	return &task
}

// Usual is what a task gets that names no envelope.
func (e *Engine) Usual() budget.Envelope { return *e.store.allowed.Load().task }
