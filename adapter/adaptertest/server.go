// Package adaptertest is a control plane and a tool proxy in memory, for the
// tests of an adapter, this one or any other. It grants the leases a test
// scripts, fences writes as the real servers do, keeps what the adapter sent,
// and fails on command: it loses requests or replies, answers 503, expires,
// cancels and supersedes leases. [Conform] runs any adapter against the rules of
// the lease protocol.
//
// [Start] serves on a loopback port. [New] with [Server.HTTPClient] needs no
// socket, so a test may run in a testing/synctest bubble, where hours pass at
// once.
package adaptertest

import (
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// Key is the API key that the control plane accepts.
const Key picket.Secret = "pkk_test"

// Server is both servers and their state. It is safe for concurrent use.
type Server struct {
	// URL is where it listens; a name that only HTTPClient knows until Start.
	URL string
	// Thresholds are what an adapter under test is to register with, so that a
	// check need not take minutes. Zero: it may choose.
	Thresholds picket.HeartbeatConfig
	// OnRegister is called for every registration that arrives, before it has any effect. Set it
	// before there is an adapter; it must not call the server.
	OnRegister func(picket.Registration)

	mu             sync.Mutex
	changed        chan struct{} // closed and replaced at every change
	tasks          map[string]*task
	leases         map[picket.Secret]*lease // by their leaseToken
	byAgentToken   map[picket.Secret]*lease // by their agentToken
	queue          []*task
	acquireReplays map[string][]*lease // acquires by Idempotency-Key
	requests       map[string]string   // what was asked for, by the same
	calls          []Call
	faults         []*activeFault
	paused         bool

	agents      map[string]*agent
	agentIDs    []string                // in the order of their first registration
	registered  map[string]picket.Agent // by Idempotency-Key
	incarnation int64

	noRegistry  bool
	noSeparate  bool
	noAdvance   bool
	noTogether  bool
	foreign     map[string]bool // runs whose lease another key has acquired
	clockOffset time.Duration   // of the clock on the wall
}

// Task scripts a task. Zero values mean the defaults.
type Task struct {
	Title   string            // Defaults to "test".
	Input   picket.RawJSON    // Defaults to null.
	Window  time.Duration     // Defaults to 300 s.
	Timeout time.Duration     // whole seconds. Defaults to none.
	Stall   time.Duration     // whole seconds: stallAfterSeconds. Defaults to none.
	OnExit  picket.OnExit     // Defaults to fail.
	Role    string            // Defaults to none.
	Labels  map[string]string // Default to none.
	Fixes   string            // the task this one repairs. Defaults to none.
	Retries int               // how often a failed or expired run is tried again. Defaults to 0.
	// LastReport and Answers are handed to the run. Default to none.
	LastReport *picket.Report
	Answers    []picket.Answer
	MCPURL     string           // Defaults to none.
	Trace      *picket.Trace    // Defaults to none.
	Budget     *budget.Envelope // of the task, and what it has left. Defaults to budget.Default.
	Overrun    bool             // whatever a run says it has used is more than the task has left. Defaults to false.
}

// New makes a server without a socket; reach it with HTTPClient.
func New() *Server {
	return &Server{
		URL:            "http://picket.invalid",
		changed:        make(chan struct{}),
		tasks:          map[string]*task{},
		leases:         map[picket.Secret]*lease{},
		byAgentToken:   map[picket.Secret]*lease{},
		acquireReplays: map[string][]*lease{},
		requests:       map[string]string{},
		agents:         map[string]*agent{},
		foreign:        map[string]bool{},
		registered:     map[string]picket.Agent{},
	}
}

// Start makes a server that listens on a loopback port until the test ends.
func Start(tb testing.TB) *Server {
	s := New()
	h := httptest.NewServer(s)
	tb.Cleanup(func() {
		h.CloseClientConnections() // ends open long polls
		h.Close()
	})
	s.URL = h.URL
	return s
}

type task struct {
	script  Task
	id      string
	view    View
	attempt int
	runs    []*lease
	last    *picket.Report
	upload  *bundleUpload // nil: there is none
	// messages wait for the agent of the task, oldest first.
	messages []picket.Message
}

type lease struct {
	task        *task
	agent       string // that holds it; empty when it is not registered
	incarnation int64
	record      picket.Lease
	window      time.Duration
	deadline    time.Time
	confirmed   bool
	called      time.Time // the last tool call
	void        bool      // from before an adoption, not reclaimed yet
	state       picket.WatchState
	refusal     picket.Code // of later writes, once ended
	commands    []picket.Command
	execs       []pendingExec // programs without a result
	verb        string        // the verb that ended it, for repetitions
	answer      picket.TaskState
	run         RunView
	logs        map[string][]byte
}

// Grant makes a task and leases it at once, for a test that runs one lease.
func (s *Server) Grant(script Task) picket.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.notify()
	return s.grant(s.submit(script)).record
}

// Queue makes a task that the next acquire is given, and answers its id.
func (s *Server) Queue(script Task) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.notify()
	t := s.submit(script)
	s.queue = append(s.queue, t)
	return t.id
}

func (s *Server) submit(script Task) *task {
	if script.Title == "" {
		script.Title = "test"
	}
	if script.Window == 0 {
		script.Window = picket.DefaultWindow * time.Second
	}
	if script.Budget == nil {
		usual := budget.Default()
		script.Budget = &usual
	}
	if script.OnExit == "" {
		script.OnExit = picket.OnExitFail
	}
	t := &task{script: script, id: newID("task"), view: View{State: picket.TaskQueued}, last: script.LastReport}
	s.tasks[t.id] = t
	return t
}

func (s *Server) grant(t *task) *lease {
	t.view.Token++
	t.attempt++
	t.view.State = picket.TaskLeased
	first := min(t.script.Window, 30*time.Second)
	run := newID("run")
	l := &lease{
		task: t, window: t.script.Window, deadline: s.now().Add(first), state: picket.WatchHeld,
		logs: map[string][]byte{}, run: RunView{RunID: run},
	}
	l.record = picket.Lease{
		TaskID:         t.id,
		RunID:          run,
		LeaseExpiresAt: picket.InstantOf(l.deadline),
		FencingToken:   t.view.Token,
		BudgetEnvelope: *t.script.Budget,
		LeaseID:        "lease" + run[len("run"):],
		LeaseToken:     picket.Secret(picket.LeaseTokenPrefix + rand.Text()),
		LeaseTTLMs:     first.Milliseconds(),
		WindowMs:       t.script.Window.Milliseconds(),
		Attempt:        t.attempt,
		LastReport:     t.last,
		Answers:        t.script.Answers,
		ProxyURL:       s.URL,
		MCPURL:         t.script.MCPURL,
		Task: picket.LeaseTask{
			Title:    t.script.Title,
			Input:    t.script.Input,
			OnExit:   t.script.OnExit,
			Role:     t.script.Role,
			Labels:   t.script.Labels,
			Trace:    t.script.Trace,
			Priority: picket.DefaultPriority,
		},
	}
	if t.script.Fixes != "" {
		l.record.Task.Fixes = &t.script.Fixes
	}
	if n := int(t.script.Timeout / time.Second); n > 0 {
		l.record.Task.TimeoutSeconds = &n
	}
	if n := int(t.script.Stall / time.Second); n > 0 {
		l.record.Task.StallAfterSeconds = &n
	}
	if len(t.runs) > 0 {
		l.record.PreviousExit = t.runs[len(t.runs)-1].run.Released
	}
	l.run.LeaseToken = l.record.LeaseToken
	t.runs = append(t.runs, l)
	s.leases[l.record.LeaseToken] = l
	return l
}

// addAgentToken gives a lease a credential for its agent beside that of its adapter.
func (s *Server) addAgentToken(l *lease) {
	l.record.AgentToken = picket.Secret(picket.LeaseTokenPrefix + rand.Text())
	l.run.AgentToken = l.record.AgentToken
	s.byAgentToken[l.record.AgentToken] = l
}

// leaseOf finds a lease by either of its credentials.
func (s *Server) leaseOf(bearer picket.Secret) *lease {
	if l := s.leases[bearer]; l != nil {
		return l
	}
	return s.byAgentToken[bearer]
}

// end ends a lease: its watch answers state, its writes are refused with code.
func (s *Server) end(l *lease, state picket.WatchState, code picket.Code, to picket.TaskState) {
	l.state, l.refusal, l.answer = state, code, to
	l.run.Ended = s.now()
	l.task.view.State = to
	if to == picket.TaskQueued {
		s.queue = append(s.queue, l.task)
	}
	if a := s.agents[l.agent]; a != nil && a.record.Status == picket.AgentDraining && len(s.heldBy(a)) == 0 {
		s.transition(a, picket.ReasonDrainCompleted)
	}
	s.notify()
}

// stateAfterFailure is where a task goes after a failed run.
func (t *task) stateAfterFailure() picket.TaskState {
	if t.attempt <= t.script.Retries {
		return picket.TaskQueued
	}
	return picket.TaskHandoff
}

// current is the lease that is held, or nil.
func (t *task) current() *lease {
	if n := len(t.runs); n > 0 && t.runs[n-1].state == picket.WatchHeld {
		return t.runs[n-1]
	}
	return nil
}

// notify tells everybody who waits that something changed.
func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

var _ http.Handler = (*Server)(nil)
