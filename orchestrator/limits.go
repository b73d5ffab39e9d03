package orchestrator

import (
	"cmp"
	"fmt"

	"github.com/go-json-experiment/json"

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

// Agent sessions spend money outside of tasks: what each of their prompts may spend is reserved when the prompt is
// queued, from what the prompts of its agent name may spend on that day.

// SessionLimits bound what agent sessions spend on a UTC day.
type SessionLimits struct {
	// Namespace bounds all prompts and wakes of a namespace. Required.
	Namespace budget.Money
	// Others has the limits of every agent name that is not in Names. Required.
	Others SessionNameLimits
	Names  map[string]SessionNameLimits
}

// SessionNameLimits bound what the sessions of one agent name spend. A limit of 0 refuses what it limits.
type SessionNameLimits struct {
	Wakes   budget.Money // all wakes of a UTC day
	Prompts budget.Money // all prompts of people of a UTC day
	Each    budget.Money // one wake or prompt
}

// DefaultSessionLimits are $5 a day for a namespace, and for each agent name $0.50 a day for wakes, $2 a day for
// prompts of people, and $0.10 for one of them.
func DefaultSessionLimits() SessionLimits {
	const cent = budget.Money(10_000_000)
	return SessionLimits{Namespace: 500 * cent,
		Others: SessionNameLimits{Wakes: 50 * cent, Prompts: 200 * cent, Each: 10 * cent}}
}

// of are the limits of an agent name.
func (l SessionLimits) of(name string) SessionNameLimits {
	if own, ok := l.Names[name]; ok {
		return own
	}
	return l.Others
}

// check refuses limits that are negative or too large.
func (l SessionNameLimits) check() error {
	return cmp.Or(checkAmount("Wakes", budget.Envelope{USD: l.Wakes}),
		checkAmount("Prompts", budget.Envelope{USD: l.Prompts}), checkAmount("Each", budget.Envelope{USD: l.Each}))
}

// amounts are the limits in nano-dollars, as scripts read them.
func (l SessionNameLimits) amounts() map[string]int64 {
	return map[string]int64{"wake": int64(l.Wakes), "prompt": int64(l.Prompts), "each": int64(l.Each)}
}

// argument is the limits as scripts read them.
func (l SessionLimits) argument() (string, error) {
	err := cmp.Or(l.Others.check(), checkAmount("Namespace", budget.Envelope{USD: l.Namespace}))
	names := map[string]map[string]int64{}
	for name, own := range l.Names {
		err = cmp.Or(err, own.check())
		names[name] = own.amounts()
	}
	if err != nil {
		return "", fmt.Errorf("limits of sessions: %w", err)
	}
	raw, err := json.Marshal(map[string]any{"namespace": int64(l.Namespace), "others": l.Others.amounts(),
		"names": names})
	return string(raw), err
}

// SetSessionLimits changes what agent sessions may spend. It is for tests, and must not run beside other calls.
func (s *Store) SetSessionLimits(l SessionLimits) (err error) {
	s.cfg.SessionLimits = &l
	s.limits, err = l.argument()
	return err
}
