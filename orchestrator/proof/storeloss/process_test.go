package storeloss

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// lossProcess is a server process: an orchestrator with a witness of its own,
// or a proxy or reaper, which has none.
type lossProcess struct {
	name    string
	witness string
	cfg     orchestrator.Config
	plant   func(*orchestrator.Store) // a planted bug, or nil
	asleep  atomic.Bool               // open, but nobody calls it
	back    atomic.Bool               // its clock is an hour behind

	mu    sync.RWMutex
	store *orchestrator.Store
}

func (p *lossProcess) open(ctx context.Context) error {
	store, err := orchestrator.Open(ctx, p.cfg)
	if err != nil {
		return err
	}
	if p.plant != nil {
		p.plant(store)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.store = store
	return nil
}

func (p *lossProcess) up() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.store != nil
}

// end is the end of the process; calls in flight are let through first.
func (p *lossProcess) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.store != nil {
		_ = p.store.Close()
		p.store = nil
	}
}

func (p *lossProcess) do(call func(*orchestrator.Engine) (any, error)) (any, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.store == nil {
		return nil, picket.Refuse(picket.CodeUnavailable, "", "%s is down", p.name)
	}
	return call(p.store.Engine("default"))
}

// loseWitness deletes what a process keeps outside the store, while it is down.
func (p *lossProcess) loseWitness() error { return os.RemoveAll(p.witness) }

// anyOrchestrator picks a process that grants and is awake.
func (l *lossHistory) anyOrchestrator(rnd *rand.Rand) *lossProcess {
	return pickProcess(rnd, l.procs[:l.orchestrators])
}

// anyProcess picks a process for a fenced verb: any that is awake.
func (l *lossHistory) anyProcess(rnd *rand.Rand) *lossProcess { return pickProcess(rnd, l.procs) }

func pickProcess(rnd *rand.Rand, procs []*lossProcess) *lossProcess {
	var awake []*lossProcess
	for _, p := range procs {
		if p.up() && !p.asleep.Load() {
			awake = append(awake, p)
		}
	}
	if len(awake) == 0 {
		return procs[0]
	}
	if rnd == nil {
		return awake[rand.IntN(len(awake))]
	}
	return awake[rnd.IntN(len(awake))]
}

// startProcess opens a process on a store; it ends with the test. The first
// orchestrator may found the namespace.
func (l *lossHistory) startProcess(s rig.Store, orchestrates bool, plant func(*orchestrator.Store)) {
	i := len(l.procs)
	p := &lossProcess{
		name:  "proxy",
		plant: plant,
		cfg: orchestrator.Config{Redis: s.Redis, Sealer: l.sealer, Log: slog.New(slog.DiscardHandler),
			NoBatch: i%2 == 1, Fault: l.fault},
	}
	p.cfg.Now = func() time.Time { return l.clock(p) }
	if orchestrates {
		p.name, p.witness = "orchestrator", l.t.TempDir()
		p.cfg.Witness, p.cfg.Found = p.witness, i == 0
		l.orchestrators++
	}
	kit.OK(l.t, p.open(l.ctx))
	p.cfg.Found = false
	l.t.Cleanup(p.end)
	l.procs = append(l.procs, p)
}

// clock is the time of day of a process. Losses come faster here than once a
// second, which is what a floor by the clock alone can bear, so time runs.
func (l *lossHistory) clock(p *lossProcess) time.Time {
	t := time.Now().Add(time.Duration(l.ahead.Load()))
	if p.back.Load() {
		t = t.Add(-time.Hour)
	}
	return t
}

// fault makes a process lose a reply or fail to write its witness, now and
// then, while faults are on.
func (l *lossHistory) fault(point string) error {
	if !l.faults.Load() {
		return nil
	}
	one := 100
	if strings.HasPrefix(point, "witness.") {
		one = 10
	} else if strings.HasSuffix(point, ".before") {
		return nil
	}
	if rand.IntN(one) > 0 {
		return nil
	}
	l.faulted.Add(1)
	return fmt.Errorf("injected at %s", point)
}

// knowsFloor reports whether a process has witnessed the floor that is in force.
func (l *lossHistory) knowsFloor(p *lossProcess) bool {
	text, err := os.ReadFile(kit.WitnessFile(p.witness))
	var w struct{ Floor int64 }
	return err == nil && stdjson.Unmarshal(text, &w) == nil && w.Floor == l.reader.floor
}

// counter counts and lets others wait for a count.
type counter struct {
	mu   sync.Mutex
	n    int
	wake chan struct{} // closed and replaced at every step
}

func (c *counter) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	if c.wake != nil {
		close(c.wake)
		c.wake = nil
	}
}

func (c *counter) value() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// wait waits until n more have been counted than when it was called.
func (c *counter) wait(t *testing.T, n int, what string) {
	t.Helper()
	late := time.After(time.Minute)
	for target := c.value() + n; ; {
		c.mu.Lock()
		if c.n >= target {
			c.mu.Unlock()
			return
		}
		if c.wake == nil {
			c.wake = make(chan struct{})
		}
		wake := c.wake
		c.mu.Unlock()
		select {
		case <-wake:
		case <-late:
			t.Fatalf("after a minute: %d of %d %s", c.value()-target+n, n, what)
		}
	}
}

// floorOf is the floor in the event of an adoption.
func floorOf(ev picket.Event) int64 {
	var d struct{ Floor int64 }
	if err := stdjson.Unmarshal(ev.Data, &d); err != nil {
		return -1
	}
	return d.Floor
}

// follow reads the log on from the reader's cursor to its end. away reports
// that the store cannot be read now.
func (l *lossHistory) follow(ctx context.Context, p *lossProcess) (away bool) {
	for {
		got, err := p.do(func(e *orchestrator.Engine) (any, error) {
			return e.Events(ctx, picket.EventQuery{After: l.reader.last, Limit: 1000})
		})
		if errors.Is(err, picket.CodeUnavailable) || ctx.Err() != nil {
			return true
		}
		if err != nil {
			l.promises.recordBroken("the cursor stays good", "events after %d: %s (%v)", l.reader.last,
				picket.CodeOf(err), err)
			return true
		}
		page := got.(picket.EventPage)
		for _, ev := range page.Events {
			l.reader.read(ev)
		}
		if len(page.Events) < 1000 {
			return false
		}
	}
}

// read follows the log until ctx ends.
func (l *lossHistory) read(ctx context.Context) {
	for ctx.Err() == nil {
		p := l.anyProcess(nil)
		if l.follow(ctx, p) {
			time.Sleep(time.Millisecond)
			continue
		}
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, _ = p.do(func(e *orchestrator.Engine) (any, error) { return nil, e.Tail(short, l.reader.last) })
		cancel()
	}
}

// retryUnavailable repeats a call that is answered 503, as a client does; one connection
// or another may not have been used since the loss.
func (l *lossHistory) retryUnavailable(call func() error) error {
	late := time.Now().Add(time.Minute)
	for {
		err := call()
		if picket.CodeOf(err) != picket.CodeUnavailable || time.Now().After(late) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// readToEnd reads the log to its end.
func (l *lossHistory) readToEnd() {
	l.t.Helper()
	kit.OK(l.t, l.retryUnavailable(func() error {
		if l.follow(l.ctx, l.anyProcess(nil)) {
			return picket.CodeUnavailable
		}
		return nil
	}))
}

// waitUntilServed lets a process find out what has become of the store.
func (l *lossHistory) waitUntilServed(p *lossProcess) {
	l.t.Helper()
	kit.OK(l.t, l.retryUnavailable(func() error {
		_, err := p.do(func(e *orchestrator.Engine) (any, error) { return nil, e.Tick(l.ctx) })
		return err
	}))
}

// wantAllRefused asks the processes without a witness for everything, while nobody
// has adopted the store: they have to say 503 to all of it.
func (l *lossHistory) wantAllRefused() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	for _, p := range l.procs[l.orchestrators:] {
		for _, w := range l.clients {
			for _, h := range w.held {
				l.wantUnavailable("renew", l.renew(ctx, h, p))
				l.wantUnavailable("report", l.report(ctx, h, p, "early"))
			}
		}
		l.wantUnavailable("submit", l.submit(ctx, p))
		_, err := p.do(func(e *orchestrator.Engine) (any, error) {
			return e.Acquire(ctx, kit.Operator, picket.AcquireRequest{})
		})
		l.wantUnavailable("acquire", err)
		_, err = p.do(func(e *orchestrator.Engine) (any, error) { return nil, e.Tick(ctx) })
		l.wantUnavailable("tick", err)
	}
}

func (l *lossHistory) wantUnavailable(verb string, err error) {
	if picket.CodeOf(err) != picket.CodeUnavailable {
		l.promises.recordBroken("no witness: 503 until somebody adopts", "%s: %s (%v)", verb, picket.CodeOf(err), err)
	}
}
