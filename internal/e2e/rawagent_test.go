//go:build linux

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// briskThresholds are thresholds in seconds that a test can wait for.
var briskThresholds = picket.HeartbeatConfig{IntervalSeconds: 1, UnhealthyAfterSeconds: 2, DeadAfterSeconds: 4}

// rawAgent is a registered agent that is nothing but requests.
type rawAgent struct {
	*testEnv
	id          string
	incarnation int64
	patient     bool   // it is not missed as long as a test lasts
	silence     func() // ends the heartbeats; nil: there are none
}

// register makes an agent with the brisk thresholds.
func (w *testEnv) register(id string) *rawAgent {
	w.t.Helper()
	m := &rawAgent{testEnv: w, id: id}
	w.must(m.enter())
	return m
}

// enter registers.
func (m *rawAgent) enter() error {
	got, err := try(m.key, http.MethodPost, m.url+"/api/v1/agents", m.registration())
	if err != nil || got.status != http.StatusCreated {
		return fmt.Errorf("register %s: %d %s %w", m.id, got.status, got.body, err)
	}
	var a picket.Agent
	if err := json.Unmarshal(got.body, &a); err != nil {
		return err
	}
	m.incarnation = a.Incarnation
	return nil
}

func (m *rawAgent) registration() picket.Registration {
	h := briskThresholds
	if m.patient {
		h.UnhealthyAfterSeconds, h.DeadAfterSeconds = 60, 120
	}
	return picket.Registration{
		AgentID: m.id,
		RoleID:  m.id,
		Heartbeat: &picket.Thresholds{
			IntervalSeconds:       &h.IntervalSeconds,
			UnhealthyAfterSeconds: &h.UnhealthyAfterSeconds,
			DeadAfterSeconds:      &h.DeadAfterSeconds,
		},
	}
}

// beat sends one heartbeat.
func (m *rawAgent) beat(tasks ...string) (answer, error) {
	load := len(tasks)
	hb := picket.Heartbeat{Status: picket.AgentActive, CurrentLoad: &load, TasksInProgress: tasks,
		ClientTimestamp: picket.Instant(time.Now().UnixMilli()), Incarnation: m.incarnation}
	return try(m.key, http.MethodPost, m.url+"/api/v1/agents/"+m.id+"/heartbeat", hb)
}

// live sends a heartbeat every half an interval, until silence or the test's
// end.
func (m *rawAgent) live() {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	m.silence = func() { cancel(); running.Wait() }
	m.t.Cleanup(m.silence)
	running.Go(func() {
		tick := time.NewTicker(time.Duration(briskThresholds.IntervalSeconds) * time.Second / 2)
		defer tick.Stop()
		for {
			if got, err := m.beat(); err != nil || got.status != http.StatusOK {
				m.t.Errorf("heartbeat of %s: %d %v %s", m.id, got.status, err, got.body)
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
}

// post asks for leases.
func (m *rawAgent) post(req picket.AcquireRequest) (answer, error) {
	return try(m.key, http.MethodPost, m.url+"/api/v1/leases", req)
}

// acquire takes a lease on a task of a role, in a goroutine, too.
func (m *rawAgent) acquire(role string, wait int) (leases []picket.Lease, got answer, err error) {
	return m.ask(picket.AcquireRequest{Role: role, WaitSeconds: &wait})
}

// acquireMost takes up to n leases that are there.
func (m *rawAgent) acquireMost(role string, n int) (leases []picket.Lease, got answer, err error) {
	n = min(n, 100)
	return m.ask(picket.AcquireRequest{Role: role, Max: &n})
}

func (m *rawAgent) ask(req picket.AcquireRequest) (leases []picket.Lease, got answer, err error) {
	req.AgentID, req.Incarnation = m.id, m.incarnation
	got, err = m.post(req)
	if err != nil || got.status != http.StatusOK {
		return nil, got, err
	}
	var all picket.Acquired
	err = json.Unmarshal(got.body, &all)
	return all.Leases, got, err
}

// agent reads the record.
func (w *testEnv) agent(id string) (a picket.Agent) {
	w.t.Helper()
	w.into(&a, http.MethodGet, "/agents/"+id, nil)
	return a
}

// lifecycle waits until an agent came to a status for a reason, for the n-th
// time.
func (w *testEnv) lifecycle(agent string, to picket.AgentStatus, why picket.LifecycleReason, n int) picket.Event {
	w.t.Helper()
	seen := map[int64]bool{}
	return w.event(string(to)+" of "+agent+" for "+string(why), func(ev picket.Event) bool {
		if ev.Type == picket.EventAgentLifecycle && ev.LifecycleAgentID == agent && ev.NewStatus == to &&
			ev.Reason == string(why) {
			seen[ev.Seq] = true
		}
		return len(seen) == n
	})
}

// statuses are what became of an agent, as the log tells it.
func statuses(events []picket.Event, agent string) (all []string) {
	for _, ev := range events {
		if ev.Type == picket.EventAgentLifecycle && ev.LifecycleAgentID == agent {
			all = append(all, string(ev.PreviousStatus)+" > "+string(ev.NewStatus)+": "+ev.Reason)
		}
	}
	return all
}

// expectStatuses holds the log against the whole life of an agent.
func (w *testEnv) expectStatuses(t *testing.T, agent string, want ...string) {
	t.Helper()
	if got := steady(statuses(w.allEvents(), agent)); !slices.Equal(got, want) {
		t.Errorf("the life of %s:\n%q, want\n%q", agent, got, want)
	}
}

// steady leaves out the warnings that came to nothing: a busy machine may keep
// an agent silent for a moment.
func steady(told []string) (kept []string) {
	for _, line := range told {
		if n := len(kept); n > 0 && line == resumed && kept[n-1] == warned {
			kept = kept[:n-1]
			continue
		}
		kept = append(kept, line)
	}
	return kept
}

const (
	warned  = "active > unhealthy: heartbeat_timeout"
	resumed = "unhealthy > active: heartbeat_resumed"
)
