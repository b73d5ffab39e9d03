package adapter

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
)

// controlCalls are the calls of the control plane, in short.
func controlCalls(s *adaptertest.Server) (got []string) {
	for _, c := range s.Calls("") {
		if strings.HasPrefix(c.Path, "/api/v1/agents") || c.Path == "/api/v1/leases" {
			verb := c.Method + " " + strings.TrimPrefix(c.Path, "/api/v1/")
			if strings.HasPrefix(verb, "POST agents/") {
				verb = "heartbeat"
			}
			got = append(got, strings.Split(verb, "/")[0])
		}
	}
	return got
}

func registered(n int) func(adaptertest.AgentView) bool {
	return func(v adaptertest.AgentView) bool { return len(v.Registrations) >= n }
}

// reportsTasks holds when the last heartbeat reported these tasks.
func reportsTasks(tasks ...string) func(adaptertest.AgentView) bool {
	return func(v adaptertest.AgentView) bool {
		n := len(v.Heartbeats)
		return n > 0 && slices.Equal(v.Heartbeats[n-1].TasksInProgress, tasks) &&
			*v.Heartbeats[n-1].CurrentLoad == len(tasks)
	}
}

// An adapter registers before it asks, beats in time, says what it runs, drains
// and leaves.
func TestRegistrationLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runFor(10*time.Minute), func(c *Config) {
			c.Name, c.Role, c.Max, c.Metadata = "Nell", "coder", 2, map[string]any{"team": "a"}
			c.Health.DrainTimeout = time.Hour
		})
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, a)
		v, err := s.AwaitAgent(withTimeout(t, time.Minute), "", registered(1))
		if err != nil {
			t.Fatal(err)
		}
		var about map[string]any
		if err := json.Unmarshal(v.Record.Metadata, &about); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"version", "platform", "team", "containment", "instance"} {
			if about[key] == nil || about[key] == "" {
				t.Errorf("metadata %s has no %s", v.Record.Metadata, key)
			}
		}
		if r := v.Record; r.AgentID != a.AgentID() || r.Name != "Nell" || r.RoleID != "coder" ||
			*r.Capacity.MaxConcurrentTasks != 2 || *r.DrainTimeoutSeconds != 3600 {
			t.Errorf("registered as %+v", r)
		}
		id := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete})
		if _, err := s.AwaitAgent(withTimeout(t, 5*time.Minute), "", reportsTasks(id)); err != nil {
			t.Fatal(err)
		}
		drain()
		if err := ended(); err != nil {
			t.Fatal(err)
		}
		v = s.AgentView("")
		if state := s.View(id).State; state != picket.TaskReview || v.Record.Status != picket.AgentDeregistered {
			t.Errorf("the task is %s, the agent %s", state, v.Record.Status)
		}
		if want := []picket.LifecycleReason{picket.ReasonDrainInitiated,
			picket.ReasonDrainCompleted}; !slices.Equal(v.Transitions, want) {
			t.Errorf("it moved by %v, want %v", v.Transitions, want)
		}
		calls := controlCalls(s)
		if !slices.Equal(calls[:2], []string{"POST agents", "POST leases"}) {
			t.Errorf("it began with %v", calls)
		}
		for i, hb := range v.Heartbeats {
			before := v.Registrations[0].At
			if i > 0 {
				before = v.Heartbeats[i-1].At
			}
			if gap := hb.At.Sub(before); gap > 30*time.Second ||
				gap < 27*time.Second && hb.Status == picket.AgentActive {
				t.Errorf("heartbeat %d came after %s", i, gap)
			}
			if hb.Incarnation != 1 {
				t.Errorf("heartbeat %d is of incarnation %d", i, hb.Incarnation)
			}
		}
		if n := len(v.Heartbeats); n < 15 || v.Heartbeats[n-1].Status != picket.AgentDraining {
			t.Errorf("%d heartbeats, the last one %+v", n, v.Heartbeats[n-1])
		}
		for _, asked := range v.Acquires {
			if asked.Incarnation != 1 {
				t.Errorf("asked under incarnation %d", asked.Incarnation)
			}
		}
	})
}

// Without work, a drain is told and the record leaves at once.
func TestIdleAdapterDeregisters(t *testing.T) {
	for _, kind := range []adaptertest.Fault{0, adaptertest.DropReply, adaptertest.DropRequest} {
		synctest.Test(t, func(t *testing.T) {
			a, s := newScriptedAdapter(t, runForever)
			ctx, drain := context.WithCancel(t.Context())
			ended := runAsync(ctx, a)
			if err := s.AwaitCalls(withTimeout(t, time.Minute), "/api/v1/leases", 1); err != nil {
				t.Fatal(err)
			}
			if kind != 0 {
				s.Fail("/api/v1/agents/", kind, 1) // the heartbeat
			}
			start := time.Now()
			drain()
			if err := ended(); err != nil {
				t.Fatal(err)
			}
			v := s.AgentView("")
			if v.Record.Status != picket.AgentDeregistered || time.Since(start) > deregisterTimeout {
				t.Errorf("trouble %d: the agent is %s after %s", kind, v.Record.Status, time.Since(start))
			}
			if v.Transitions[0] != picket.ReasonDrainInitiated {
				t.Errorf("trouble %d: it moved by %v", kind, v.Transitions)
			}
		})
	}
}

// A server that is away does not keep an adapter without work.
func TestDeregisterWhileTheServerIsAway(t *testing.T) {
	for _, kind := range []adaptertest.Fault{adaptertest.Hang, adaptertest.Unavailable, adaptertest.DropRequest} {
		synctest.Test(t, func(t *testing.T) {
			a, s := newScriptedAdapter(t, runForever)
			ctx, drain := context.WithCancel(t.Context())
			ended := runAsync(ctx, a)
			if err := s.AwaitCalls(withTimeout(t, time.Minute), "/api/v1/leases", 1); err != nil {
				t.Fatal(err)
			}
			s.Fail("/", kind, -1)
			start := time.Now()
			drain()
			if err := ended(); err != nil || time.Since(start) > 2*deregisterTimeout {
				t.Errorf("trouble %d: %v after %s", kind, err, time.Since(start))
			}
		})
	}
}

// A registration whose reply is lost is the same one, and counts from when it
// was sent first.
func TestLostReplyOfARegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runForever, func(c *Config) { c.PinnedOnly = true })
		s.Fail("/api/v1/agents", adaptertest.DropReply, 5)
		start := time.Now()
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, a)
		if _, err := s.AwaitAgent(withTimeout(t, 2*time.Minute), "",
			func(v adaptertest.AgentView) bool { return len(v.Heartbeats) > 0 }); err != nil {
			t.Fatal(err)
		}
		v := s.AgentView("")
		if len(v.Registrations) != 1 || v.Record.Incarnation != 1 || v.Heartbeats[0].At.Sub(start) > 30*time.Second {
			t.Errorf("%d registrations, the first heartbeat after %s", len(v.Registrations),
				v.Heartbeats[0].At.Sub(start))
		}
		drain()
		if err := ended(); err != nil {
			t.Fatal(err)
		}
	})
}

// A server without a registry is worked for as before.
func TestServerWithoutARegistry(t *testing.T) {
	for _, unregistered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, s := newScriptedAdapter(t, runFor(time.Hour), func(c *Config) { c.Unregistered = unregistered })
			s.SupportRegistry(unregistered)
			id := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete})
			ctx, drain := context.WithCancel(t.Context())
			ended := runAsync(ctx, a)
			if _, err := s.Await(withTimeout(t, 2*time.Hour), id, inReview); err != nil {
				t.Fatal(err)
			}
			drain()
			if err := ended(); err != nil {
				t.Fatal(err)
			}
			calls := controlCalls(s)
			if unregistered && slices.Contains(calls, "POST agents") || slices.Contains(calls, "heartbeat") {
				t.Errorf("it called %v", calls)
			}
		})
	}
}

// A registration that is refused permanently ends Run.
func TestRegistrationRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runForever, func(c *Config) { c.Key = "pkk_wrong" })
		if err := a.Run(t.Context()); !errors.Is(err, picket.CodeUnauthenticated) {
			t.Fatal(err)
		}
		if n := len(s.Calls("/api/v1/leases")); n != 0 {
			t.Errorf("asked %d times", n)
		}
	})
}
