package storeloss

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// State loss: a store under load is made to forget, again and again, in every
// way there is, while orchestrators sleep, are down or lose their witness. The
// clients remember what the store has forgotten.
func TestStateLossReal(t *testing.T) {
	l := newLossHistory(t, nil)
	l.cycles(rig.SoakRounds(t, "state loss", 25, 1000))
	l.summary()
	if len(l.promises.broken) > 0 {
		t.Errorf("broken promises: %v\n%s", l.promises.broken, strings.Join(l.promises.first, "\n"))
	}
}

const (
	lossOrchestrators = 3
	lossProxies       = 2
	lossClients       = 6
	lossSnapshots     = 4 // older states that may come back
)

// lossHistory is a history of losses of one store.
type lossHistory struct {
	t      *testing.T
	ctx    context.Context
	seed   uint64
	rnd    *rand.Rand
	sealer *seal.Sealer
	server *rig.DurableServer
	raw    redis.UniversalClient
	procs  []*lossProcess // orchestrators first
	// orchestrators is how many of them have a witness.
	orchestrators int
	clients       []*lossClient
	promises      *promiseChecker
	reader        *lossReader
	start         time.Time
	pace          time.Duration // of a client, between two calls

	snapshots []string
	taken     int
	done      counter // calls that were answered
	waits     counter // calls answered 503
	lost      counter // leases whose holder was refused permanently
	kinds     map[string]int

	ahead   atomic.Int64 // of the clock, in ns
	faults  atomic.Bool
	faulted atomic.Int64
	backs   int
	graces  bool // at every rest the time of grace passes

	mu      sync.Mutex
	zombies []*clientLease
	rested  restCounts
}

func newLossHistory(t *testing.T, plant func(*orchestrator.Store)) *lossHistory {
	l := newClients(t)
	l.server = rig.StartDurableServer(t)
	s := l.server.Store()
	patient := s.Patient()
	l.raw = rig.Hashes(redis.NewUniversalClient(&patient.Redis))
	t.Cleanup(func() { _ = l.raw.Close() })
	for i := range lossOrchestrators + lossProxies {
		l.startProcess(s, i < lossOrchestrators, plant)
	}
	l.snapshot()
	return l
}

// newClients is the clients and all they know, without a store.
func newClients(t *testing.T) *lossHistory {
	running := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, running) })
	l := &lossHistory{
		t:        t,
		ctx:      t.Context(),
		seed:     rig.Seed(t),
		sealer:   rig.Sealer(),
		promises: newPromiseChecker(),
		kinds:    map[string]int{},
		start:    time.Now(),
	}
	l.rnd = rand.New(rand.NewPCG(l.seed, 0))
	l.reader = newLossReader(l.promises)
	for i := range lossClients {
		l.clients = append(l.clients, &lossClient{l: l, rnd: rand.New(rand.NewPCG(l.seed, uint64(i+1)))})
	}
	return l
}

// cyclePlan is one cycle, drawn before it begins.
type cyclePlan struct {
	kind        string
	before      int  // calls before the loss
	keep        bool // a snapshot is taken on the way
	again       int  // calls until a second loss on the heels of the first; -1: none
	down        []int
	forget      int // the witness of this process is lost while it is down; -1: none
	sleeps      int // this process sleeps through the adoption; -1: none
	proxiesOnly bool
	faults      bool // witness writes fail and replies are lost now and then
	back        bool // clocks are set back where the witness knows the floor
}

var lossKinds = []string{"kill", "older", "empty", "flush", "tail"}

func (l *lossHistory) plan() cyclePlan {
	p := cyclePlan{
		kind:        lossKinds[l.rnd.IntN(len(lossKinds))],
		before:      20 + l.rnd.IntN(60),
		keep:        l.rnd.IntN(2) == 0,
		again:       -1,
		forget:      -1,
		sleeps:      -1,
		proxiesOnly: l.rnd.IntN(4) == 0,
		faults:      l.rnd.IntN(4) == 0,
	}
	if l.rnd.IntN(5) == 0 {
		p.again = l.rnd.IntN(30)
	}
	// One stays up and awake, so that somebody adopts.
	order := l.rnd.Perm(lossOrchestrators)
	if p.proxiesOnly || l.rnd.IntN(2) == 0 {
		p.down = order[1 : 1+l.rnd.IntN(lossOrchestrators)]
	}
	if len(p.down) > 0 && l.rnd.IntN(2) == 0 {
		p.forget = p.down[0]
	}
	// Two losses on end and a clock set back are more than the floor can bear: a
	// process may then know neither the floor of the first nor the time.
	p.back = p.again < 0 && l.rnd.IntN(3) == 0
	if !slices.Contains(p.down, order[2]) && l.rnd.IntN(3) == 0 {
		p.sleeps = order[2]
	}
	return p
}

func (l *lossHistory) cycles(n int) {
	for i := range n {
		l.cycle(l.plan())
		if (i+1)%100 == 0 {
			l.t.Logf("%d of %d cycles, %d broken promises", i+1, n, len(l.promises.broken))
		}
		if l.t.Failed() {
			l.t.Fatalf("in cycle %d", i)
		}
	}
}

func (l *lossHistory) cycle(p cyclePlan) {
	l.ahead.Add(int64(10 * time.Second))
	if p.back {
		l.setClocksBack(p)
	}
	load := l.startLoad()
	l.done.wait(l.t, p.before, "calls before the loss")
	if p.keep {
		l.snapshot()
	}
	l.done.wait(l.t, 5, "calls before the loss")
	for _, i := range p.down {
		l.procs[i].end()
	}
	l.faults.Store(p.faults)
	if p.sleeps >= 0 {
		l.procs[p.sleeps].asleep.Store(true)
	}
	if p.proxiesOnly {
		load()
		for _, q := range l.procs[:l.orchestrators] {
			q.end()
		}
		l.loseState(p.kind)
		l.wantAllRefused()
		l.openAll(p)
		load = l.startLoad()
	} else {
		l.loseState(p.kind)
	}
	if p.again >= 0 {
		l.done.wait(l.t, p.again, "calls after the first of two losses")
		l.loseState(lossKinds[l.rnd.IntN(len(lossKinds))])
	}
	l.done.wait(l.t, 40, "calls after the loss")
	l.faults.Store(false)
	load()
	l.checkAtRest()
	for _, q := range l.procs {
		q.back.Store(false)
	}
	l.openAll(cyclePlan{forget: p.forget, sleeps: -1})
}

// setClocksBack sets the clock of every orchestrator back that will have a witness of
// the floor in force.
func (l *lossHistory) setClocksBack(p cyclePlan) {
	for i, q := range l.procs[:l.orchestrators] {
		if p.forget != i && l.knowsFloor(q) {
			q.back.Store(true)
			l.backs++
		}
	}
}

// startLoad lets the workers and the reader go; what it returns stops them.
func (l *lossHistory) startLoad() func() {
	ctx, cancel := context.WithCancel(l.ctx)
	var wg sync.WaitGroup
	for _, w := range l.clients {
		wg.Go(func() { w.run(ctx) })
	}
	wg.Go(func() { l.read(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// openAll starts what is down except for the processes that p keeps down, and
// wakes the sleepers, unless p lets them sleep on.
func (l *lossHistory) openAll(p cyclePlan) {
	for i, q := range l.procs {
		if p.sleeps != i {
			q.asleep.Store(false)
		}
		if q.up() || slices.Contains(p.down, i) {
			continue
		}
		if p.forget == i {
			kit.OK(l.t, q.loseWitness())
		}
		err := q.open(l.ctx)
		for try := 0; err != nil && p.faults && try < 20; try++ { // started again and again, as a supervisor does
			err = q.open(l.ctx)
		}
		if err != nil {
			l.t.Fatalf("start %s %d: %v", q.name, i, err)
		}
	}
}

// loseState makes the store forget.
func (l *lossHistory) loseState(kind string) {
	l.kinds[kind]++
	l.ahead.Add(int64(3 * time.Second))
	if kind == "flush" {
		kit.OK(l.t, l.raw.FlushAll(l.ctx).Err())
		return
	}
	l.server.Kill()
	switch kind {
	case "older":
		l.server.Restore(l.snapshots[l.rnd.IntN(len(l.snapshots))])
	case "empty":
		l.server.Empty()
	case "tail":
		l.server.CutTail(func(size int64) int64 {
			if l.rnd.IntN(2) == 0 { // a short one: what a crash of the machine costs
				return max(0, size-l.rnd.Int64N(4096))
			}
			return l.rnd.Int64N(size + 1)
		})
	}
	l.server.Start()
}

// snapshot keeps the state of now, in the place of an older one when there are
// enough.
func (l *lossHistory) snapshot() {
	l.taken++
	dir := filepath.Join(l.t.TempDir(), fmt.Sprint(l.taken))
	l.server.Snapshot(dir)
	if len(l.snapshots) < lossSnapshots {
		l.snapshots = append(l.snapshots, dir)
		return
	}
	i := l.rnd.IntN(lossSnapshots)
	_ = os.RemoveAll(l.snapshots[i])
	l.snapshots[i] = dir
}

func (l *lossHistory) summary() {
	var kinds []string
	for _, k := range lossKinds {
		kinds = append(kinds, fmt.Sprintf("%s %d", k, l.kinds[k]))
	}
	r := l.rested
	l.t.Logf("state loss: %s; %d tokens granted, %d raised by reclaim, %d adoptions; at rest %d survivors went on, %d forgotten and %d ended refused, "+
		"%d zombies refused, %d refused under load, %d recorded reports looked at, %d unclaimed ended without a failure; %d calls waited, %d faults, %d clocks set back; %d events read, %d leaps; %d regressions, %d broken promises; seed %d, %.0f s",
		strings.Join(kinds, ", "), l.promises.granted, l.promises.raised, r.adoptions, r.survivors, r.forgotten,
		r.ended,
		r.zombies, l.lost.value(), r.reports, r.unclaimed,
		l.waits.value(), l.faulted.Load(), l.backs, l.reader.events, l.reader.leaps,
		l.promises.brokenCount("tokens rise"),
		len(l.promises.broken), l.seed, time.Since(l.start).Seconds())
}
