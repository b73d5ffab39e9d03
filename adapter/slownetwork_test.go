package adapter

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig"
)

// slowTransport is a network on which each way of a heartbeat takes up to most.
type slowTransport struct {
	http.RoundTripper
	most time.Duration
	mu   sync.Mutex
	dice *rand.Rand
}

func (s *slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/heartbeat") {
		sleep(r.Context(), s.pick())
		defer func() { sleep(r.Context(), s.pick()) }()
	}
	return s.RoundTripper.RoundTrip(r)
}

func (s *slowTransport) pick() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.dice.Int64N(int64(s.most) + 1))
}

// On a network that is slow to a whole interval each way nobody is taken for
// dead, and nobody takes himself for it; commands arrive all the same.
func TestSlowNetworkEndsNoAgent(t *testing.T) {
	rig.SkipShort(t)
	seed := rig.Seed(t)
	for _, tt := range []struct {
		health HealthConfig
		most   time.Duration
		during time.Duration
	}{
		{HealthConfig{Interval: time.Second, UnhealthyAfter: 2 * time.Second, DeadAfter: 4 * time.Second}, time.Second,
			20 * time.Minute},
		{HealthConfig{}, 30 * time.Second, 8 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := startRunningAdapter(t, 300*time.Second, func(c *Config) {
				c.Health = tt.health
				c.HTTP = &http.Client{
					Transport: &slowTransport{
						RoundTripper: c.HTTP.Transport,
						most:         tt.most,
						dice:         rand.New(rand.NewPCG(seed, 1)),
					},
				}
			})
			time.Sleep(tt.during / 2)
			w.s.CommandAgent(w.a.AgentID(), picket.AgentCommand{Command: picket.CommandPing})
			time.Sleep(tt.during / 2)
			v := w.s.AgentView("")
			if told := w.log.told(); len(told) > 0 || len(v.Registrations) != 1 ||
				len(w.s.Pending(w.a.AgentID())) > 0 {
				t.Errorf("slow up to %s: %v, %d registrations, moves %v", tt.most, told, len(v.Registrations),
					v.Transitions)
			}
			if n, want := len(v.Heartbeats), int(tt.during/w.a.cfg.Health.Interval); n < want || n > want*5/4 {
				t.Errorf("slow up to %s: %d heartbeats, want %d", tt.most, n, want)
			}
			w.end(t)
		})
	}
}

// Silence counts from before a heartbeat was sent, however late its answer.
func TestSilenceCountsFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startRunningAdapter(t, time.Hour, func(c *Config) {
			c.Health = quickThresholds
			c.HTTP = &http.Client{Transport: lateAnswers{c.HTTP.Transport, 20 * time.Second}}
		})
		v := w.await(t, "a heartbeat", func(v adaptertest.AgentView) bool { return len(v.Heartbeats) > 8 })
		w.s.Fail("/api/v1/agents", adaptertest.DropRequest, -1)
		arrived := v.Heartbeats[len(v.Heartbeats)-1].At
		for w.liveAgents() > 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if took, want := time.Since(arrived),
			quickThresholds.DeadAfter-killMargin(quickThresholds.DeadAfter); took > want+time.Second ||
			took < want-time.Second {
			t.Errorf("the agent died %s after the last heartbeat arrived, want %s", took, want)
		}
		w.end(t)
	})
}

// lateAnswers is a network on which the answers to heartbeats come late.
type lateAnswers struct {
	http.RoundTripper
	by time.Duration
}

func (l lateAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.RoundTripper.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/heartbeat") {
		sleep(r.Context(), l.by)
	}
	return res, err
}

// While the servers are away, their time may stand still: heartbeats come as
// often as ever, so that the adapter is back before it is missed.
func TestAdapterIsBackBeforeItIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startRunningAdapter(t, 300*time.Second, func(c *Config) {
			c.Health = HealthConfig{Interval: time.Second, UnhealthyAfter: 2 * time.Second, DeadAfter: 4 * time.Second}
		})
		restore := w.s.Fail("/api/", adaptertest.Unavailable, -1)
		time.Sleep(10 * time.Minute)
		calls := w.s.Calls("/api/v1/agents/" + w.a.AgentID() + "/heartbeat")
		restore()
		for i := 1; i < len(calls); i++ {
			if gap := calls[i].At.Sub(calls[i-1].At); gap > time.Second {
				t.Errorf("heartbeat %d came %s after the one before", i, gap)
			}
		}
		if n := len(calls); n > 1000 {
			t.Errorf("%d heartbeats in ten minutes", n)
		}
		w.await(t, "the task again", reportsTasks(w.id))
		w.end(t)
	})
}
