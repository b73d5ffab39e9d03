package storeloss

import (
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Failover with a cut link: the last grants have not reached the replica, and the old primary stays
// writable while the new one is adopted. One orchestrator is on either side of the cut.
func TestFailoverCutLinkReal(t *testing.T) {
	f := newFailoverHistory(t, nil)
	n := rig.SoakRounds(t, "failover with a cut link", 3, 200)
	for i := range n {
		f.round(i)
		if t.Failed() || len(f.l.promises.broken) > 0 {
			t.Fatalf("in failover %d: broken promises: %v\n%s", i, f.l.promises.broken,
				strings.Join(f.l.promises.first, "\n"))
		}
	}
	r := f.l.rested
	t.Logf("failover with a cut link: %d failovers (in %d the old primary was killed, in %d it stopped writing on its own); %d adoptions, %d tokens granted, %d raised by reclaim; "+
		"%d tasks granted on both sides of a cut; %d survivors went on, %d forgotten and %d ended refused, %d refused under load, %d zombies refused; 0 regressions; seed %d, %.0f s",
		n, f.killed, f.lagged, r.adoptions, f.l.promises.granted, f.l.promises.raised, f.both, r.survivors, r.forgotten,
		r.ended,
		f.l.lost.value(), r.zombies, f.l.seed, time.Since(f.l.start).Seconds())
}

// failoverHistory is a history of failovers of one pair. Process 0 stays with the old
// primary, the others go with the new one.
type failoverHistory struct {
	t      *testing.T
	l      *lossHistory
	pair   *rig.ReplicaPair
	routes []*storeRoute
	raws   map[*rig.Node]*redis.Client

	killed int
	lagged int
	both   int
}

func newFailoverHistory(t *testing.T, plant func(*orchestrator.Store)) *failoverHistory {
	f := &failoverHistory{
		t:    t,
		l:    newClients(t),
		pair: rig.StartReplicaPair(t, "--min-replicas-max-lag", "1"),
		raws: map[*rig.Node]*redis.Client{},
	}
	for _, n := range []*rig.Node{f.pair.Primary(), f.pair.Replica()} {
		f.raws[n] = n.Client()
		t.Cleanup(func() { _ = f.raws[n].Close() })
	}
	for i := range 3 {
		d := newStoreRoute(t, f.pair)
		f.routes = append(f.routes, d)
		f.l.startProcess(d.store(), i < 2, plant)
	}
	return f
}

// storeRoute is a process's way to the store: to one node at a time. Going through
// another one ends all connections, as when an address moves.
type storeRoute struct {
	mu    sync.Mutex
	links map[*rig.Node]*rig.FaultProxy
	dials map[*rig.Node]func(context.Context, string, string) (net.Conn, error)
	to    *rig.Node
}

func newStoreRoute(t *testing.T, pair *rig.ReplicaPair) *storeRoute {
	d := &storeRoute{
		links: map[*rig.Node]*rig.FaultProxy{},
		dials: map[*rig.Node]func(context.Context, string, string) (net.Conn, error){},
		to:    pair.Primary(),
	}
	for _, n := range []*rig.Node{pair.Primary(), pair.Replica()} {
		through, link := n.BehindProxy(t)
		d.links[n], d.dials[n] = link, through.Redis.Dialer
	}
	return d
}

func (d *storeRoute) store() rig.Store {
	return rig.Store{
		Redis: redis.UniversalOptions{
			Addrs: []string{"127.0.0.1:6379"},
			Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
				d.mu.Lock()
				dial := d.dials[d.to]
				d.mu.Unlock()
				return dial(ctx, network, address)
			},
		},
	}
}

func (d *storeRoute) switchTo(to *rig.Node) {
	d.mu.Lock()
	was := d.to
	d.to = to
	d.mu.Unlock()
	if was != to {
		d.links[was].Cut()
		d.links[was].Heal()
	}
}

// round is one failover, there and back in step.
func (f *failoverHistory) round(i int) {
	l := f.l
	l.ahead.Add(int64(10 * time.Second))
	lag := i%3 == 2
	waiting := f.raws[f.pair.Primary()].ZCard(l.ctx, lossPrefix+"by-state:queued").Val()
	for range 30 - waiting { // more than the clients hold: both sides will grant the same ones
		kit.OK(f.t, l.submit(l.ctx, l.procs[0]))
	}
	f.minReplicas(f.pair.Primary(), lag)
	stop := l.startLoad()
	l.done.wait(f.t, 30+l.rnd.IntN(30), "calls before the cut")
	f.pair.CutLink()
	if !lag {
		l.done.wait(f.t, 20+l.rnd.IntN(30), "calls that never reach the replica")
	}
	stop()
	l.raw = f.raws[f.pair.Primary()]
	l.promises.keepHighest()

	older, newer := f.split()
	was, now := f.pair.Promote()
	f.minReplicas(now, false)
	newer.raw = f.raws[now]
	for _, d := range f.routes[1:] {
		d.switchTo(now)
	}
	if lag {
		f.waitUntilReadOnly(older)
	} else {
		stop = older.startLoad()
	}
	stopNewer := newer.startLoad()
	newer.done.wait(f.t, 60, "calls on the new primary")
	if !lag {
		older.done.wait(f.t, 30, "calls on the old primary")
	}
	stopNewer()
	stop()
	f.checkTokens(older, newer)
	f.endSplit(was, now, older, newer, lag)
}

// minReplicas switches the rule by which a primary without replicas takes no
// writes after max-lag.
func (f *failoverHistory) minReplicas(n *rig.Node, on bool) {
	f.t.Helper()
	kit.OK(f.t, f.raws[n].ConfigSet(f.l.ctx, "min-replicas-to-write", map[bool]string{true: "1", false: "0"}[on]).Err())
}

// split gives each side of the cut half of the clients and a memory of its own.
func (f *failoverHistory) split() (older, newer *lossHistory) {
	half := func(procs []*lossProcess, orchestrators int, workers []*lossClient) *lossHistory {
		side := &lossHistory{
			t:             f.t,
			ctx:           f.l.ctx,
			rnd:           f.l.rnd,
			sealer:        f.l.sealer,
			promises:      f.l.promises.clone(),
			procs:         procs,
			orchestrators: orchestrators,
			clients:       workers,
			rested:        f.l.rested,
		}
		side.reader = f.l.reader.clone(side.promises)
		for _, w := range workers {
			w.l = side
		}
		return side
	}
	n := len(f.l.clients) / 2
	older = half(f.l.procs[:1], 1, f.l.clients[:n])
	newer = half(f.l.procs[1:], 1, f.l.clients[n:])
	return older, newer
}

// waitUntilReadOnly waits until the old primary has noticed that it has no replica,
// and finds it refusing every write.
func (f *failoverHistory) waitUntilReadOnly(older *lossHistory) {
	f.lagged++
	late := time.After(time.Minute)
	for older.submit(f.l.ctx, older.procs[0]) == nil {
		select {
		case <-late:
			f.t.Fatal("the old primary goes on writing a minute after its replica is gone")
		case <-time.After(10 * time.Millisecond):
		}
	}
	for _, w := range older.clients {
		for _, h := range w.held {
			older.wantUnavailable("renew", older.renew(f.l.ctx, h, older.procs[0]))
			older.wantUnavailable("report", older.report(f.l.ctx, h, older.procs[0], "late"))
		}
	}
	_, err := older.procs[0].do(func(e *orchestrator.Engine) (any, error) {
		return e.Acquire(f.l.ctx, kit.Operator, picket.AcquireRequest{AgentID: "late"})
	})
	older.wantUnavailable("acquire", err)
}

// checkTokens holds the tokens of the sides against each other: all of the new one
// are above all of the old one, also above those that the old primary gave
// after the new one had begun.
func (f *failoverHistory) checkTokens(older, newer *lossHistory) {
	for _, task := range slices.Sorted(maps.Keys(newer.promises.tokens)) {
		given, top := f.since(newer, task), older.promises.highest(task)
		for _, s := range given {
			if s.token <= top {
				newer.promises.recordBroken("tokens rise", "%s: the new primary gave %d, the old one %d", task, s.token,
					top)
			}
		}
		if len(given) > 0 && len(f.since(older, task)) > 0 {
			f.both++
		}
	}
}

// since are the tokens that one side has given since the split.
func (f *failoverHistory) since(side *lossHistory, task string) []seenToken {
	list := side.promises.tokens[task]
	if _, known := f.l.promises.tokens[task]; known {
		return list[1:] // the first one is from before
	}
	return list
}

// endSplit cuts the old primary off, lets everybody be heard by the new one, and
// makes the old one its replica.
func (f *failoverHistory) endSplit(was, now *rig.Node, older, newer *lossHistory, lag bool) {
	if !lag && f.l.rnd.IntN(2) == 0 {
		f.killed++
		was.Kill()
	}
	f.routes[0].switchTo(now)
	older.readToEnd() // a consumer that was on the old side
	l := f.l
	l.promises.merge(older.promises, newer.promises)
	l.reader = newer.reader
	l.reader.m = l.promises
	l.raw = f.raws[now]
	for _, h := range append(older.zombies, newer.zombies...) {
		l.zombie(h)
	}
	l.rested = newer.rested
	l.lost.add(older.lost.value() + newer.lost.value())
	for _, w := range l.clients {
		w.l = l
	}
	for _, p := range l.procs { // anyone who comes from the other side is met first
		l.waitUntilServed(p)
	}
	l.checkAtRest()
	if older.reader.last < l.reader.floor {
		l.promises.recordBroken("consumers get every floor",
			"the one from the old side stands at %d, the floor is %d",
			older.reader.last, l.reader.floor)
	}
	if lag {
		f.minReplicas(was, false)
	}
	if was.Info(l.ctx, "server", "run_id") == "" {
		was.Start()
	}
	f.pair.Follow()
}

// clone is a memory of the same tokens.
func (m *promiseChecker) clone() *promiseChecker {
	c := newPromiseChecker()
	c.stamp = m.stamp
	for task, list := range m.tokens {
		c.tokens[task] = slices.Clone(list)
	}
	return c
}

// merge takes in what the two sides of a split have learned.
func (m *promiseChecker) merge(sides ...*promiseChecker) {
	for _, s := range sides {
		m.stamp = max(m.stamp, s.stamp)
		m.granted, m.raised = m.granted+s.granted, m.raised+s.raised
		for task, list := range s.tokens {
			m.tokens[task] = append(m.tokens[task], list...)
		}
		for promise, n := range s.broken {
			m.broken[promise] += n
		}
		m.first = append(m.first, s.first...)
	}
}

func (r *lossReader) clone(m *promiseChecker) *lossReader {
	c := *r
	c.m, c.tokens, c.seen = m, maps.Clone(r.tokens), maps.Clone(r.seen)
	return &c
}
