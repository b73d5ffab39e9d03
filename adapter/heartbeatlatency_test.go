package adapter

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket/internal/rig"
)

// delayedHeartbeats is a network on which heartbeats and their answers are late. What a
// client gave up waiting for arrives all the same.
type delayedHeartbeats struct {
	http.RoundTripper
	mu      sync.Mutex
	random  *rand.Rand
	request time.Duration
	answer  time.Duration // the longest
	onWay   sync.WaitGroup
}

func (n *delayedHeartbeats) upTo(d time.Duration) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d == 0 {
		return 0
	}
	return time.Duration(n.random.Int64N(int64(d)))
}

func (n *delayedHeartbeats) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/heartbeat") {
		return n.RoundTripper.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	sent := r.Clone(context.WithoutCancel(r.Context()))
	sent.Body = io.NopCloser(bytes.NewReader(body))
	type result struct {
		res *http.Response
		err error
	}
	got := make(chan result, 1)
	request, answer := n.upTo(n.request), n.upTo(n.answer)
	n.onWay.Go(func() {
		time.Sleep(request)
		res, err := n.RoundTripper.RoundTrip(sent)
		if err == nil { // read before its sender may be gone
			var b []byte
			b, err = io.ReadAll(res.Body)
			res.Body.Close()
			res.Body = io.NopCloser(bytes.NewReader(b))
		}
		time.Sleep(answer)
		got <- result{res, err}
	})
	select {
	case g := <-got:
		return g.res, g.err
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// An adapter whose heartbeats and their answers are late each, by up to a fixed
// time, is not made dead and does not end its agent itself: ten minutes at
// thresholds of 1/2/4 s, and the latency of RFC-0016 section 4.5 at the
// defaults.
func TestLateHeartbeatsEndNoAgent(t *testing.T) {
	rig.SkipShort(t)
	seed := rig.Seed(t)
	fast := HealthConfig{Interval: time.Second, UnhealthyAfter: 2 * time.Second, DeadAfter: 4 * time.Second}
	for name, is := range map[string]struct {
		health  HealthConfig
		request time.Duration
		answer  time.Duration
		lasts   time.Duration
	}{
		"requests late":   {fast, time.Second, 0, 10 * time.Minute},
		"answers late":    {fast, 0, time.Second, 10 * time.Minute},
		"both late":       {fast, time.Second, time.Second, 10 * time.Minute},
		"degraded":        {HealthConfig{}, 30 * time.Second, 30 * time.Second, 4 * time.Hour},
		"degraded beyond": {HealthConfig{}, 60 * time.Second, 60 * time.Second, 4 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := &delayedHeartbeats{
					random:  rand.New(rand.NewPCG(seed, 1)),
					request: is.request,
					answer:  is.answer,
				}
				w := startRunningAdapter(t, 5*time.Minute, func(c *Config) {
					c.Health = is.health
					inner := *c.HTTP
					net.RoundTripper = inner.Transport
					inner.Transport = net
					c.HTTP = &inner
				})
				time.Sleep(is.lasts)
				v, told := w.s.AgentView(w.a.AgentID()), w.log.told()
				if len(told) > 0 || len(v.Registrations) != 1 || v.Record.Status.Gone() {
					t.Errorf("the agent was told %v; it was registered %d times and is %s", told, len(v.Registrations),
						v.Record.Status)
				}
				longest, before := time.Duration(0), v.Registrations[0].At
				for _, hb := range v.Heartbeats {
					longest, before = max(longest, hb.At.Sub(before)), hb.At
				}
				t.Logf("%s: %d heartbeats arrived in %s, at most %s apart", name, len(v.Heartbeats), is.lasts,
					longest.Round(time.Millisecond))
				w.end(t)
				net.onWay.Wait()
			})
		})
	}
}
