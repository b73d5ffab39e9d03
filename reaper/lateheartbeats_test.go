package reaper_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// network is how late the messages of an agent come.
type network struct {
	name       string
	thresholds picket.HeartbeatConfig
	lasts      time.Duration
	// request and answer are how long the n-th heartbeat and its answer are on
	// their way, of those that a time allows.
	request func(r *rand.Rand, n int) time.Duration
	answer  func(r *rand.Rand, n int) time.Duration
	// waitsForReply: the next heartbeat is sent an interval after the answer; otherwise
	// heartbeats leave on time, whatever became of those before.
	waitsForReply bool
	// noWarnings: not even a warning is due.
	noWarnings bool
}

func upToDelay(d time.Duration) func(*rand.Rand, int) time.Duration {
	return func(r *rand.Rand, _ int) time.Duration { return time.Duration(r.Int64N(int64(d))) }
}

// degradingDelay is the latency of RFC-0016 section 4.5: it grows, stays, and passes.
func degradingDelay(_ *rand.Rand, n int) time.Duration {
	steps := []time.Duration{50 * time.Millisecond, time.Second, 10 * time.Second, 30 * time.Second}
	return steps[min(n/5, len(steps)-1)]
}

func noDelay(*rand.Rand, int) time.Duration { return 0 }

// networks are what an agent must live through. A heartbeat every second that is
// up to a second late leaves at most 2 s of silence, which is not more than 2 s;
// one that also waits for late answers leaves at most 3 s, which is a warning
// and no more.
var networks = []network{
	{"jitter on time", picket.HeartbeatConfig{IntervalSeconds: 1, UnhealthyAfterSeconds: 2, DeadAfterSeconds: 4},
		10 * time.Minute, upToDelay(time.Second), upToDelay(time.Second), false, true},
	{"jitter both ways", picket.HeartbeatConfig{IntervalSeconds: 1, UnhealthyAfterSeconds: 2, DeadAfterSeconds: 4},
		10 * time.Minute, upToDelay(time.Second), upToDelay(time.Second), true, false},
	{"degrading latency", picket.HeartbeatConfig{IntervalSeconds: 30, UnhealthyAfterSeconds: 90, DeadAfterSeconds: 300},
		10 * time.Minute, degradingDelay, noDelay, false, true},
}

// Late heartbeats kill nobody: through ten minutes of jitter no agent becomes
// dead, no lease ends, no write is refused.
func TestLateHeartbeatsKillNobody(t *testing.T) {
	rig.SkipShort(t)
	seed, agents := rig.Seed(t), rig.Rounds(5, 100)
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) {
			virtual(t, func(ns *namespace) {
				defer ns.startReapers(1)()
				c := &lateFleet{namespace: ns, network: n, ends: time.Now().Add(n.lasts)}
				for i := range agents {
					c.addAgent(i, rand.New(rand.NewPCG(seed, uint64(i))))
				}
				c.running.Wait()
				c.checkNobodyLost(agents)
			})
		})
	}
}

// lateFleet is agents that heartbeat over the same bad network.
type lateFleet struct {
	*namespace
	network
	ends    time.Time // what comes later is of agents that were told to stop
	running sync.WaitGroup
	mu      sync.Mutex
	beats   int
	writes  int
	longest time.Duration // between two heartbeats that arrived
}

// addAgent registers an agent, gives it a lease, and has it heartbeat and write.
func (c *lateFleet) addAgent(i int, random *rand.Rand) {
	c.t.Helper()
	id := fmt.Sprintf("agent-%d", i)
	h := c.thresholds
	reg := picket.Registration{
		AgentID: id,
		Heartbeat: &picket.Thresholds{
			IntervalSeconds:       &h.IntervalSeconds,
			UnhealthyAfterSeconds: &h.UnhealthyAfterSeconds,
			DeadAfterSeconds:      &h.DeadAfterSeconds,
		},
	}
	_, err := c.Register(c.t.Context(), operator, reg)
	c.must(err)
	window := picket.MaxWindow
	_, err = c.Submit(c.t.Context(), operator, picket.TaskSpec{Title: "a task", Agent: id, LeaseWindowSeconds: &window})
	c.must(err)
	leases, err := c.Acquire(c.t.Context(), operator, picket.AcquireRequest{AgentID: id})
	c.must(err)
	if len(leases) != 1 {
		c.t.Fatalf("%s got %d leases", id, len(leases))
	}
	c.must(c.renew(leases[0]))
	l := &lateAgent{lateFleet: c, id: id, lease: leases[0], arrived: time.Now()}
	c.running.Go(func() { l.run(random) })
}

// lateAgent is an agent whose messages are.
type lateAgent struct {
	*lateFleet
	id      string
	lease   picket.Lease
	mu      sync.Mutex
	arrived time.Time // the last heartbeat
	onWay   sync.WaitGroup
}

func (l *lateAgent) run(random *rand.Rand) {
	began, interval := time.Now(), time.Duration(l.thresholds.IntervalSeconds)*time.Second
	for n := 0; time.Now().Before(l.ends); n++ {
		request, answer := l.request(random, n), l.answer(random, n)
		if l.waitsForReply {
			l.sendHeartbeat(request, answer)
			time.Sleep(interval)
			continue
		}
		l.onWay.Go(func() { l.sendHeartbeat(request, answer) })
		time.Sleep(time.Until(began.Add(time.Duration(n+1) * interval)))
	}
	l.onWay.Wait()
}

// sendHeartbeat is one heartbeat on its way, and a write under the lease.
func (l *lateAgent) sendHeartbeat(request, answer time.Duration) {
	time.Sleep(request)
	hb := picket.Heartbeat{
		Status:          picket.AgentActive,
		ClientTimestamp: picket.Instant(time.Now().Add(-request).UnixMilli()),
	}
	got, err := l.Heartbeat(l.t.Context(), operator, l.id, hb)
	l.mu.Lock()
	l.lateFleet.mu.Lock()
	l.beats++
	l.longest = max(l.longest, time.Since(l.arrived))
	l.lateFleet.mu.Unlock()
	l.arrived = time.Now()
	l.mu.Unlock()
	if err != nil || got.AgentStatus != picket.AgentActive {
		l.t.Errorf("%s: a heartbeat that was %s late: %s, %v", l.id, request, got.AgentStatus, err)
	}
	if err := l.renewLease(); err != nil {
		l.t.Errorf("%s: a write: %v", l.id, err)
	}
	time.Sleep(answer)
}

func (l *lateAgent) renewLease() error {
	held, err := l.sealer.OpenLeaseToken(l.lease.LeaseToken.Reveal())
	if err != nil {
		return err
	}
	_, err = l.Renew(l.t.Context(), held)
	l.lateFleet.mu.Lock()
	l.writes++
	l.lateFleet.mu.Unlock()
	return err
}

// checkNobodyLost reads the log: which agents became unhealthy, and that none died.
func (c *lateFleet) checkNobodyLost(agents int) {
	c.t.Helper()
	seen := map[string]int{}
	for after := int64(0); ; {
		page, err := c.Events(c.t.Context(), picket.EventQuery{After: after, Limit: 1000})
		c.must(err)
		for _, ev := range page.Events {
			after = ev.Seq
			if ev.At <= picket.Instant(c.ends.UnixMilli()) {
				seen[ev.Type+" "+string(ev.NewStatus)]++
			}
		}
		if len(page.Events) == 0 {
			break
		}
	}
	warned := seen[picket.EventAgentLifecycle+" "+string(picket.AgentUnhealthy)]
	dead := seen[picket.EventAgentLifecycle+" "+string(picket.AgentDead)]
	if dead > 0 || seen[picket.EventLeaseExpired+" "] > 0 || c.noWarnings && warned > 0 {
		c.t.Errorf("%d became unhealthy, %d dead, %d leases ended", warned, dead, seen[picket.EventLeaseExpired+" "])
	}
	if want := agents * int(c.lasts/time.Second) / c.thresholds.IntervalSeconds / 4; c.beats < want ||
		c.longest <= time.Duration(c.thresholds.IntervalSeconds)*time.Second {
		c.t.Errorf("%d heartbeats, at most %s apart: this proves nothing", c.beats, c.longest)
	}
	c.t.Logf("late heartbeats, %s: %d agents for %s at %d/%d/%d s: %d heartbeats, at most %s apart, %d writes; %d warnings, %d deaths, %d fences",
		c.name, agents, c.lasts, c.thresholds.IntervalSeconds, c.thresholds.UnhealthyAfterSeconds,
		c.thresholds.DeadAfterSeconds,
		c.beats, c.longest.Round(time.Millisecond), c.writes, warned, dead, seen[picket.EventLeaseExpired+" "])
}
