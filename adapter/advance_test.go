package adapter

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/rig"
)

const (
	acquirePath  = "/api/v1/leases"
	advancePath  = "/api/v1/leases/advance"
	completePath = "/v1/tools/mark_complete"
)

// queued puts n tasks into the queue that the adapter completes itself.
func queued(s *adaptertest.Server, n int) (ids []string) {
	for range n {
		ids = append(ids, s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete}))
	}
	return ids
}

// runUntilReviewed runs an adapter until all tasks are in review, and drains it.
func runUntilReviewed(t *testing.T, a *Adapter, s *adaptertest.Server, ids []string) {
	t.Helper()
	ctx, drain := context.WithCancel(t.Context())
	defer drain()
	ended := runAsync(ctx, a)
	for _, id := range ids {
		if v, err := s.Await(withTimeout(t, 10*time.Hour), id, inReview); err != nil || len(v.Runs) != 1 {
			t.Fatalf("%d runs: %v", len(v.Runs), err)
		}
	}
	drain()
	if err := ended(); err != nil {
		t.Fatal(err)
	}
}

// A worker without a free slot takes the next task with the completion of the
// last: one acquire begins it, and no mark_complete is sent.
func TestAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runFor(time.Second))
		ids := queued(s, 5)
		runUntilReviewed(t, a, s, ids)
		if n := len(s.Calls(advancePath)); n != 5 {
			t.Errorf("advanced %d times, want 5", n)
		}
		if n := len(s.Calls(completePath)); n != 0 {
			t.Errorf("completed plainly %d times", n)
		}
		// The second asks after the queue was empty.
		if n := len(s.Calls(acquirePath)); n > 2 {
			t.Errorf("acquired %d times", n)
		}
		for _, id := range ids {
			if run := s.View(id).Runs[0]; run.ExitReport == nil || run.ExitReport.Class != picket.ExitSuccess {
				t.Errorf("evidence %+v", run.ExitReport)
			}
		}
	})
}

// While an acquire waits with a free slot, the next task comes through it.
func TestNoAdvanceBesideAnAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runFor(time.Second), func(c *Config) { c.Max = 2 })
		runUntilReviewed(t, a, s, queued(s, 1))
		if n, m := len(s.Calls(advancePath)), len(s.Calls(completePath)); n != 0 || m != 1 {
			t.Errorf("advanced %d times, completed %d times", n, m)
		}
	})
}

// The old run's evidence and output go on beside the new run, which does not
// wait for them.
func TestAdvanceDoesNotWaitForTheOldRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var began []time.Time
		a, s := newScriptedAdapter(t, func(p *scriptedProcess) {
			mu.Lock()
			began = append(began, time.Now())
			mu.Unlock()
			p.job.Stdout.Write([]byte("output of " + p.job.Lease.TaskID))
			time.Sleep(time.Second)
			p.endWith(process.Exited{})
		})
		ids := queued(s, 2)
		restore := s.Fail("/v1/run/", adaptertest.Unavailable, -1) // evidence, events and logs
		time.AfterFunc(15*time.Second, restore)
		runUntilReviewed(t, a, s, ids)
		if gap := began[1].Sub(began[0]); gap > 5*time.Second {
			t.Errorf("the second run began %s after the first", gap)
		}
		for _, id := range ids {
			run := s.View(id).Runs[0]
			if run.ExitReport == nil || run.Stdout != "output of "+id {
				t.Errorf("evidence %+v, output %q", run.ExitReport, run.Stdout)
			}
		}
	})
}

// Whatever happens to an advance, the task is completed once, every task is
// worked on once, and no lease is left behind.
func TestAdvanceThroughFaults(t *testing.T) {
	for _, tt := range []struct {
		name     string
		happens  func(*adaptertest.Server)
		advances int // asked for in all; 0 is not looked at
		plain    int
	}{
		{"the reply is lost", func(s *adaptertest.Server) { s.Fail(advancePath, adaptertest.DropReply, 2) }, 6, 0},
		{"the request is lost", func(s *adaptertest.Server) { s.Fail(advancePath, adaptertest.DropRequest, 2) }, 6, 0},
		{"the server is away for a moment",
			func(s *adaptertest.Server) { s.Fail(advancePath, adaptertest.Unavailable, 2) }, 6, 0},
		{"the control plane stays away",
			func(s *adaptertest.Server) { s.Fail(advancePath, adaptertest.Unavailable, -1) }, 0, 4},
		{"it never answers", func(s *adaptertest.Server) { s.Fail(advancePath, adaptertest.Hang, -1) }, 0, 4},
		{"a server without the route", func(s *adaptertest.Server) { s.SupportAdvance(false) }, 1, 4},
		{"paused", func(s *adaptertest.Server) {
			time.AfterFunc(500*time.Millisecond, func() { s.Pause(true) })
			time.AfterFunc(time.Minute, func() { s.Pause(false) })
		}, 4, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, s := newScriptedAdapter(t, runFor(time.Second))
			ids := queued(s, 4)
			tt.happens(s)
			runUntilReviewed(t, a, s, ids)
			n, m := len(s.Calls(advancePath)), len(s.Calls(completePath))
			if tt.advances != 0 && n != tt.advances || m != tt.plain {
				t.Errorf("%s: advanced %d times, completed %d times", tt.name, n, m)
			}
			for _, id := range ids {
				if v := s.View(id); v.Token != 1 || v.Runs[0].ExitReport == nil {
					t.Errorf("%s: %+v", tt.name, v)
				}
			}
		})
	}
}

// A lease that was lost before it could be completed is not completed, and the
// worker goes on.
func TestAdvanceOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *adaptertest.Server
		first := ""
		a, s := newScriptedAdapter(t, func(p *scriptedProcess) {
			if p.job.Lease.TaskID == first {
				s.Fail("/v1/lease/watch", adaptertest.Hang, 1)
				s.Expire(first)
			}
			p.endWith(process.Exited{})
		})
		ids := queued(s, 2)
		first = ids[0]
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, a)
		if _, err := s.Await(withTimeout(t, time.Hour), ids[1], inReview); err != nil {
			t.Fatal(err)
		}
		drain()
		if err := ended(); err != nil {
			t.Fatal(err)
		}
		if v := s.View(first); v.State != picket.TaskHandoff || v.Output != nil || v.Runs[0].ExitReport == nil {
			t.Errorf("%+v", v)
		}
	})
}

// In a drain a completion asks for nothing. A drain that begins while the
// outcome of an advance is unknown gives what it had granted back unused.
func TestDrainAndAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, drain := context.WithCancel(t.Context())
		a, s := newScriptedAdapter(t,
			func(p *scriptedProcess) { drain(); time.Sleep(time.Second); p.endWith(process.Exited{}) })
		ids := queued(s, 2)
		if err := runAsync(ctx, a)(); err != nil {
			t.Fatal(err)
		}
		if n := len(s.Calls(advancePath)); n != 0 || s.View(ids[0]).State != picket.TaskReview ||
			s.View(ids[1]).Token != 0 {
			t.Errorf("advanced %d times: %+v", n, s.View(ids[1]))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		launched := 0
		a, s := newScriptedAdapter(t, func(p *scriptedProcess) { launched++; p.endWith(process.Exited{}) })
		ids := queued(s, 2)
		s.Fail(advancePath, adaptertest.DropReply, 1)
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, a)
		if err := s.AwaitCalls(withTimeout(t, time.Minute), advancePath, 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the grant was made, and its answer is lost
		drain()
		if err := ended(); err != nil {
			t.Fatal(err)
		}
		v := s.View(ids[1])
		if launched != 1 || v.State != picket.TaskQueued || len(v.Runs) != 1 || v.Runs[0].Released == nil ||
			v.Runs[0].Released.Class != picket.ExitReleased {
			t.Errorf("%d launches, the second task is %+v", launched, v)
		}
	})
}

// Many workers that start at once, and that a server's answer sends away
// together, do not come together.
func TestWorkersDoNotAskAtOnce(t *testing.T) {
	rig.SkipShort(t)
	seed := rig.Seed(t)
	const workers, bucket = 200, 25 * time.Millisecond
	// Those that serve one agent id begin at once, and are sent away at once.
	for _, together := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			rnd := rand.New(rand.NewPCG(seed, 1))
			start, s := time.Now(), adaptertest.New()
			time.AfterFunc(10*time.Second, s.Fail(acquirePath, adaptertest.Unavailable, -1))
			ctx, drain := context.WithCancel(t.Context())
			var group sync.WaitGroup
			for range workers {
				a, err := New(Config{
					BaseURL:    s.URL,
					Key:        adaptertest.Key,
					HTTP:       &http.Client{Transport: retryAfterOne{s.HTTPClient().Transport}},
					Launcher:   scriptedLauncher(runForever),
					StateDir:   t.TempDir(),
					PinnedOnly: together,
					clock:      func() time.Duration { return time.Since(start) },
					jitter: func(d time.Duration) time.Duration {
						mu.Lock()
						defer mu.Unlock()
						return time.Duration(rnd.Int64N(int64(d)))
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				group.Go(func() { a.Run(ctx) })
			}
			time.Sleep(5 * time.Minute)
			drain()
			group.Wait()
			at := map[time.Duration]int{}
			for _, c := range s.Calls(acquirePath) {
				at[c.At.Sub(start)/bucket]++
			}
			if together {
				delete(at, 0)
			}
			most := 0
			for _, n := range at {
				most = max(most, n)
			}
			if most > workers/3 {
				t.Errorf("%d of %d workers asked within %s", most, workers, bucket)
			}
			t.Logf("no stampede: %d workers, %d requests in 5 minutes, at most %d within %s", workers,
				len(s.Calls(acquirePath)), most, bucket)
		})
	}
}

// retryAfterOne sets Retry-After: 1 in every 503.
type retryAfterOne struct{ http.RoundTripper }

func (b retryAfterOne) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.RoundTripper.RoundTrip(r)
	if err == nil && res.StatusCode == http.StatusServiceUnavailable {
		res.Header.Set("Retry-After", "1")
	}
	return res, err
}

// One at a time is asked for, whatever Max is: the slot that becomes free.
func TestAdvanceAsksForItsOwnSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runFor(time.Second), func(c *Config) { c.Max = 3 })
		ids := queued(s, 12)
		runUntilReviewed(t, a, s, ids)
		for _, id := range ids {
			if n := len(s.View(id).Runs); n != 1 {
				t.Errorf("%d runs", n)
			}
		}
		if !slices.ContainsFunc(s.Calls(advancePath),
			func(c adaptertest.Call) bool { return c.Status == http.StatusOK }) {
			t.Error("it never advanced")
		}
	})
}
