package orchestrator

import (
	"cmp"
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

// Quotas bound how much agents can store. The defaults are far above normal use;
// 0 means the default.
type Quotas struct {
	// Agents is how many records of agents one key keeps, those of agents that
	// are gone included until their retention is over. Defaults to 20,000.
	Agents int
	// MetadataBytes is how large the metadata of these are together. Defaults to
	// 16 MiB.
	MetadataBytes int
	// Subtasks is how many subtasks are ever made below one root task. Defaults
	// to 1,000.
	Subtasks int
	// Calls is how many metered calls one tree of tasks makes within a day.
	// Defaults to 50,000.
	Calls int
	// OpenCalls is how many metered calls of one task are under way at once.
	// Defaults to 256.
	OpenCalls int
	// Answers is how many answers of calls with an Idempotency-Key are kept of
	// one tree within a day. Defaults to 5,000.
	Answers int
	// AnswerBytes is how large these are together. Defaults to 32 MiB.
	AnswerBytes int
	// ReportBytes is how large the reports of one task are together. Older ones
	// are deleted. Defaults to 8 MiB.
	ReportBytes int
	// Reports is how many reports of one task are kept, at most picket.MaxReports. Older ones are
	// deleted. Defaults to 1,000.
	Reports int
	// LogBytes is how many bytes of each output stream of a run are kept, from picket.MinLogBytes to
	// picket.MaxLogBytes. Older ones are deleted. Defaults to 1 MiB.
	LogBytes int
	// Runs is how many runs of one task are granted before a person has to decide
	// on it. Defaults to 1,000.
	Runs int
	// BundleBytes is how large the bundle of one task may be, at most picket.MaxBundleSize.
	// Defaults to 16 MiB. A negative number means that no bundle is kept.
	BundleBytes int
	// BundlesBytes is how large the bundles are together that one key with its run keys, or one tree of tasks,
	// keeps. Defaults to 256 MiB.
	BundlesBytes int
	// MessagesBytes is how large the messages are together that one key has sent, or that are in one
	// tree of tasks. Each counts with 512 bytes more than its text. Defaults to 64 MiB.
	MessagesBytes int
}

func (e *Engine) quotas() Quotas { return e.store.cfg.Quotas }

func (q Quotas) withDefaults() Quotas {
	return Quotas{
		Agents:        cmp.Or(q.Agents, 20_000),
		MetadataBytes: cmp.Or(q.MetadataBytes, 16<<20),
		Subtasks:      cmp.Or(q.Subtasks, 1000),
		Calls:         cmp.Or(q.Calls, 50_000),
		OpenCalls:     cmp.Or(q.OpenCalls, 256),
		Answers:       cmp.Or(q.Answers, 5000),
		AnswerBytes:   cmp.Or(q.AnswerBytes, 32<<20),
		ReportBytes:   cmp.Or(q.ReportBytes, 8<<20),
		Reports:       cmp.Or(q.Reports, 1000),
		LogBytes:      cmp.Or(q.LogBytes, 1<<20),
		Runs:          cmp.Or(q.Runs, 1000),
		BundleBytes:   cmp.Or(q.BundleBytes, 16<<20),
		BundlesBytes:  cmp.Or(q.BundlesBytes, 256<<20),
		MessagesBytes: cmp.Or(q.MessagesBytes, 64<<20),
	}
}
