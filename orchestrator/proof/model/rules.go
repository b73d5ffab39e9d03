package model

import (
	"cmp"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// model is the model: what the engine promises, written a second time, plainly
// and without a store. Times are milliseconds of store time since the start.
type model struct {
	now     int64 // store time: judges every deadline
	clock   int64 // the server's clock: when request records are forgotten
	paused  bool
	stopped bool // paused hard
	// After an adoption: no token up to the floor holds any more, and who does
	// not reclaim within the grace has lost its lease.
	floor       int64
	adopted     int64
	rowsOfCalls int // of the same calls in a row, of all runs

	chores bool // the leases that nobody reclaimed are still to be ended

	tasks map[string]*modelTask
	runs  map[string]*modelRun
	helps map[string]*modelHandoff
	// agents by id; incarnations is the number that was given out last.
	agents        map[string]*modelAgent
	sessions      map[string]*modelSession // by agent
	incarnations  int64
	pendingChores map[string]func() int // leases of those who are gone, by chore
	batch         int                   // leases that one step ends with their agent
	granted       int64
	ids           []string // tasks in the order of their creation
	rids          []string // runs in the order of their grants
	hids          []string
	messages      int // that were sent
	// People who wait: how long the machine made them, and what each rule of reminders has looked at.
	waited int64
	looked map[string]bool // by "rule entry"

	requests   map[string]modelRequest
	wantEvents []modelEvent // the events that the verb at hand has to write

	envs   map[string]*modelEnvelope
	calls  map[string]*modelCall      // by "task call"
	totals map[string]budget.Envelope // reported usage by "run session" or "task session"
	rows   int                        // of the ledger
	booked []modelBooking             // those of them that totals count
	made   map[string]string          // subtasks by "parent key batch"

	ended  map[string]bool // keys of clients that were revoked
	orders int64           // that tasks and push configurations have got

	gated  map[string]map[string]bool // the caller that waits for the calls of a task
	stride int                        // tasks that one step cancels below one
}

func newModel() *model {
	return &model{
		tasks:         map[string]*modelTask{},
		runs:          map[string]*modelRun{},
		helps:         map[string]*modelHandoff{},
		requests:      map[string]modelRequest{},
		looked:        map[string]bool{},
		agents:        map[string]*modelAgent{},
		sessions:      map[string]*modelSession{},
		pendingChores: map[string]func() int{},
		batch:         100,
		envs:          map[string]*modelEnvelope{},
		calls:         map[string]*modelCall{},
		totals:        map[string]budget.Envelope{},
		made:          map[string]string{},
		ended:         map[string]bool{},
		gated:         map[string]map[string]bool{},
		stride:        100,
	}
}

type modelEvent struct {
	kind string
	task string
}

// modelSpec is the part of a specification that rules look at.
type modelSpec struct {
	lane        string // agent:<id>, or <role>|<needs>
	role        string
	team        string // a label
	assignee    string
	priority    int
	window      int64
	backoff     int64
	maxAttempts int
	retryOn     []picket.ExitClass
	fails       bool
	unreviewed  bool // escalate: fail; review: none
	byParent    bool // review: parent
	envelope    budget.Envelope
	client      modelClient
}

type modelTask struct {
	modelSpec
	id       string
	state    picket.TaskState
	order    int64
	token    int64
	attempt  int
	failures int
	runsFrom int  // the attempt at which a person decided last
	lastRun  bool // the quota allows no run after this one
	reports  int64
	run      string
	help     string
	deadline int64  // of the lease
	where    string // the lane it waits in, "" when it does not
	due      int64  // when it is looked at again, 0 for never
	ready    int64  // from when its own rules let it run
	gate     string // the run whose process it waits for
	pin      string
	pinUntil int64
	pinRetry bool // it is kept for a worker that has the workspace, and not for an answer
	fixes    string
	anew     string   // as what it was retried
	edited   string   // the input as a person has made it
	calls    []string // the tasks whose calls it waits for beside its own
	review   string   // what a run decided about it
	inbox    []string // the messages that were not read, oldest first
	inReview int64    // since when, by the server's clock
	modelTree
	modelBundles
	modelEmissions
	modelPushes
}

type modelRun struct {
	id          string
	task        string
	agent       string
	incarnation int64 // of the agent, 0 for one that was not registered
	workspace   bool  // it has a directory of its own
	number      int64 // of the grant
	token       int64
	tokens      []int64 // all it ever had
	window      int64
	state       picket.RunState
	class       picket.ExitClass
	confirmed   bool
	launched    bool
	exited      bool
	keyEnded    bool // its key was revoked, with its leases
	code        string
	ended       int64
	deadline    int64
	exitedAt    int64
	closed      string
	closedSay   string
	seen        []modelReport // newest first, at most 32
	modelActivity
	modelMessages
	runMoney
}

type modelReport struct {
	request string
	content string
	seq     int64
}

type modelHandoff struct {
	id       string
	task     string
	run      string
	claimed  string
	kind     picket.HandoffKind
	state    picket.HandoffState
	deadline int64
	policy   picket.OnDeadline
	assignee string // as a claim has named it
	since    int64  // by the server's clock
}

// requestID identifies a request; the zero value is one that is never repeated.
type requestID struct {
	key  string
	body string
}

type modelRequest struct {
	body    string
	answer  []string
	forgets int64 // by the server's clock
}

const day = 24 * 3600 * 1000

// once answers a request that was made before.
func (m *model) once(o requestID) (answer []string, code picket.Code, again bool) {
	was, ok := m.requests[o.key]
	if o.key == "" || !ok || m.clock >= was.forgets {
		return nil, "", false
	}
	if was.body != o.body {
		return nil, picket.CodeIdempotencyConflict, true
	}
	return was.answer, "", true
}

func (m *model) remember(o requestID, life int64, answer ...string) {
	if o.key != "" {
		m.requests[o.key] = modelRequest{body: o.body, answer: answer, forgets: m.clock + life}
	}
}

func (m *model) emit(kind, task string) { m.wantEvents = append(m.wantEvents, modelEvent{kind, task}) }

// Queueing.

// source is what a new task repairs or repeats, and the run whose process that
// may have left behind.
type source struct {
	run     string
	fixes   string
	retries string
}

func (m *model) create(id string, s modelSpec, ready int64, of source, parent string) {
	m.orders++
	t := &modelTask{
		modelSpec: s,
		id:        id,
		state:     picket.TaskQueued,
		order:     m.orders,
		fixes:     of.fixes,
		modelTree: modelTree{parent: parent},
	}
	m.tasks[id] = t
	m.ids = append(m.ids, id)
	if parent != "" {
		t.assignee = cmp.Or(t.assignee, m.tasks[parent].assignee)
		m.placeBelow(t, of.fixes+of.retries != "")
	}
	m.carve(parent, id, s.envelope)
	m.inherit(t, cmp.Or(of.retries, of.fixes))
	m.enqueue(t, ready, of.run)
	m.emit(picket.EventTaskSubmitted, id)
	if parent != "" {
		m.warn(m.envs[parent])
	}
}

// stillOpen says until when the process of a run may still act outside.
func (m *model) stillOpen(run string) int64 {
	if r := m.runs[run]; r != nil && r.launched && !r.exited {
		return r.deadline
	}
	return 0
}

// processRun names the run whose process a task that repairs or repeats t has to
// wait for: its last one, or the one that t itself was waiting for.
func (t *modelTask) processRun() string { return cmp.Or(t.gate, t.run) }

// enqueue is the only way back to queued: not before ready, and not before the
// process of the run that held it last is known to be gone.
func (m *model) enqueue(t *modelTask, ready int64, gate string) {
	t.state, t.ready, t.gate, t.where, t.due = picket.TaskQueued, ready, "", "", 0
	barrier := m.stillOpen(gate)
	calls, caller := m.acting(t.id, t.calls)
	at := max(ready, barrier, calls)
	if t.pin != "" {
		t.pinUntil = max(at, m.now) + 60_000
		if t.pinRetry {
			t.pinUntil = max(at, m.now) + 10_000
		}
	}
	if at <= m.now {
		m.place(t)
		return
	}
	t.due = at
	if calls > m.now {
		m.waitsFor(t.id, caller)
	}
	if barrier > m.now {
		t.gate = gate
	}
}

func (m *model) place(t *modelTask) {
	t.gate, t.where, t.due = "", t.lane, 0
	if (t.pin == "" || m.now >= t.pinUntil) && m.instanceLives(t) {
		t.pin, t.pinRetry, t.pinUntil = t.client.agent, false, m.now+60_000
	}
	if a := m.agents[t.pin]; t.pin != "" && m.now < t.pinUntil && (a == nil || m.takesTasks(t.pin)) {
		t.where, t.due = "agent:"+t.pin, t.pinUntil
	}
}

func (m *model) promote(limit int) {
	var due []*modelTask
	for _, t := range m.tasks {
		if t.state == picket.TaskQueued && t.due > 0 && t.due <= m.now {
			due = append(due, t)
		}
	}
	slices.SortFunc(due, func(a, b *modelTask) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.id, b.id))
	})
	for _, t := range due[:min(limit, len(due))] {
		if m.cancelledAbove(t) {
			m.dropCancelled(t)
			continue
		}
		m.place(t)
	}
}

// The retry policy.

func countsFailure(c picket.ExitClass) bool {
	switch c {
	case picket.ExitCrash, picket.ExitTimeout, picket.ExitStalled, picket.ExitNoResult, picket.ExitAgentFailed,
		picket.ExitLeaseExpired, picket.ExitAgentDead:
		return true
	}
	return false
}

// wait is how long the n-th failure delays the next attempt: nothing at first,
// then the backoff, doubling up to five minutes or to itself.
func (s modelSpec) wait(failures int) int64 {
	if failures <= 1 {
		return 0
	}
	d := s.backoff
	for i := 2; i < failures && d < 300_000; i++ {
		d *= 2
	}
	return min(d, max(s.backoff, 300_000))
}

// end ends the lease of a run.
func (m *model) end(r *modelRun, state picket.RunState, class picket.ExitClass) {
	t := m.tasks[r.task]
	r.state, r.class, r.ended, r.deadline = state, class, m.now, t.deadline
	t.deadline = 0
	m.endDrain(r)
}

// after decides the next state of the task of an ended run.
func (m *model) after(r *modelRun, class picket.ExitClass, retryable bool) picket.TaskState {
	t := m.tasks[r.task]
	failed := countsFailure(class)
	if !failed && !t.lastRun {
		m.enqueue(t, 0, r.id)
		return t.state
	}
	if failed {
		t.failures++
	}
	byItself := class == picket.ExitLeaseExpired || class == picket.ExitAgentFailed || class == picket.ExitAgentDead ||
		slices.Contains(t.retryOn, class)
	switch {
	case retryable && byItself && t.failures < t.maxAttempts && !t.lastRun:
		if a := m.agents[r.agent]; r.workspace && r.incarnation > 0 && class != picket.ExitLeaseExpired &&
			t.lane != "agent:"+r.agent &&
			a != nil && a.status == picket.AgentActive && a.incarnation == r.incarnation {
			t.pin, t.pinRetry = r.agent, true
		}
		m.enqueue(t, m.now+t.wait(t.failures), r.id)
	case failed && t.fails:
		t.state = picket.TaskFailed
		m.endMoney(t)
	default:
		m.park(r, picket.HandoffEscalation, 0, picket.OnDeadlineWait)
	}
	return t.state
}

func (m *model) park(r *modelRun, kind picket.HandoffKind, deadline int64, policy picket.OnDeadline) string {
	t := m.tasks[r.task]
	if policy == picket.OnDeadlineDeny && t.lastRun {
		policy = picket.OnDeadlineEscalate
	}
	h := &modelHandoff{
		id:       "handoff_" + r.id[len("run_"):],
		task:     t.id,
		run:      r.id,
		kind:     kind,
		state:    picket.HandoffOpen,
		deadline: deadline,
		policy:   policy,
		since:    m.wall(),
	}
	m.helps[h.id] = h
	m.hids = append(m.hids, h.id)
	t.state, t.help = picket.TaskHandoff, h.id
	return h.id
}

// runQuota is how many runs of a task are granted until a person decides.
const runQuota = 6

func (m *model) countRunsAnew(t *modelTask) { t.runsFrom, t.lastRun = t.attempt, false }

// decide answers a hand-off: for a minute only the agent that asked gets the
// task, if it still takes any; an escalation starts counting again. So does the
// quota of runs, when a person decides.
func (m *model) decide(h *modelHandoff, byPerson bool) {
	t := m.tasks[h.task]
	if byPerson {
		m.countRunsAnew(t)
	}
	h.state = picket.HandoffAnswered
	if h.kind == picket.HandoffEscalation {
		t.failures = 0
	} else if r := m.runs[h.run]; r.incarnation == 0 || m.takesTasks(r.agent) {
		t.pin, t.pinRetry = r.agent, false
	}
	m.enqueue(t, 0, h.run)
	m.emit(picket.EventTaskAnswered, t.id)
}
