package adapter

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
)

// jumpClock lets the clock that goes on in suspend leap by d at a time on the timers.
func jumpClock(at, d time.Duration) func(*Config, *observedRun, *adaptertest.Server) {
	return func(_ *Config, v *observedRun, _ *adaptertest.Server) {
		time.AfterFunc(at, func() { v.suspend.Store(int64(d)) })
	}
}

// The timeout goes on in suspend; heartbeats that were missed are not made up
// for, the warning is, once, and nothing is told after the kill.
func TestLauncherEventsAcrossSuspend(t *testing.T) {
	for _, tt := range []struct {
		name   string
		at     time.Duration
		asleep time.Duration
		want   []string
	}{
		{"past the threshold", 100500 * time.Millisecond, 390 * time.Second, []string{
			"agent-heartbeat 30.0", "agent-heartbeat 60.0", "agent-heartbeat 90.0",
			"agent-heartbeat 491.0", "agent-timeout-warning 491.0", "agent-heartbeat 510.0", "agent-heartbeat 540.0",
			"agent-heartbeat 570.0",
			"agent-heartbeat 600.0", "agent-timed-out 600.0"}},
		{"past the timeout", 40500 * time.Millisecond, 10 * time.Hour, []string{
			"agent-heartbeat 30.0", "agent-heartbeat 36041.0", "agent-timeout-warning 36041.0",
			"agent-timed-out 36041.0"}},
		{"short of the threshold", 100500 * time.Millisecond, 100 * time.Second, []string{
			"agent-heartbeat 30.0", "agent-heartbeat 60.0", "agent-heartbeat 90.0",
			"agent-heartbeat 201.0", "agent-heartbeat 210.0"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			task := adaptertest.Task{Timeout: 10 * time.Minute, Window: 24 * time.Hour}
			v, run := runObserved(t, task, runForever, jumpClock(tt.at, tt.asleep))
			got := v.told
			if len(got) > len(tt.want) && !strings.Contains(tt.want[len(tt.want)-1], "timed-out") {
				got = got[:len(tt.want)]
			}
			wantTold(t, tt.name, got, tt.want)
			for _, kind := range []string{picket.EventAgentTimeoutWarning, picket.EventAgentTimedOut} {
				if n := count(run.Events, kind); n != 1 {
					t.Errorf("%s: %s is %d times in the log", tt.name, kind, n)
				}
			}
			if v.result.Exit.Class != picket.ExitTimeout {
				t.Errorf("%s: %+v", tt.name, v.result)
			}
		})
	}
}

// An agent that is being ended for another reason is neither warned of its
// timeout nor ended for it.
func TestNoWarningAfterTheKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := runObserved(t, adaptertest.Task{Timeout: 100 * time.Second}, runForever,
			func(c *Config, v *observedRun, s *adaptertest.Server) {
				c.Grace = time.Minute
				time.AfterFunc(75*time.Second,
					func() { s.Command(v.task, picket.Command{Command: "stop", Reason: "enough"}) })
			})
		wantTold(t, "stopped", v.told,
			[]string{"agent-heartbeat 30.0", "agent-heartbeat 60.0", "agent-heartbeat 90.0", "agent-heartbeat 120.0"})
		if v.result.TimedOut || v.result.Exit.Class != picket.ExitReleased {
			t.Errorf("%+v", v.result)
		}
	})
}

// A proxy that is away, or loses answers, delays no event in the process and
// costs neither warning nor end; of heartbeats the newest arrives.
func TestLauncherEventsThroughFaults(t *testing.T) {
	onTime := []string{"agent-heartbeat 30.0", "agent-heartbeat 60.0", "agent-timeout-warning 80.0",
		"agent-heartbeat 90.0",
		"agent-timed-out 100.0", "agent-heartbeat 120.0"}
	for _, tt := range []struct {
		name  string
		kind  adaptertest.Fault
		times int
		want  []string // in the log, after run.launched
	}{
		{"answers are lost", adaptertest.DropReply, 5,
			[]string{"agent-heartbeat", "agent-heartbeat", "agent-timeout-warning", "agent-heartbeat",
				"agent-timed-out", "agent-heartbeat"}},
		{"away", adaptertest.Unavailable, -1, []string{"agent-timeout-warning", "agent-timed-out", "agent-heartbeat"}},
		{"no connection", adaptertest.DropRequest, -1,
			[]string{"agent-timeout-warning", "agent-timed-out", "agent-heartbeat"}},
		{"hanging", adaptertest.Hang, -1, []string{"agent-timeout-warning", "agent-timed-out", "agent-heartbeat"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			v, run := runObserved(t, adaptertest.Task{Timeout: 100 * time.Second}, runForever,
				func(c *Config, _ *observedRun, s *adaptertest.Server) {
					c.Grace = 25 * time.Second
					time.AfterFunc(10*time.Second, func() {
						restore := s.Fail("/v1/run/events", tt.kind, tt.times)
						time.AfterFunc(120*time.Second, restore)
					})
				})
			wantTold(t, tt.name, v.told, onTime)
			var got []string
			for _, e := range run.Events[1:] {
				got = append(got, e.Type)
			}
			wantTold(t, tt.name+", in the log", got, tt.want)
			if v.err != nil || run.Released == nil || run.Released.Class != picket.ExitTimeout {
				t.Errorf("%s: %+v, %v", tt.name, v.result, v.err)
			}
		})
	}
}

// The announcement of the process arrives although the proxy was away at the
// launch, and before everything else.
func TestLaunchIsAnnouncedAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, run := runObserved(t, adaptertest.Task{}, runFor(95*time.Second),
			func(_ *Config, _ *observedRun, s *adaptertest.Server) {
				restore := s.Fail("/v1/run/events", adaptertest.Unavailable, -1)
				time.AfterFunc(40*time.Second, restore)
			})
		if len(run.Events) == 0 || run.Events[0].Type != picket.EventRunLaunched ||
			count(run.Events, picket.EventRunLaunched) != 1 {
			t.Errorf("%+v", run.Events)
		}
	})
}

// A resume close to the end of the lease renews before it warns anybody, and
// warns when that fails; past the time to kill there is nothing to renew.
func TestResumeRenewsBeforeItWarns(t *testing.T) {
	for _, tt := range []struct {
		name    string
		asleep  time.Duration
		failing bool
		want    []string
		lost    bool
	}{
		{"between warning and kill", 250 * time.Second, false, []string{"renewed 275.0"}, false},
		{"and the proxy is away", 250 * time.Second, true, []string{"failed 275.0", "warned 275.0"}, true},
		{"after the kill", 275 * time.Second, false, nil, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newKeeperFixture(300 * time.Second)
			h.renewNow = make(chan struct{}, 1)
			h.replies = func(n int) error {
				if tt.failing && n > 1 {
					return errAway
				}
				return nil
			}
			time.AfterFunc(24500*time.Millisecond, func() { h.suspend.Store(int64(tt.asleep)) })
			err := h.confirmAndKeep(t, 60*time.Second)
			if errors.Is(err, errLeaseDeadline) != tt.lost {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if got := h.steps[:min(len(h.steps), len(tt.want))]; !slices.Equal(got, tt.want) ||
				(len(tt.want) == 0 && len(h.steps) > 0) {
				t.Errorf("%s: %v, want %v", tt.name, h.steps, tt.want)
			}
		})
	}
}

// Jumps of the clock in either direction, small ones included, never keep a
// lease past its kill and never let go of one early.
func TestClockJumps(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, -3 * time.Second, 500 * time.Millisecond, 3 * time.Second,
		time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			h := newKeeperFixture(300 * time.Second)
			h.replies = func(n int) error {
				if n > 1 {
					return errAway
				}
				return nil
			}
			time.AfterFunc(20500*time.Millisecond, func() { h.suspend.Store(int64(by)) })
			err := h.confirmAndKeep(t, 2*time.Hour)
			if !errors.Is(err, errLeaseDeadline) {
				t.Fatalf("jump of %s: %v", by, err)
			}
			if at := h.clock(); at < 291*time.Second || (by < 270*time.Second && at > 291*time.Second+time.Second) {
				t.Errorf("jump of %s: let go at %s of the clock", by, at)
			}
		})
	}
}
