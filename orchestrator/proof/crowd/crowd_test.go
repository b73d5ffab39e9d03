package crowd

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The crowd: many workers, two processes' worth of stores and reapers on one
// real Redis. Workers crash, give up and come back as zombies; people decide
// as fast as the log tells them to.
func TestCrowdReal(t *testing.T) {
	for _, noBatch := range []bool{false, true} {
		t.Run(fmt.Sprintf("NoBatch=%v", noBatch), func(t *testing.T) {
			s := rig.Real(t)
			for round := range rig.Rounds(1, 20) {
				runCrowd(t, s, fmt.Sprintf("crowd-%d", round), noBatch)
			}
		})
	}
}

const (
	crowdWorkers = 20
	crowdTasks   = 100
)

type crowd struct {
	t      *testing.T
	ctx    context.Context
	stores [2]*orchestrator.Store
	e      [2]*orchestrator.Engine
	sealer *seal.Sealer
	seed   uint64
	wg     sync.WaitGroup // everything that must end before the stores close

	mu      sync.Mutex
	highest map[string]int64 // the highest token seen of each task
	crashes int
	passes  int // of the scanner
	zombies int
}

func runCrowd(t *testing.T, s rig.Store, namespace string, noBatch bool) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := &crowd{t: t, ctx: ctx, sealer: rig.Sealer(), seed: rig.Seed(t), highest: map[string]int64{}}
	redis := s.Redis
	redis.ReadTimeout = 20 * time.Second // no request is lost on a busy machine
	for i := range c.stores {
		store, err := orchestrator.Open(ctx,
			orchestrator.Config{Redis: redis, Namespaces: []string{namespace}, Sealer: c.sealer,
				NoBatch: noBatch, Witness: t.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler)})
		kit.OK(t, err)
		defer store.Close()
		c.stores[i], c.e[i] = store, store.Engine(namespace)
	}
	running, stop := context.WithCancel(ctx)
	for i := range c.e {
		c.wg.Go(func() { c.reap(running, c.e[i]) })
		c.wg.Go(func() { c.inspect(running, c.e[i]) })
	}
	for i := range crowdWorkers {
		c.wg.Go(func() { c.work(running, i) })
	}
	c.submit()
	c.decide() // returns when every task is closed
	stop()
	c.wg.Wait()
	c.check()
}

// reap is a reaper's loop. Its interval decides how late a crash is noticed,
// not what the outcome is.
func (c *crowd) reap(ctx context.Context, e *orchestrator.Engine) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := e.Tick(ctx); err != nil && ctx.Err() == nil {
			c.t.Errorf("tick: %v", err)
		}
		if _, err := e.ExpireDue(ctx, 100); err != nil && ctx.Err() == nil {
			c.t.Errorf("expire due: %v", err)
		}
		if _, err := e.RunChores(ctx, 100); err != nil && ctx.Err() == nil {
			c.t.Errorf("chore: %v", err)
		}
	}
}

func (c *crowd) submit() {
	rnd := rand.New(rand.NewPCG(c.seed, 1000))
	for i := range crowdTasks {
		spec := picket.TaskSpec{Title: fmt.Sprint("task ", i), Priority: kit.Ptr(rnd.IntN(10)),
			LeaseWindowSeconds: kit.Ptr(2),
			Retry: &picket.Retry{MaxAttempts: kit.Ptr(4), BackoffSeconds: kit.Ptr(0),
				On: []picket.ExitClass{picket.ExitCrash}}}
		if rnd.IntN(2) == 0 {
			spec.Escalate = picket.EscalateFail
		}
		if rnd.IntN(2) == 0 {
			spec.Review = picket.ReviewByNone
		}
		if rnd.IntN(3) == 0 {
			spec.Role = "coder"
		}
		if _, err := c.e[i%2].Submit(c.ctx, kit.Operator, spec); err != nil {
			c.t.Fatalf("submit: %v", err)
		}
	}
}

// work is one worker after the other in one place: a crashed one is replaced.
func (c *crowd) work(ctx context.Context, i int) {
	rnd := rand.New(rand.NewPCG(c.seed, uint64(i)))
	e := c.e[i%2]
	req := picket.AcquireRequest{AgentID: fmt.Sprintf("agent-%d", i), WaitSeconds: kit.Ptr(20)}
	if i%2 == 0 {
		req.Role = "coder"
	}
	for ctx.Err() == nil {
		leases, err := e.Acquire(ctx, kit.Operator, req)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.t.Errorf("acquire: %v", err)
			return
		}
		for _, l := range leases {
			c.saw(l)
			c.run(ctx, rnd, e, l)
		}
	}
}

// saw checks that the tokens of a task rise in the order of its grants.
func (c *crowd) saw(l picket.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.FencingToken <= c.highest[l.TaskID] {
		c.t.Errorf("%s was granted under token %d after %d", l.TaskID, l.FencingToken, c.highest[l.TaskID])
	}
	c.highest[l.TaskID] = l.FencingToken
}

func (c *crowd) run(ctx context.Context, rnd *rand.Rand, e *orchestrator.Engine, l picket.Lease) {
	h, err := c.sealer.OpenLeaseToken(l.LeaseToken.Reveal())
	if err != nil {
		c.t.Errorf("open the capability: %v", err)
		return
	}
	must := func(verb string, err error) {
		// On a slow machine a lease of two seconds may run out under a worker.
		if err != nil && ctx.Err() == nil && !picket.CodeOf(err).Fenced() {
			c.t.Errorf("%s: %v", verb, err)
		}
	}
	dies := rnd.IntN(100)
	if dies < 2 { // before it ever confirms: comes back as undelivered
		c.crash(ctx, e, h)
		return
	}
	_, err = e.Renew(ctx, h)
	must("renew", err)
	_, err = e.Report(ctx, h, "r", picket.Progress{Summary: "at work"})
	must("report", err)
	switch n := rnd.IntN(100); {
	case dies < 8:
		c.crash(ctx, e, h)
	case n < 15:
		_, err = e.Release(ctx, h, picket.Exit{Class: picket.ExitCrash, Code: kit.Ptr(1)})
		must("release", err)
	case n < 20:
		_, err = e.Release(ctx, h, picket.Exit{Class: picket.ExitReleased})
		must("release", err)
	case n < 30:
		_, err = e.Fail(ctx, h, "cannot", n < 27)
		must("fail", err)
	case n < 35:
		_, err = e.RequestHelp(ctx, h, picket.HelpRequest{Question: "which?"})
		must("request_help", err)
	default:
		_, err = e.Complete(ctx, h, picket.Completion{Output: picket.RawJSON(`"done"`)})
		must("complete", err)
	}
}

// crash stops renewing. What is left of the worker wakes up when its lease has
// ended and tries to write: it must be refused.
func (c *crowd) crash(ctx context.Context, e *orchestrator.Engine, h picket.LeaseCredential) {
	c.mu.Lock()
	c.crashes++
	c.mu.Unlock()
	c.wg.Go(func() {
		_, ended, err := e.Watch(ctx, h, time.Minute)
		if ctx.Err() != nil {
			return
		}
		if err != nil || !ended {
			c.t.Errorf("watch of a crashed run: ended %v, %v", ended, err)
			return
		}
		if _, err = e.Complete(ctx, h, picket.Completion{Output: picket.RawJSON(`"late"`)}); !picket.CodeOf(err).
			Fenced() && ctx.Err() == nil {
			c.t.Errorf("a zombie's write: %v", err)
			return
		}
		c.mu.Lock()
		c.zombies++
		c.mu.Unlock()
	})
}

// decide does the people's part as the log tells it, until every task is
// closed. It also replays the log, so every move is checked as it happens.
func (c *crowd) decide() {
	j := kit.NewEventReplay()
	rnd := rand.New(rand.NewPCG(c.seed, 2000))
	for {
		if err := j.Follow(c.ctx, c.e[0]); err != nil {
			c.t.Fatalf("the event log does not replay: %v", err)
		}
		open := 0
		for id, t := range j.Tasks {
			if !t.State.Terminal() {
				open++
			}
			c.person(rnd, id, t)
		}
		if open == 0 && len(j.Tasks) >= crowdTasks {
			return
		}
		if err := c.e[1].Tail(c.ctx, j.Last); err != nil {
			c.t.Fatalf("%d tasks are open: %v", open, err)
		}
	}
}

// person decides what waits for a person. It only reads the replayed log, so
// the task may have moved on: nothing else decides here, so it has not.
func (c *crowd) person(rnd *rand.Rand, id string, t *kit.ReplayedTask) {
	var err error
	switch t.State {
	case picket.TaskReview:
		if rnd.IntN(4) > 0 {
			_, err = c.e[0].Approve(c.ctx, kit.Operator, id, picket.Decision{})
		} else {
			_, _, err = c.e[1].Reject(c.ctx, kit.Operator, id, picket.Decision{Note: "no"}, nil)
		}
	case picket.TaskHandoff:
		hid := "handoff_" + t.Run[len("run_"):]
		switch rnd.IntN(3) {
		case 0:
			_, err = c.e[0].Finish(c.ctx, kit.Operator, hid, picket.RawJSON(`"by hand"`))
		case 1:
			_, err = c.e[1].CancelHandoff(c.ctx, kit.Operator, hid, "no")
		default:
			_, err = c.e[1].Answer(c.ctx, kit.Operator, hid, picket.AnswerRequest{Answer: picket.RawJSON(`"this one"`)})
		}
	}
	if err != nil {
		c.t.Errorf("decide %s: %v", id, err)
	}
}

// check holds the final state of the store against the log and the workers.
func (c *crowd) check() {
	j, err := kit.Replay(c.ctx, c.e[1])
	kit.OK(c.t, err)
	tasks := map[string]kit.ReplayedTask{}
	ends := map[picket.TaskState]int{}
	for id := range j.Tasks {
		task, err := c.e[0].Task(c.ctx, id)
		kit.OK(c.t, err)
		if !task.State.Terminal() || task.Attempts != len(task.Runs) {
			c.t.Errorf("%s is %s after %d attempts and %d runs", id, task.State, task.Attempts, len(task.Runs))
		}
		ends[task.State]++
		last := int64(0)
		for _, r := range task.Runs {
			if r.FencingToken <= last || r.State == picket.RunRunning {
				c.t.Errorf("%s: run %s is %s under token %d after %d", id, r.RunID, r.State, r.FencingToken, last)
			}
			last = r.FencingToken
		}
		if c.highest[id] > last || last != task.FencingToken {
			c.t.Errorf("%s: a worker saw token %d, the last run has %d, the task %d", id, c.highest[id], last,
				task.FencingToken)
		}
		run := ""
		if n := len(task.Runs); n > 0 {
			run = task.Runs[n-1].RunID
		}
		tasks[id] = kit.ReplayedTask{
			State:    task.State,
			Token:    task.FencingToken,
			Attempt:  task.Attempts,
			Failures: task.Failures,
			Run:      run,
		}
	}
	if diff := j.Differs(tasks); diff != "" {
		c.t.Errorf("the event log does not replay:\n%s", diff)
	}
	if len(tasks) != crowdTasks {
		c.t.Errorf("%d tasks, want %d", len(tasks), crowdTasks)
	}
	leases, err := c.e[0].Leases(c.ctx)
	kit.OK(c.t, err)
	if leases.Total > 0 {
		c.t.Errorf("leases are left: %+v", leases)
	}
	kit.CheckInvariants(c.t, c.e[0])
	c.t.Logf("%d events, %d leases, %d crashes, %d zombies refused, %d passes of the scanner; tasks %v",
		j.Last, j.Leased, c.crashes, c.zombies, c.passes, ends)
}
