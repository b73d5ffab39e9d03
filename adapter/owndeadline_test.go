package adapter

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
)

// earlyLauncher is a launcher whose processes end a moment before their deadline, as
// those of a shim do that is a little ahead of the adapter.
type earlyLauncher struct{ process.Launcher }

type earlyProcess struct {
	*scriptedProcess
	mu      sync.Mutex
	timer   *time.Timer
	start   time.Time
	overdue atomic.Bool
}

func (l earlyLauncher) Launch(ctx context.Context, job process.Job) (process.Process, error) {
	p, err := l.Launcher.Launch(ctx, job)
	if err != nil {
		return nil, err
	}
	h := &earlyProcess{scriptedProcess: p.(*scriptedProcess), start: ctx.Value(startKey{}).(time.Time)}
	h.KillAt(job.KillAt)
	return h, nil
}

func (p *earlyProcess) KillAt(at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(at-time.Since(p.start)-50*time.Millisecond, func() {
		p.overdue.Store(true)
		p.Kill()
	})
}

func (p *earlyProcess) Overdue() bool { return p.overdue.Load() }

type startKey struct{}

// A process that ended at its own deadline is given back where its lease still
// holds; where that has ended, the loss is told.
func TestProcessEndsAtItsOwnDeadline(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fails  string
		window time.Duration
		ending Ending
		class  picket.ExitClass
	}{
		{"no heartbeats", "/api/v1/agents", time.Hour, EndReleased, picket.ExitReleased},
		{"no renewals", "/v1/lease/renew", 20 * time.Second, EndLost, picket.ExitLeaseLost},
		{"no proxy", "/v1/", 20 * time.Second, EndLost, picket.ExitLeaseLost},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			results := make(chan Result, 9)
			a, s := newScriptedAdapter(t, runForever, func(c *Config) {
				c.Health, c.PinnedOnly, c.Launcher = quickThresholds, true, earlyLauncher{c.Launcher}
				c.clock = func() time.Duration { return time.Since(start) }
				c.OnEvent = func(e Event) {
					if e.Kind == EventEnded {
						results <- *e.Result
					}
				}
			})
			id := s.Queue(adaptertest.Task{Window: tt.window, Retries: 9})
			ctx, drain := context.WithCancel(context.WithValue(t.Context(), startKey{}, start))
			ended := runAsync(ctx, a)
			if _, err := s.AwaitAgent(withTimeout(t, time.Hour), "", reportsTasks(id)); err != nil {
				t.Fatal(err)
			}
			s.Pause(true)
			restore := s.Fail(tt.fails, adaptertest.Unavailable, -1)
			away := 40 * time.Second // longer than the lease, less than the end of a run is reported
			if tt.window == time.Hour {
				away = 2 * quickThresholds.DeadAfter
			}
			time.Sleep(away)
			restore()
			if got := <-results; got.Ending != tt.ending || got.Exit.Class != tt.class || got.Unreported {
				t.Errorf("%s: %+v", tt.name, got)
			}
			drain()
			a.ReleaseNow()
			if err := ended(); err != nil {
				t.Error(err)
			}
		})
	}
}
