package adapter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
)

func TestLongRunIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runFor(8*time.Hour))
		lease := s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
		res, err := a.RunLease(t.Context(), lease)
		if err != nil || res.Ending != EndCompleted || res.State != picket.TaskReview {
			t.Fatalf("%+v, %v", res, err)
		}
		run := s.View(lease.TaskID).Runs[0]
		if want := 8*60*60/180 + 1; run.Renewals < want-1 || run.Renewals > want {
			t.Errorf("renewed %d times, want %d", run.Renewals, want)
		}
		if first := s.Calls("")[0]; first.Path != "/v1/lease/renew" {
			t.Errorf("the first call was %s, not a renewal", first.Path)
		}
	})
}

// An outage that ends before the deadline costs nothing.
func TestOutageSurvived(t *testing.T) {
	for _, kind := range []adaptertest.Fault{adaptertest.Unavailable, adaptertest.DropRequest, adaptertest.DropReply,
		adaptertest.Hang} {
		synctest.Test(t, func(t *testing.T) {
			a, s := newScriptedAdapter(t, runFor(time.Hour))
			lease := s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
			time.AfterFunc(170*time.Second, func() {
				restore := s.Fail("/v1/", kind, -1)
				time.AfterFunc(80*time.Second, restore)
			})
			res, err := a.RunLease(t.Context(), lease)
			if err != nil || res.Ending != EndCompleted {
				t.Fatalf("trouble %d: %+v, %v", kind, res, err)
			}
		})
	}
}

// In an outage that lasts, the agent is dead before its lease ends, and the run
// is reported once the proxy is back.
func TestOutageKillsBeforeTheLeaseEnds(t *testing.T) {
	for _, window := range []time.Duration{2 * time.Second, 10 * time.Second, 300 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var died time.Duration
			start := time.Now()
			a, s := newScriptedAdapter(t, func(p *scriptedProcess) { <-p.done; died = time.Since(start) })
			lease := s.Grant(adaptertest.Task{Window: window})
			time.AfterFunc(10*time.Millisecond, func() {
				restore := s.Fail("/v1/", adaptertest.Unavailable, -1)
				time.AfterFunc(window+10*time.Second, restore)
			})
			res, err := a.RunLease(t.Context(), lease)
			synctest.Wait()
			if err != nil || res.Ending != EndLost || res.Exit.Class != picket.ExitLeaseLost || res.Unreported {
				t.Fatalf("window %s: %+v, %v", window, res, err)
			}
			if left := window - died; left < killMargin(window)-100*time.Millisecond ||
				left > killMargin(window)+100*time.Millisecond {
				t.Errorf("window %s: died %s before the end", window, left)
			}
			if e := s.View(lease.TaskID).Runs[0].ExitReport; e == nil || e.Class != picket.ExitLeaseLost {
				t.Errorf("window %s: evidence %+v", window, e)
			}
		})
	}
}

// SIGTERM at the warning: an agent that heeds it gives its lease back without a
// failure; one that does not works on when the proxy is back in time.
func TestDeadlineWarning(t *testing.T) {
	for _, tt := range []struct {
		name   string
		onTerm func(*scriptedProcess)
		class  picket.ExitClass
		state  picket.TaskState
	}{
		{"heeded", func(p *scriptedProcess) { p.endWith(process.Exited{Code: 1}) }, picket.ExitReleased,
			picket.TaskQueued},
		{"ignored", nil, picket.ExitCrash, picket.TaskHandoff},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, s := newScriptedAdapter(t, func(p *scriptedProcess) {
				p.mu.Lock()
				p.onTerm = tt.onTerm
				p.mu.Unlock()
				select {
				case <-time.After(time.Hour):
					p.endWith(process.Exited{Code: 1})
				case <-p.done:
				}
			})
			lease := s.Grant(adaptertest.Task{})
			time.AfterFunc(time.Minute, func() {
				restore := s.Fail("/v1/lease", adaptertest.Unavailable, -1)
				time.AfterFunc(220*time.Second, restore) // between SIGTERM at 270 s and SIGKILL at 291 s
			})
			res, err := a.RunLease(t.Context(), lease)
			if err != nil || res.Ending != EndReleased || res.Exit.Class != tt.class || res.State != tt.state {
				t.Errorf("%s: %+v, %v", tt.name, res, err)
			}
		})
	}
}

// A run whose end nobody takes is given up on in bounded time.
func TestEndOfRunInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runFor(time.Second))
		lease := s.Grant(adaptertest.Task{})
		time.AfterFunc(500*time.Millisecond, func() { s.Fail("/v1/", adaptertest.Unavailable, -1) })
		start := time.Now()
		res, err := a.RunLease(t.Context(), lease)
		if !errors.Is(err, picket.CodeUnavailable) || !res.Unreported {
			t.Fatalf("%+v, %v", res, err)
		}
		if took := time.Since(start); took > 300*time.Second+2*a.cfg.ReportRetry+20*time.Second {
			t.Errorf("given up after %s", took)
		}
	})
}

// The reply to the last report is lost: it is repeated and counts once.
func TestLostReplyOfTheEnd(t *testing.T) {
	for _, tt := range []struct {
		path string
		task adaptertest.Task
		want Ending
	}{
		{"/v1/lease/release", adaptertest.Task{}, EndReleased},
		{"/v1/tools/mark_complete", adaptertest.Task{OnExit: picket.OnExitComplete}, EndCompleted},
		{"/v1/run/exit", adaptertest.Task{OnExit: picket.OnExitComplete}, EndCompleted},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, s := newScriptedAdapter(t, runFor(time.Second))
			lease := s.Grant(tt.task)
			s.Fail(tt.path, adaptertest.DropReply, 2)
			res, err := a.RunLease(t.Context(), lease)
			if err != nil || res.Ending != tt.want || res.State == "" {
				t.Errorf("%s: %+v, %v", tt.path, res, err)
			}
			if n := len(s.Calls(tt.path)); n != 3 {
				t.Errorf("%s: sent %d times", tt.path, n)
			}
		})
	}
}

func TestStagesOfAnEnd(t *testing.T) {
	for _, tt := range []struct {
		name    string
		task    adaptertest.Task
		wait    time.Duration // from the launch to the trigger; 1 s when zero
		trigger func(*adaptertest.Server, picket.Lease)
		want    []string
		after   time.Duration // from the launch to the process's end
		ending  Ending
		class   picket.ExitClass
	}{
		{"cancel kills at once", adaptertest.Task{}, 0,
			func(s *adaptertest.Server, l picket.Lease) { s.Cancel(l.TaskID) },
			[]string{"KILL"}, time.Second, EndCancelled, picket.ExitKilled},
		{"expiry kills at once", adaptertest.Task{}, 0,
			func(s *adaptertest.Server, l picket.Lease) { s.Expire(l.TaskID) },
			[]string{"KILL"}, time.Second, EndLost, picket.ExitLeaseLost},
		{"a new holder kills at once", adaptertest.Task{}, 0,
			func(s *adaptertest.Server, l picket.Lease) { s.Supersede(l.TaskID) },
			[]string{"KILL"}, time.Second, EndLost, picket.ExitLeaseLost},
		{"timeout has a grace", adaptertest.Task{Timeout: time.Minute}, 0, nil,
			[]string{"TERM", "KILL"}, 65 * time.Second, EndReleased, picket.ExitTimeout},
		{"stop has a grace", adaptertest.Task{}, 0,
			func(s *adaptertest.Server, l picket.Lease) { s.Command(l.TaskID, picket.Command{Command: "stop"}) },
			[]string{"TERM", "KILL"}, 6 * time.Second, EndReleased, picket.ExitReleased},
		{"completion has linger and grace", adaptertest.Task{}, 0,
			func(_ *adaptertest.Server, l picket.Lease) { completeAs(l) },
			[]string{"TERM", "KILL"}, 16 * time.Second, EndCompleted, picket.ExitKilled},
		{"no renewal after completion", adaptertest.Task{}, 175 * time.Second,
			func(_ *adaptertest.Server, l picket.Lease) { completeAs(l) },
			[]string{"TERM", "KILL"}, 190 * time.Second, EndCompleted, picket.ExitKilled},
	} {
		synctest.Test(t, func(t *testing.T) {
			wait := max(tt.wait, time.Second)
			var p *scriptedProcess
			launched := make(chan time.Time, 1)
			a, s := newScriptedAdapter(t, func(made *scriptedProcess) { p = made; launched <- time.Now() })
			inMemory = s
			lease := s.Grant(tt.task)
			var took time.Duration
			go func() {
				start := <-launched
				time.Sleep(wait)
				if tt.trigger != nil {
					tt.trigger(s, lease)
				}
				<-p.done
				took = time.Since(start)
			}()
			res, err := a.RunLease(t.Context(), lease)
			synctest.Wait()
			if err != nil || res.Ending != tt.ending || res.Exit.Class != tt.class {
				t.Fatalf("%s: %+v, %v", tt.name, res, err)
			}
			if !slices.Equal(p.signals, tt.want) || took < tt.after || took > tt.after+time.Millisecond {
				t.Errorf("%s: %v after %s, want %v after %s", tt.name, p.signals, took, tt.want, tt.after)
			}
		})
	}
}

var inMemory *adaptertest.Server

func completeAs(l picket.Lease) {
	if _, err := NewProxy(l, "", inMemory.HTTPClient()).
		Complete(context.Background(), picket.RawJSON(`1`), ""); err != nil {
		panic(err)
	}
}

// With the watch out of order, the next renewal says what became of the lease.
func TestEndSeenByRenewal(t *testing.T) {
	for _, tt := range []struct {
		name    string
		trigger func(*adaptertest.Server, picket.Lease)
		want    []string
		ending  Ending
	}{
		{"completed", func(_ *adaptertest.Server, l picket.Lease) { completeAs(l) }, []string{"TERM", "KILL"},
			EndCompleted},
		{"cancelled", func(s *adaptertest.Server, l picket.Lease) { s.Cancel(l.TaskID) }, []string{"KILL"},
			EndCancelled},
		{"expired", func(s *adaptertest.Server, l picket.Lease) { s.Expire(l.TaskID) }, []string{"KILL"}, EndLost},
	} {
		synctest.Test(t, func(t *testing.T) {
			var p *scriptedProcess
			a, s := newScriptedAdapter(t, func(made *scriptedProcess) { p = made })
			inMemory = s
			lease := s.Grant(adaptertest.Task{})
			s.Fail("/v1/lease/watch", adaptertest.Hang, 3) // 65 s each: past the renewal
			time.AfterFunc(170*time.Second, func() { tt.trigger(s, lease) })
			start := time.Now()
			res, err := a.RunLease(t.Context(), lease)
			synctest.Wait()
			if err != nil || res.Ending != tt.ending || !slices.Equal(p.signals, tt.want) {
				t.Errorf("%s: %v, %+v, %v", tt.name, p.signals, res, err)
			}
			if took := time.Since(start); took < 180*time.Second || took > 196*time.Second {
				t.Errorf("%s: took %s", tt.name, took)
			}
		})
	}
}

// While nobody confirms, nothing is launched.
func TestNotLaunchedUnconfirmed(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(*adaptertest.Server, picket.Lease)
		want  Ending
		err   error
	}{
		{"expired", func(s *adaptertest.Server, l picket.Lease) { s.Expire(l.TaskID) }, EndLost, nil},
		{"cancelled", func(s *adaptertest.Server, l picket.Lease) { s.Cancel(l.TaskID) }, EndCancelled, nil},
		{"proxy away", func(s *adaptertest.Server, _ picket.Lease) { s.Fail("/v1/", adaptertest.Unavailable, -1) },
			EndLost, picket.CodeUnavailable},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, s := newScriptedAdapter(t, func(*scriptedProcess) { t.Errorf("%s: launched", tt.name) })
			lease := s.Grant(adaptertest.Task{})
			tt.spoil(s, lease)
			res, err := a.RunLease(t.Context(), lease)
			if res.Ending != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("%s: %+v, %v", tt.name, res, err)
			}
		})
	}
}

func TestEventsOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []EventKind
		a, s := newScriptedAdapter(t, runFor(4*time.Minute-time.Second), func(c *Config) {
			c.OnEvent = func(e Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind != EventProgressTick {
					told = append(told, e.Kind)
				}
				if e.TaskID == "" || e.At.IsZero() || (e.Kind == EventRenewed && e.Remaining < 290*time.Second) {
					t.Errorf("%+v", e)
				}
			}
		})
		lease := s.Grant(adaptertest.Task{})
		if _, err := a.RunLease(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		want := []EventKind{EventAcquired, EventRenewed, EventLaunched, EventRenewed, EventEnding, EventEnded}
		if !slices.Equal(told, want) {
			t.Errorf("%v, want %v", told, want)
		}
		events := s.View(lease.TaskID).Runs[0].Events
		if len(events) != 8 || events[0].Type != picket.EventRunLaunched ||
			events[0].Containment != picket.ContainmentGroup {
			t.Errorf("events %+v", events)
		}
	})
}
