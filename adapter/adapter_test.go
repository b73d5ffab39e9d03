package adapter

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/adapter/workspace"
)

func withTimeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func inReview(v adaptertest.View) bool { return v.State == picket.TaskReview }

// runAsync starts Run and answers how to wait for its end.
func runAsync(ctx context.Context, a *Adapter) func() error {
	end := make(chan error, 1)
	go func() { end <- a.Run(ctx) }()
	return func() error { return <-end }
}

func TestRunWorksAQueueOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var live, most atomic.Int32
		a, s := newScriptedAdapter(t, func(p *scriptedProcess) {
			n := live.Add(1)
			most.Store(max(most.Load(), n))
			time.Sleep(time.Minute)
			live.Add(-1)
			p.endWith(process.Exited{})
		}, func(c *Config) { c.Max = 3 })
		var ids []string
		for range 10 {
			ids = append(ids, s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete}))
		}
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, a)
		for _, id := range ids {
			if _, err := s.Await(withTimeout(t, time.Hour), id, inReview); err != nil {
				t.Fatal(err)
			}
		}
		drain()
		if err := ended(); err != nil {
			t.Fatal(err)
		}
		if most.Load() != 3 {
			t.Errorf("%d at a time, want 3", most.Load())
		}
	})
}

// Draining takes nothing new and lets what runs finish.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, drain := context.WithCancel(t.Context())
		a, s := newScriptedAdapter(t, func(p *scriptedProcess) {
			drain()
			runFor(time.Hour)(p)
		}, func(c *Config) { c.Health.DrainTimeout = 2 * time.Hour })
		first, second := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete}), s.Queue(adaptertest.Task{})
		if err := runAsync(ctx, a)(); err != nil {
			t.Fatal(err)
		}
		if v := s.View(first); v.State != picket.TaskReview {
			t.Errorf("the running task is %s", v.State)
		}
		if v := s.View(second); v.State != picket.TaskQueued {
			t.Errorf("the waiting task is %s", v.State)
		}
	})
}

// ReleaseNow kills and gives back, also while draining, and counts no failure.
func TestReleaseNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, drain := context.WithCancel(t.Context())
		var a *Adapter
		a, s := newScriptedAdapter(t, func(p *scriptedProcess) {
			drain()
			time.Sleep(time.Second)
			a.ReleaseNow()
		})
		id := s.Queue(adaptertest.Task{})
		start := time.Now()
		if err := runAsync(ctx, a)(); err != nil {
			t.Fatal(err)
		}
		v := s.View(id)
		if v.State != picket.TaskQueued || v.Runs[0].Released == nil ||
			v.Runs[0].Released.Class != picket.ExitReleased {
			t.Errorf("%+v", v)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// ReleaseNow ends in bounded time although nobody takes the release.
func TestReleaseNowInAnOutage(t *testing.T) {
	for _, kind := range []adaptertest.Fault{adaptertest.Hang, adaptertest.Unavailable, adaptertest.DropRequest} {
		synctest.Test(t, func(t *testing.T) {
			a, s := newScriptedAdapter(t, runForever)
			id := s.Queue(adaptertest.Task{})
			ended := runAsync(t.Context(), a)
			s.AwaitCalls(withTimeout(t, time.Minute), "/v1/run/events", 1)
			s.Fail("/v1/", kind, -1)
			start := time.Now()
			a.ReleaseNow()
			if err := ended(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 25*time.Second || s.View(id).Runs[0].Released != nil {
				t.Errorf("trouble %d: took %s", kind, took)
			}
		})
	}
}

// A lost reply to an acquire loses no lease: the same leases come again.
func TestLostReplyOfAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var drawn atomic.Int64 // heartbeats draw as well
		a, s := newScriptedAdapter(t, runFor(time.Second), func(c *Config) {
			// the longest, then none: a repeat is the same request all the same
			c.jitter = func(d time.Duration) time.Duration {
				return time.Duration(drawn.Add(1)%2) * (d - 1)
			}
		})
		id := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete})
		s.Fail("/api/v1/leases", adaptertest.DropReply, 2)
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, a)
		v, err := s.Await(withTimeout(t, time.Minute), id, inReview)
		if err != nil || v.Token != 1 {
			t.Errorf("token %d: %v", v.Token, err)
		}
		drain()
		ended()
	})
}

// A server that is away, or paused, is asked again, ever more seldom, and a
// running lease is not touched by it.
func TestOrchestratorAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runFor(time.Hour), func(c *Config) { c.Max = 2 })
		restore := s.Fail("/api/v1/leases", adaptertest.Unavailable, -1)
		id := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete})
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, a)
		time.Sleep(10 * time.Minute)
		if n := len(s.Calls("/api/v1/leases")); n < 30 || n > 150 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		restore()
		s.AwaitCalls(withTimeout(t, time.Minute), "/v1/run/events", 1)
		s.Fail("/api/v1/leases", adaptertest.Unavailable, -1)
		if _, err := s.Await(withTimeout(t, 2*time.Hour), id, inReview); err != nil {
			t.Error(err)
		}
		drain()
		ended()
	})
}

// A server that refuses permanently ends Run, after what runs has finished.
func TestRevokedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newScriptedAdapter(t, runForever, func(c *Config) { c.Key = "pkk_wrong" })
		if err := a.Run(t.Context()); !errors.Is(err, picket.CodeUnauthenticated) {
			t.Fatal(err)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{BaseURL: "http://127.0.0.1:7070", Command: []string{"true"}, StateDir: t.TempDir()}
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   error
	}{
		{"good", func(*Config) {}, nil},
		{"no URL", func(c *Config) { c.BaseURL = "" }, picket.CodeValidation},
		{"no command", func(c *Config) { c.Command = nil }, picket.CodeValidation},
		{"bad agent", func(c *Config) { c.AgentID = "a b" }, picket.CodeValidation},
		{"bad role", func(c *Config) { c.Role = "{" }, picket.CodeValidation},
		{"too many", func(c *Config) { c.Max = 101 }, picket.CodeValidation},
		{"waits too long", func(c *Config) { c.Wait = time.Minute }, picket.CodeValidation},
		{"passes a key on", func(c *Config) { c.Env = []string{"PICKET_API_KEY"} }, picket.CodeValidation},
		{"unknown workspace", func(c *Config) { c.Workspace = "elsewhere" }, picket.CodeValidation},
		{"a worktree of nothing", func(c *Config) { c.Workspace, c.Dir = workspace.Worktree, t.TempDir() },
			picket.CodeValidation},
		{"unknown way to resume", func(c *Config) { c.Resume = "somehow" }, picket.CodeValidation},
		{"kept for less than nothing", func(c *Config) { c.KeepWorkspaces = -time.Second }, picket.CodeValidation},
		{"one directory for all", func(c *Config) { c.WorkspaceRoot = c.StateDir }, picket.CodeValidation},
	} {
		cfg := good
		tt.change(&cfg)
		a, err := New(cfg)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err == nil && picket.CheckID("agent", "agent", a.AgentID()) != nil {
			t.Errorf("agent id is %s", a.AgentID())
		}
	}
}
