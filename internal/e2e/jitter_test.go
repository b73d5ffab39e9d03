//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// Agents whose heartbeats leave every second and arrive up to a second late
// work on a real server for ten minutes, at thresholds of 1/2/4 s: none is made
// dead, none is fenced off. In CI the virtual clock does that, where no stall of
// the machine is taken for silence; here it is short and the thresholds are far.
func TestJitterFencesNobody(t *testing.T) {
	w := newTestEnv(t)
	w.store()
	w.up("--redis", w.storeURL(), "--log-level", "warn")
	random := rig.Random(t)
	lasts, members := time.Duration(times(8, 75))*time.Second, times(10, 3)
	var late []*lateAgent
	for i := range members {
		late = append(late, w.newLateAgent(fmt.Sprintf("shaken%d", i), rand.New(rand.NewPCG(random.Uint64(), 0))))
	}
	var running sync.WaitGroup
	began := time.Now()
	for _, l := range late {
		running.Go(func() { l.live(began.Add(lasts)) })
	}
	running.Wait()
	beats, warned, longest := 0, 0, time.Duration(0)
	for _, l := range late {
		beats, longest = beats+l.beats, max(longest, l.longest)
	}
	for _, ev := range w.allEvents() {
		switch {
		case ev.At.Time().After(began.Add(lasts)): // they were told to stop
		case ev.Type == picket.EventAgentLifecycle && ev.NewStatus == picket.AgentUnhealthy:
			warned++
		case ev.Type == picket.EventAgentLifecycle && ev.NewStatus == picket.AgentDead,
			ev.Type == picket.EventLeaseExpired:
			t.Errorf("event %d %s of %s %s: %s", ev.Seq, ev.Type, ev.AgentID, ev.TaskID, ev.Reason)
		}
	}
	h := late[0].registration().Heartbeat.Config()
	t.Logf("jitter: %d agents for %s at %d/%d/%d s, heartbeats up to 1 s late each way: %d heartbeats, at most %s apart, %d warnings",
		members, lasts, h.IntervalSeconds, h.UnhealthyAfterSeconds, h.DeadAfterSeconds, beats,
		longest.Round(time.Millisecond), warned)
}

// lateAgent is a member whose messages are late, both ways, and that holds a lease.
type lateAgent struct {
	*rawAgent
	random  *rand.Rand
	held    picket.Lease
	onWay   sync.WaitGroup
	mu      sync.Mutex
	beats   int
	last    time.Time
	longest time.Duration
}

func (w *testEnv) newLateAgent(id string, random *rand.Rand) *lateAgent {
	w.t.Helper()
	l := &lateAgent{
		rawAgent: &rawAgent{testEnv: w, id: id, patient: !rig.Soaking()},
		random:   random,
		last:     time.Now(),
	}
	w.must(l.enter())
	s := spec("work of "+id, 3600)
	s.Agent, s.Review = id, picket.ReviewByNone
	w.submit(s)
	leases, got, err := l.acquire(id, 0)
	if err != nil || len(leases) != 1 {
		w.t.Fatalf("%d leases: %d %v %s", len(leases), got.status, err, got.body)
	}
	l.held = leases[0]
	return l
}

// live sends heartbeats on time, whatever became of those before.
func (l *lateAgent) live(until time.Time) {
	began := time.Now()
	late := func() time.Duration { return time.Duration(l.random.Int64N(int64(time.Second))) }
	for n := 1; time.Now().Before(until); n++ {
		request, answer := late(), late()
		l.onWay.Go(func() { l.arrive(request, answer) })
		time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second)))
	}
	l.onWay.Wait()
}

// arrive is one heartbeat that is late, and a write.
func (l *lateAgent) arrive(request, answer time.Duration) {
	time.Sleep(request) // how long is what is random
	got, err := l.beat(l.held.TaskID)
	l.mu.Lock()
	l.beats++
	n := l.beats
	l.longest, l.last = max(l.longest, time.Since(l.last)), time.Now()
	l.mu.Unlock()
	if err != nil || got.status != http.StatusOK {
		l.t.Errorf("%s: a heartbeat that was %s late: %d %v %s", l.id, request, got.status, err, got.body)
	}
	wrote, err := try(l.held.LeaseToken.Reveal(), http.MethodPost, l.held.ProxyURL+"/v1/tools/report_progress",
		map[string]string{"summary": fmt.Sprint("step ", n)})
	if err != nil || wrote.status != http.StatusOK {
		l.t.Errorf("%s: a write: %d %v %s", l.id, wrote.status, err, wrote.body)
	}
	time.Sleep(answer)
}
