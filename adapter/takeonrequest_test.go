package adapter

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/agents"
)

// takeOnRequest is a worker that takes tasks on request, and its registration.
func takeOnRequest(t *testing.T, play scriptedLauncher, max int, change ...func(*Config)) (s *adaptertest.Server,
	r Registered, drain func() error) {
	t.Helper()
	registrations := make(chan Registered)
	a, s := newScriptedAdapter(t, play, append(change, func(c *Config) {
		c.TakeOnRequest, c.Max = true, max
		c.WhileRegistered = func(ctx context.Context, r Registered) {
			registrations <- r
			<-ctx.Done()
		}
	})...)
	ctx, cancel := context.WithCancel(t.Context())
	ended := runAsync(ctx, a)
	return s, <-registrations, func() error {
		cancel()
		return ended()
	}
}

// A worker that takes tasks on request leaves them alone until it is asked, and takes one at a time. A reply that
// was lost costs no task.
func TestTakeTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, drain := takeOnRequest(t, runFor(time.Minute), 1)
		nothing := func(string) { t.Error("a task has started") }
		if taken, err := r.TakeTask(t.Context(), agents.Conversation{}, nothing); taken || err != nil {
			t.Errorf("without a task: %v, %v", taken, err)
		}
		id := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete})
		s.Queue(adaptertest.Task{})
		time.Sleep(time.Hour)
		if v := s.View(id); v.State != picket.TaskQueued {
			t.Fatalf("nobody has asked, and the task is %s", v.State)
		}
		s.Fail("/api/v1/leases", adaptertest.DropReply, 1)
		started, done := make(chan string, 1), make(chan bool, 1)
		go func() {
			taken, err := r.TakeTask(t.Context(), agents.Conversation{}, func(id string) { started <- id })
			if err != nil {
				t.Error(err)
			}
			done <- taken
		}()
		if got := <-started; got != id {
			t.Errorf("it has taken %s, not %s", got, id)
		}
		synctest.Wait()
		if taken, err := r.TakeTask(t.Context(), agents.Conversation{}, nothing); taken || err != nil {
			t.Errorf("while it works: %v, %v", taken, err)
		}
		// A drain waits for the run, and nothing begins after it.
		if err := drain(); err != nil {
			t.Error(err)
		}
		if v := s.View(id); !<-done || v.State != picket.TaskReview || len(v.Runs) != 1 {
			t.Errorf("the task is %s after %d runs", v.State, len(v.Runs))
		}
		if taken, err := r.TakeTask(t.Context(), agents.Conversation{}, nothing); taken || err != nil {
			t.Errorf("after the drain: %v, %v", taken, err)
		}
	})
}

// A caller that has asked for a task can end its run: the lease is given back.
func TestTakenTaskIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, drain := takeOnRequest(t, runForever, 2)
		id := s.Queue(adaptertest.Task{})
		ctx, cancel := context.WithCancel(t.Context())
		taken, err := r.TakeTask(ctx, agents.Conversation{}, func(string) {
			time.AfterFunc(time.Minute, cancel)
		})
		if !taken || err != nil {
			t.Errorf("%v, %v", taken, err)
		}
		if v := s.View(id); v.State != picket.TaskQueued || v.Runs[0].Released == nil ||
			v.Runs[0].Released.Class != picket.ExitReleased {
			t.Errorf("%+v", v)
		}
		if err := drain(); err != nil {
			t.Error(err)
		}
	})
}

// slowReplies delays the answers of one path. A request that ends before that gets none.
type slowReplies struct {
	http.RoundTripper
	path  string
	delay time.Duration
}

func (t slowReplies) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.RoundTripper.RoundTrip(r)
	if r.URL.Path == t.path && !sleep(r.Context(), t.delay) {
		return nil, r.Context().Err()
	}
	return res, err
}

// A lease that is granted after its caller has gone is given back at once, also if the first reply is lost. The caller
// does not wait for an answer that does not come.
func TestALateLeaseIsGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		delay    time.Duration
		lost     int // replies
		given    bool
		returned time.Duration // at most
	}{
		"late":  {3 * time.Second, 0, true, 4 * time.Second},
		"lost":  {3 * time.Second, 1, true, 8 * time.Second},
		"never": {time.Hour, 0, false, 12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r, drain := takeOnRequest(t, runForever, 1, func(cfg *Config) {
					cfg.HTTP = &http.Client{Transport: slowReplies{cfg.HTTP.Transport, "/api/v1/leases", c.delay}}
				})
				id := s.Queue(adaptertest.Task{})
				s.Fail("/api/v1/leases", adaptertest.DropReply, c.lost)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				began := time.Now()
				taken, err := r.TakeTask(ctx, agents.Conversation{}, func(string) { t.Error("the task has started") })
				if took := time.Since(began); taken || err == nil || took > c.returned {
					t.Errorf("%v, %v after %s", taken, err, took)
				}
				v := s.View(id)
				if len(v.Runs) != 1 || (v.State == picket.TaskQueued && v.Runs[0].Released != nil) != c.given {
					t.Errorf("%+v", v)
				}
				if err := drain(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
