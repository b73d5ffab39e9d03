package orchestrator_test

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
	"github.com/picket-dev/picket/orchestrator"
)

const (
	linearClients = 8
	linearCalls   = 70 // of each client
	linearLosses  = 20 // at most, or the checker would have too much to try
)

// arena is one history while it is made: two processes on one store, one with
// the pipeliner and one without, and what the clients know of the tasks.
type arena struct {
	t       *testing.T
	ctx     context.Context
	w       mix
	doors   [2]*orchestrator.Engine // through faults
	clean   *orchestrator.Engine
	raw     redis.UniversalClient
	prefix  string
	sealer  *picket.Sealer
	faults  *rig.Faults
	start   time.Time
	losses  *lossPlan
	mu      sync.Mutex
	slots   []*slot
	history history
}

// slot is a task that is worked on; when it is closed a new one takes its place.
type slot struct {
	task  string
	role  string
	runs  []lease // newest last, also of earlier tasks
	helps []lop
}

type lease struct {
	held  picket.Held
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

// record lets the clients loose and returns what they saw.
func record(t *testing.T, store rig.Store, w mix, seed uint64, bug *patch) *history {
	t.Helper()
	through, faults := store.Faulty(t)
	defer faults.Close()
	ns := namespaces()
	s := &arena{
		t:      t,
		ctx:    t.Context(),
		w:      w,
		prefix: "pk:{" + ns + "}:",
		sealer: rig.Sealer(),
		faults: faults,
		start:  time.Now(),
		raw:    redis.NewUniversalClient(&store.Redis),
		losses: &lossPlan{rng: rand.New(rand.NewPCG(seed, 99))},
	}
	defer s.raw.Close()
	dir := t.TempDir()
	for i, r := range []redis.UniversalOptions{store.Redis, through.Redis, through.Redis} {
		st, err := orchestrator.Open(s.ctx,
			orchestrator.Config{Redis: r, Namespaces: []string{ns}, Sealer: s.sealer, NoPipeline: i == 2,
				Witness: dir, Found: true, Log: slog.New(slog.DiscardHandler)})
		ok(t, err)
		defer st.Close()
		bug.to(st, usual)
		if i == 0 {
			s.clean = st.Engine(ns)
		} else {
			s.doors[i-1] = st.Engine(ns)
		}
	}
	for range w.tasks {
		s.slots = append(s.slots, &slot{})
		s.refill(s.slots[len(s.slots)-1], "")
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
	if s.history.took > half*time.Millisecond*2/3 {
		t.Fatalf("a history took %v: too slow for tasks whose shortest deadline is %d s", s.history.took, half/1000)
	}
	for _, task := range s.history.tasks { // what it came to in the end
		s.call(0, s.clean, lop{verb: "read", task: task}, lease{})
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
	if len(command) == 0 || command[0] != "evalsha" && command[0] != "EVALSHA" || l.n >= linearLosses ||
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
func (s *arena) client(id int, rng *rand.Rand) {
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
		slot := s.slots[rng.IntN(len(s.slots))]
		op, by := s.choose(slot, names[rng.IntN(len(names))], rng)
		s.mu.Unlock()
		do := func() lreply { return s.call(id, s.doors[id%2], op, by) }
		got := do()
		last = nil
		if got.unknown {
			last = func() { s.learn(slot, op, do()) }
		}
		s.learn(slot, op, got)
	}
}

// choose fills in what a verb needs; s.mu is held.
func (s *arena) choose(slot *slot, verb string, rng *rand.Rand) (lop, lease) {
	op := lop{verb: verb, task: slot.task}
	switch verb {
	case "expire_due":
		op.task = ""
	case "clock":
		op.task, op.jump = "", int64(half*(1+rng.IntN(4)))
	case "acquire":
		op.content = slot.role
		if rng.IntN(3) == 0 {
			op.key = digest(slot.task, fmt.Sprint(rng.IntN(4)))
		} else if s.w.verbs["dismiss"] > 0 && rng.IntN(2) == 0 {
			op.agent = slot.role
		}
	case "answer":
		if len(slot.helps) == 0 {
			return lop{verb: "read", task: slot.task}, lease{}
		}
		h := slot.helps[len(slot.helps)-1-rng.IntN(min(2, len(slot.helps)))]
		op.task, op.help = h.task, h.help
	case "dismiss":
		op.content = slot.role
	case "read", "expire", "cancel", "approve":
	default:
		if len(slot.runs) == 0 {
			return lop{verb: "acquire", task: slot.task, content: slot.role}, lease{}
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
			next := s.slots[rng.IntN(len(s.slots))]
			op.content, op.next = fmt.Sprintf("c%d", rng.IntN(2)), lnext{next.task, next.role}
		case "release":
			op.content = string([]picket.ExitClass{picket.ExitReleased, picket.ExitCrash}[rng.IntN(2)])
		case "fail":
			op.content = []string{"again", "again", "never"}[rng.IntN(3)]
		}
		return op, by
	}
	return op, lease{}
}

// learn keeps what a reply told: leases to use, hand-offs to answer, tasks that
// are closed.
func (s *arena) learn(slot *slot, op lop, got lreply) {
	if op.verb == "advance" {
		completes, acquires := op.halves()
		s.learn(s.slotOf(op.next.task, slot), acquires, lreply{run: got.run, token: got.token})
		got.run, op = "", completes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got.run != "" {
		h, err := s.sealer.Open(s.sealer.Seal(s.clean.Namespace(), op.task, got.run).Reveal())
		if err != nil {
			s.t.Error(err)
		}
		slot.runs = append(slot.runs, lease{h, got.token})
		s.history.leases++
	}
	if op.verb == "help" && got.answer != "" {
		slot.helps = append(slot.helps, lop{task: op.task, help: got.answer})
	}
	if got.answer == "handoff" { // an escalation: its id is the run's
		slot.helps = append(slot.helps, lop{task: op.task, help: "handoff_" + op.run[len("run_"):]})
	}
	if picket.TaskState(got.answer).Terminal() || got.seen.state.Terminal() || got.code == picket.CodeTaskClosed ||
		got.code == picket.CodeTaskCancelled {
		s.refill(slot, op.task)
	}
}

// slotOf is where a task is worked on, or another slot when it is no more.
func (s *arena) slotOf(task string, otherwise *slot) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.slots, func(of *slot) bool { return of.task == task }); i >= 0 {
		return s.slots[i]
	}
	return otherwise
}

// refill puts a new task in the place of one that is closed.
func (s *arena) refill(slot *slot, closed string) {
	if slot.task != closed {
		return
	}
	slot.role = fmt.Sprintf("role-%d", len(s.history.tasks))
	window, attempts, backoff := linearWindow/1000, linearAttempts, 0
	task, err := s.clean.Submit(s.ctx, operator,
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
	s.enlist(slot.role)
	s.history.tasks = append(s.history.tasks, task.TaskID)
}

// note writes an operation into the history.
func (s *arena) note(id int, op lop, got lreply, call, back time.Time) {
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

// outcome sorts an error: a refusal is an answer, a lost reply is unknown.
func outcome(err error) (got lreply, known bool) {
	var refusal *picket.Error
	switch {
	case err == nil:
		return lreply{}, true
	case errors.As(err, &refusal) && refusal.Code != picket.CodeUnavailable:
		return lreply{code: refusal.Code}, false
	case errors.As(err, &refusal), errors.Is(err, io.EOF):
		return lreply{unknown: true}, false
	}
	return lreply{code: picket.Code(err.Error())}, false // no specification knows it
}
