package linear

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

const (
	linearClients = 8
	linearCalls   = 70 // of each client
	linearLosses  = 20 // at most, or the checker would have too much to try
)

// historyRecorder is one history while it is made: two processes on one store, one with
// batches and one without, and what the clients know of the tasks.
type historyRecorder struct {
	t         *testing.T
	ctx       context.Context
	w         verbMix
	engines   [2]*orchestrator.Engine // through faults
	clean     *orchestrator.Engine
	raw       redis.UniversalClient
	prefix    string
	sealer    *seal.Sealer
	faults    *rig.FaultProxy
	start     time.Time
	losses    *lossPlan
	mu        sync.Mutex
	openTasks []*openTask
	history   history
}

// openTask is a task that is worked on; when it is closed a new one takes its place.
type openTask struct {
	task  string
	role  string
	runs  []grantedLease // newest last, also of earlier tasks
	helps []linearOp
}

type grantedLease struct {
	held  picket.LeaseCredential
	token int64
}

var namespaces = func() func() string {
	var mu sync.Mutex
	n := 0
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		n++
		return fmt.Sprintf("linear-%d", n)
	}
}()

// recordHistory lets the clients loose and returns what they saw.
func recordHistory(t *testing.T, store rig.Store, w verbMix, seed uint64, bug *kit.ScriptPatch) *history {
	t.Helper()
	through, faults := store.Faulty(t)
	defer faults.Close()
	ns := namespaces()
	s := &historyRecorder{
		t:      t,
		ctx:    t.Context(),
		w:      w,
		prefix: "pk:{" + ns + "}:",
		sealer: rig.Sealer(),
		faults: faults,
		start:  time.Now(),
		raw:    rig.Hashes(redis.NewUniversalClient(&store.Redis)),
		losses: &lossPlan{rng: rand.New(rand.NewPCG(seed, 99))},
	}
	defer s.raw.Close()
	dir := t.TempDir()
	for i, r := range []redis.UniversalOptions{store.Redis, through.Redis, through.Redis} {
		st, err := orchestrator.Open(s.ctx,
			orchestrator.Config{Redis: r, Namespaces: []string{ns}, Sealer: s.sealer, NoBatch: i == 2,
				Witness: dir, Found: true, Log: slog.New(slog.DiscardHandler)})
		kit.OK(t, err)
		defer st.Close()
		bug.Apply(st, kit.DefaultBatches)
		if i == 0 {
			s.clean = st.Engine(ns)
		} else {
			s.engines[i-1] = st.Engine(ns)
		}
	}
	for range w.tasks {
		s.openTasks = append(s.openTasks, &openTask{})
		s.refill(s.openTasks[len(s.openTasks)-1], "")
	}
	faults.Plan(s.losses.plan)
	var clients sync.WaitGroup
	for i := range linearClients {
		clients.Go(func() { s.client(i, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	clients.Wait()
	faults.Plan(nil)
	s.losses.release(1 << 60)
	s.history.took = time.Since(s.start)
	if s.history.took > kit.HalfMinute*time.Millisecond*2/3 {
		t.Fatalf("a history took %v: too slow for tasks whose shortest deadline is %d s", s.history.took,
			kit.HalfMinute/1000)
	}
	for _, task := range s.history.tasks { // what it came to in the end
		s.call(0, s.clean, linearOp{verb: "read", task: task}, grantedLease{})
	}
	return &s.history
}

// lossPlan decides which commands are lost, and how.
type lossPlan struct {
	mu   sync.Mutex
	rng  *rand.Rand
	n    int
	late []lateFault
}

// lateFault is a request that its caller gave up; it arrives some operations later.
type lateFault struct {
	fault *rig.Fault
	at    int
}

func (l *lossPlan) plan(command []string) *rig.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !rig.CallsVerb(command) || l.n >= linearLosses ||
		l.rng.IntN(100) >= 3 {
		return nil
	}
	l.n++
	switch l.rng.IntN(5) {
	case 0:
		return rig.NewFault(rig.Drop)
	case 1, 2:
		fault := rig.NewFault(rig.HoldRequest)
		l.late = append(l.late, lateFault{fault, l.rng.IntN(linearClients * linearCalls)})
		go fault.GiveUp() // waits for the command to come in
		return fault
	}
	return rig.NewFault(rig.SwallowReply)
}

// release lets go of what was held back until so many operations were done.
func (l *lossPlan) release(done int) {
	l.mu.Lock()
	var due []*rig.Fault
	l.late = slices.DeleteFunc(l.late, func(f lateFault) bool {
		if f.at <= done {
			due = append(due, f.fault)
		}
		return f.at <= done
	})
	l.mu.Unlock()
	for _, f := range due {
		f.Release()
		<-f.Over()
	}
}

// client works through its calls: what is drawn is repeatable, how the clients
// meet is not.
func (s *historyRecorder) client(id int, rng *rand.Rand) {
	var names []string
	for _, verb := range slices.Sorted(func(yield func(string) bool) {
		for v := range s.w.verbs {
			if !yield(v) {
				return
			}
		}
	}) {
		for range s.w.verbs[verb] {
			names = append(names, verb)
		}
	}
	var last func() // repeats a call whose reply was lost
	for range linearCalls {
		if last != nil && rng.IntN(2) == 0 {
			repeat := last
			last = nil
			repeat()
			continue
		}
		s.mu.Lock()
		slot := s.openTasks[rng.IntN(len(s.openTasks))]
		op, by := s.choose(slot, names[rng.IntN(len(names))], rng)
		s.mu.Unlock()
		do := func() linearResult { return s.call(id, s.engines[id%2], op, by) }
		got := do()
		last = nil
		if got.unknown {
			last = func() { s.learn(slot, op, do()) }
		}
		s.learn(slot, op, got)
	}
}

// choose fills in what a verb needs; s.mu is held.
func (s *historyRecorder) choose(slot *openTask, verb string, rng *rand.Rand) (linearOp, grantedLease) {
	op := linearOp{verb: verb, task: slot.task}
	switch verb {
	case "expire_due":
		op.task = ""
	case "clock":
		op.task, op.jump = "", int64(kit.HalfMinute*(1+rng.IntN(4)))
	case "acquire":
		op.content = slot.role
		if rng.IntN(3) == 0 {
			op.key = requestKey(slot.task, fmt.Sprint(rng.IntN(4)))
		} else if s.w.verbs["dismiss"] > 0 && rng.IntN(2) == 0 {
			op.agent = slot.role
		}
	case "answer":
		if len(slot.helps) == 0 {
			return linearOp{verb: "read", task: slot.task}, grantedLease{}
		}
		h := slot.helps[len(slot.helps)-1-rng.IntN(min(2, len(slot.helps)))]
		op.task, op.help = h.task, h.help
	case "dismiss":
		op.content = slot.role
	case "read", "expire", "cancel", "approve":
	default:
		if len(slot.runs) == 0 {
			return linearOp{verb: "acquire", task: slot.task, content: slot.role}, grantedLease{}
		}
		back := 0
		if rng.IntN(3) == 0 { // a zombie
			back = rng.IntN(min(4, len(slot.runs)))
		}
		by := slot.runs[len(slot.runs)-1-back]
		op.task, op.run, op.token = by.held.TaskID, by.held.RunID, by.token
		if rng.IntN(3) == 0 {
			by.held.Fence = by.token
		}
		switch verb {
		case "report":
			op.content = fmt.Sprintf("v%d", rng.IntN(1000))
			if rng.IntN(2) == 0 {
				op.key, op.content = fmt.Sprintf("r%d", rng.IntN(3)), fmt.Sprintf("v%d", rng.IntN(2))
			}
		case "complete", "help":
			op.content = fmt.Sprintf("c%d", rng.IntN(2))
		case "advance":
			next := s.openTasks[rng.IntN(len(s.openTasks))]
			op.content, op.next = fmt.Sprintf("c%d", rng.IntN(2)), nextTask{next.task, next.role}
		case "release":
			op.content = string([]picket.ExitClass{picket.ExitReleased, picket.ExitCrash}[rng.IntN(2)])
		case "fail":
			op.content = []string{"again", "again", "never"}[rng.IntN(3)]
		}
		return op, by
	}
	return op, grantedLease{}
}

// learn keeps what a reply told: leases to use, hand-offs to answer, tasks that
// are closed.
func (s *historyRecorder) learn(slot *openTask, op linearOp, got linearResult) {
	if op.verb == "advance" {
		completes, acquires := op.split()
		s.learn(s.openTaskOf(op.next.task, slot), acquires, linearResult{run: got.run, token: got.token})
		got.run, op = "", completes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got.run != "" {
		h, err := s.sealer.OpenLeaseToken(s.sealer.LeaseToken(s.clean.Namespace(), op.task, got.run).Reveal())
		if err != nil {
			s.t.Error(err)
		}
		slot.runs = append(slot.runs, grantedLease{h, got.token})
		s.history.leases++
	}
	if op.verb == "help" && got.answer != "" {
		slot.helps = append(slot.helps, linearOp{task: op.task, help: got.answer})
	}
	if got.answer == "handoff" { // an escalation: its id is the run's
		slot.helps = append(slot.helps, linearOp{task: op.task, help: "handoff_" + op.run[len("run_"):]})
	}
	if picket.TaskState(got.answer).Terminal() || got.seen.state.Terminal() || got.code == picket.CodeTaskClosed ||
		got.code == picket.CodeTaskCancelled {
		s.refill(slot, op.task)
	}
}

// openTaskOf is where a task is worked on, or another slot when it no longer exists.
func (s *historyRecorder) openTaskOf(task string, otherwise *openTask) *openTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.openTasks, func(of *openTask) bool { return of.task == task }); i >= 0 {
		return s.openTasks[i]
	}
	return otherwise
}

// refill puts a new task in the place of one that is closed.
func (s *historyRecorder) refill(slot *openTask, closed string) {
	if slot.task != closed {
		return
	}
	slot.role = fmt.Sprintf("role-%d", len(s.history.tasks))
	window, attempts, backoff := linearWindow/1000, linearAttempts, 0
	task, err := s.clean.Submit(s.ctx, kit.Operator,
		picket.TaskSpec{
			Title:              "a task",
			Role:               slot.role,
			LeaseWindowSeconds: &window,
			Retry: &picket.Retry{
				MaxAttempts:    &attempts,
				BackoffSeconds: &backoff,
				On:             []picket.ExitClass{picket.ExitCrash},
			},
		})
	if err != nil {
		s.t.Error(err)
	}
	slot.task = task.TaskID
	s.registerAgent(slot.role)
	s.history.tasks = append(s.history.tasks, task.TaskID)
}

// addOperation writes an operation into the history.
func (s *historyRecorder) addOperation(id int, op linearOp, got linearResult, call, back time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := porcupine.Operation{
		ClientId: id,
		Input:    op,
		Output:   got,
		Call:     int64(call.Sub(s.start)),
		Return:   int64(back.Sub(s.start)),
	}
	if got.unknown {
		o.Return = noReturn
		s.history.unknown++
	}
	if got.code != "" {
		s.history.refused++
	}
	s.history.calls++
	s.history.ops = append(s.history.ops, o)
}

// classifyError sorts an error: a refusal is an answer, a lost reply is unknown.
func classifyError(err error) (got linearResult, known bool) {
	var refusal *picket.Error
	switch {
	case err == nil:
		return linearResult{}, true
	case errors.As(err, &refusal) && refusal.Code != picket.CodeUnavailable:
		return linearResult{code: refusal.Code}, false
	case errors.As(err, &refusal), errors.Is(err, io.EOF):
		return linearResult{unknown: true}, false
	}
	return linearResult{code: picket.Code(err.Error())}, false // no specification knows it
}
