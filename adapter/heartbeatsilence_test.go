package adapter

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
)

// quickThresholds are the shortest thresholds that have a SIGTERM stage.
var quickThresholds = HealthConfig{
	Interval:       5 * time.Second,
	UnhealthyAfter: 15 * time.Second,
	DeadAfter:      60 * time.Second,
}

// at notes when a puppet was sent what, in seconds since the start.
type signalLog struct {
	mu    sync.Mutex
	start time.Time
	lines []string
}

func (d *signalLog) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, what+" "+time.Since(d.start).Round(time.Second).String())
}

func (d *signalLog) told() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// runningAdapter is a running adapter with one agent.
type runningAdapter struct {
	a    *Adapter
	s    *adaptertest.Server
	id   string
	log  *signalLog
	mu   sync.Mutex
	made []*scriptedProcess
	stop func() error // drains
}

// liveAgents counts the agents that are not dead.
func (w *runningAdapter) liveAgents() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.made {
		select {
		case <-p.done:
		default:
			n++
		}
	}
	return n
}

// startRunningAdapter starts an adapter and one agent that heeds nothing but SIGKILL.
func startRunningAdapter(t *testing.T, window time.Duration, change ...func(*Config)) *runningAdapter {
	t.Helper()
	w := &runningAdapter{log: &signalLog{start: time.Now()}}
	w.a, w.s = newScriptedAdapter(t, func(p *scriptedProcess) {
		w.mu.Lock()
		w.made = append(w.made, p)
		w.mu.Unlock()
		p.mu.Lock()
		p.onTerm = func(*scriptedProcess) { w.log.note("TERM") }
		p.mu.Unlock()
		<-p.done
		w.log.note("dead")
	}, slices.Concat([]func(*Config){func(c *Config) { c.Health, c.PinnedOnly = quickThresholds, true }}, change)...)
	w.id = w.s.Queue(adaptertest.Task{Window: window, Retries: 9})
	ctx, drain := context.WithCancel(t.Context())
	ended := runAsync(ctx, w.a)
	w.stop = func() error { drain(); w.a.ReleaseNow(); return ended() }
	w.await(t, "its task", reportsTasks(w.id))
	return w
}

func (w *runningAdapter) await(t *testing.T, what string, ok func(adaptertest.AgentView) bool) adaptertest.AgentView {
	t.Helper()
	v, err := w.s.AwaitAgent(withTimeout(t, 2*time.Hour), w.a.AgentID(), ok)
	if err != nil {
		t.Fatalf("%s: %v, %+v", what, err, w.s.View(w.id))
	}
	return v
}

func (w *runningAdapter) end(t *testing.T) {
	t.Helper()
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if n := w.liveAgents(); n != 0 {
		t.Errorf("%d agents are left", n)
	}
}

// Heartbeats that are not acknowledged end the agents a margin before the
// registry may take the adapter for dead, although renewals go on; then the
// lease is given back, which counts no failure.
func TestSilenceEndsTheWork(t *testing.T) {
	for _, kind := range []adaptertest.Fault{adaptertest.Unavailable, adaptertest.Hang, adaptertest.HangReply,
		adaptertest.DropRequest} {
		synctest.Test(t, func(t *testing.T) {
			w := startRunningAdapter(t, 300*time.Second)
			v := w.await(t, "a heartbeat", func(v adaptertest.AgentView) bool { return len(v.Heartbeats) > 2 })
			acked := v.Heartbeats[len(v.Heartbeats)-1].At
			restore := w.s.Fail("/api/v1/agents", kind, -1)
			got, err := w.s.Await(withTimeout(t, time.Hour), w.id,
				func(v adaptertest.View) bool { return v.Runs[0].Released != nil })
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(acked)
			synctest.Wait()
			if want := 60*time.Second - killMargin(60*time.Second); took < want-time.Second || took > want+time.Second {
				t.Errorf("trouble %d: the agent died %s after the last heartbeat, want %s", kind, took, want)
			}
			if r := got.Runs[0]; r.Released.Class != picket.ExitReleased {
				t.Errorf("trouble %d: %+v", kind, r)
			}
			if told := w.log.told(); len(told) != 2 || told[0][:4] != "TERM" {
				t.Errorf("trouble %d: %v", kind, told)
			}
			time.Sleep(time.Hour)
			if n := w.liveAgents(); n != 0 {
				t.Errorf("trouble %d: %d agents run in silence", kind, n)
			}
			restore()
			if kind != adaptertest.HangReply { // the registry has received its heartbeats all the time
				w.await(t, "the next registration", registered(2))
			}
			w.await(t, "the task again", reportsTasks(w.id))
			w.end(t)
		})
	}
}

// Heartbeats go on while renewals fail, and the other way round: the nearer
// deadline counts, and a heartbeat of its own saves no lease.
func TestHeartbeatsSaveNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startRunningAdapter(t, 20*time.Second)
		w.s.Pause(true)
		start := time.Now()
		restore := w.s.Fail("/v1/lease", adaptertest.Unavailable, -1)
		v := w.await(t, "no task", reportsTasks())
		if took := time.Since(start); took > 30*time.Second || len(v.Registrations) != 1 {
			t.Errorf("%s, %d registrations", took, len(v.Registrations))
		}
		restore()
		w.s.Expire(w.id)
		w.s.Pause(false)
		w.await(t, "the task again", reportsTasks(w.id))
		w.end(t)
	})
}

// Slow heartbeats, and an outage that ends in time, cost nothing but at most a
// warning.
func TestSlowHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startRunningAdapter(t, 300*time.Second)
		for range 20 {
			time.Sleep(7 * time.Second)
			restore := w.s.Fail("/api/v1/agents", adaptertest.Hang, -1)
			time.Sleep(50 * time.Second)
			restore()
			time.Sleep(10 * time.Second)
		}
		if told := w.log.told(); slices.ContainsFunc(told, func(s string) bool { return s[:4] == "dead" }) {
			t.Errorf("%v", told)
		}
		if v := w.s.AgentView(""); len(v.Registrations) != 1 {
			t.Errorf("%d registrations", len(v.Registrations))
		}
		w.end(t)
	})
}

// The deadline that a process keeps on its own follows the heartbeats.
func TestProcessIsToldOfHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		start := time.Now()
		w := startRunningAdapter(t, time.Hour, func(c *Config) {
			play := c.Launcher
			c.Launcher = deadlineLauncher{play, func(at time.Duration) { told.Store(int64(at)) }}
		})
		for range 5 {
			time.Sleep(time.Minute)
			left := time.Duration(told.Load()) - time.Since(start)
			if left > 60*time.Second-killMargin(60*time.Second) || left < 50*time.Second {
				t.Errorf("the process has %s", left)
			}
		}
		w.end(t)
	})
}

// deadlineLauncher is a launcher whose processes take deadlines.
type deadlineLauncher struct {
	process.Launcher
	told func(time.Duration)
}

func (l deadlineLauncher) Launch(ctx context.Context, job process.Job) (process.Process, error) {
	l.told(job.KillAt)
	p, err := l.Launcher.Launch(ctx, job)
	return deadlineProcess{p, l.told}, err
}

type deadlineProcess struct {
	process.Process
	told func(time.Duration)
}

func (p deadlineProcess) KillAt(at time.Duration) { p.told(at) }

// A suspend beyond dead_after ends the agents before anything else; a shorter
// one costs nothing, not even a warning.
func TestSuspendOfARegisteredAdapter(t *testing.T) {
	for asleep, dies := range map[time.Duration]bool{54500 * time.Millisecond: false, 2 * time.Minute: true} {
		synctest.Test(t, func(t *testing.T) {
			var suspend atomic.Int64
			start := time.Now()
			w := startRunningAdapter(t, 300*time.Second, func(c *Config) {
				c.clock = func() time.Duration { return time.Since(start) + time.Duration(suspend.Load()) }
				// so that it wakes between warning and kill
				c.Health.Interval = 2 * time.Second
				// later than the renewal's
				c.HTTP = &http.Client{Transport: lateAnswers{c.HTTP.Transport, 100 * time.Millisecond}}
			})
			time.Sleep(time.Minute + 500*time.Millisecond)
			suspend.Store(int64(asleep))
			w.s.AdvanceClock(asleep)
			time.Sleep(30 * time.Second)
			if told := w.log.told(); dies != (len(told) > 0) {
				t.Errorf("after %s: %v", asleep, told)
			}
			if v := w.s.AgentView(""); dies != (len(v.Registrations) > 1) {
				t.Errorf("after %s: %d registrations", asleep, len(v.Registrations))
			}
			w.end(t)
		})
	}
}

// A server that is away for an hour finds the adapter at its door.
func TestServerAwayForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startRunningAdapter(t, 300*time.Second)
		before := len(w.s.Calls(""))
		restore := w.s.Fail("/", adaptertest.Unavailable, -1)
		time.Sleep(time.Hour)
		if n := w.liveAgents(); n != 0 {
			t.Errorf("%d agents run", n)
		}
		if n := len(w.s.Calls("")) - before; n > 1500 {
			t.Errorf("%d calls in an hour", n)
		}
		restore()
		w.await(t, "the next registration", registered(2))
		w.await(t, "the task again", reportsTasks(w.id))
		w.end(t)
	})
}
