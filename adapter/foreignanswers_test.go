package adapter

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
)

// interposedTransport answers in the server's place, where it has an answer.
type interposedTransport struct {
	http.RoundTripper
	answer func(*http.Request) *http.Response
}

func (b interposedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if res := b.answer(r); res != nil {
		res.Request = r
		return res, nil
	}
	return b.RoundTripper.RoundTrip(r)
}

// interpose puts answers between an adapter and its server.
func interpose(answer func(*http.Request) *http.Response) func(*Config) {
	return func(c *Config) { c.HTTP = &http.Client{Transport: interposedTransport{c.HTTP.Transport, answer}} }
}

func response(status int, contentType, body string) *http.Response {
	return &http.Response{
		StatusCode: status,
		Header:     http.Header{"Content-Type": {contentType}},
		Body:       io.NopCloser(strings.NewReader(body)),
	}
}

func refusal(status int, code picket.Code) *http.Response {
	return response(status, "application/problem+json", `{"code":"`+string(code)+`","message":"no"}`)
}

// What a load balancer says of itself is not the registry's word: nothing ends,
// and nothing is registered twice.
func TestAnswersOfOthersEndNothing(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusMethodNotAllowed} {
		synctest.Test(t, func(t *testing.T) {
			var left atomic.Int32
			a, s := newScriptedAdapter(t, runFor(10*time.Minute), interpose(func(r *http.Request) *http.Response {
				if strings.HasSuffix(r.URL.Path, "/heartbeat") && left.Add(-1) >= 0 {
					return response(status, "text/html", "default backend")
				}
				return nil
			}))
			id := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete})
			ctx, drain := context.WithCancel(t.Context())
			ended := runAsync(ctx, a)
			if _, err := s.AwaitAgent(withTimeout(t, time.Minute), "", reportsTasks(id)); err != nil {
				t.Fatal(err)
			}
			left.Store(3)
			v, err := s.Await(withTimeout(t, time.Hour), id, inReview)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(s.AgentView("").Registrations); n != 1 || len(v.Runs) != 1 || left.Load() >= 0 {
				t.Errorf("status %d: %d registrations, %d runs", status, n, len(v.Runs))
			}
			drain()
			if err := ended(); err != nil {
				t.Error(err)
			}
		})
	}
}

// An id that another key has registered is not waited for: it never becomes free.
func TestAgentIDOfAnotherKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runForever, func(c *Config) { c.AgentID = "agent_taken" },
			interpose(func(r *http.Request) *http.Response {
				if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/api/v1/agents/") {
					return refusal(http.StatusForbidden, picket.CodeForbidden)
				}
				return nil
			}))
		if _, err := newClient(s.URL, adaptertest.Key, s.HTTPClient()).Agents.Register(t.Context(),
			picket.Registration{AgentID: "agent_taken"}); err != nil {
			t.Fatal(err)
		}
		err := a.Run(withTimeout(t, time.Hour))
		var e *picket.Error
		if !errors.As(err, &e) || e.Code != picket.CodeForbidden || !strings.Contains(e.Message, "agent_taken") ||
			!strings.Contains(e.Remedy, "agent id of its own") {
			t.Errorf("it ended with %v", err)
		}
	})
}

// A registration whose reply was lost, and that another process has followed
// since, is made again.
func TestRegistrationThatWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		a, s := newScriptedAdapter(t, runForever, interpose(func(r *http.Request) *http.Response {
			if r.Method == http.MethodPost && r.URL.Path == "/api/v1/agents" {
				keys = append(keys, r.Header.Get("Idempotency-Key"))
				if len(keys) == 2 {
					return refusal(http.StatusGone, picket.CodeAgentGone)
				}
			}
			return nil
		}))
		s.Fail("/api/v1/agents", adaptertest.DropReply, 1)
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, a)
		if _, err := s.AwaitAgent(withTimeout(t, time.Minute), "", registered(2)); err != nil {
			t.Fatal(err)
		}
		drain()
		if err := ended(); err != nil {
			t.Error(err)
		}
		if len(keys) < 3 || keys[0] != keys[1] || slices.Contains(keys[2:], keys[0]) {
			t.Errorf("registered with the keys %v", keys)
		}
	})
}

// A deadline is a way to end, too, also before the adapter is registered.
func TestDeadlineBeforeTheRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runForever)
		s.Fail("/api/v1/agents", adaptertest.Unavailable, -1)
		if err := a.Run(withTimeout(t, time.Minute)); err != nil {
			t.Error(err)
		}
	})
}

// A task whose result was handed in is not in progress any more, even if its output is still on its
// way.
func TestHandedInIsNotInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, func(p *scriptedProcess) {
			_, _ = p.job.Stdout.Write([]byte("done\n"))
			time.Sleep(12 * time.Second)
			p.endWith(process.Exited{})
		}, func(c *Config) { c.Health = quickThresholds })
		restore := s.Fail("/v1/run/logs", adaptertest.Hang, -1)
		id := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete})
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, a)
		if _, err := s.Await(withTimeout(t, time.Hour), id, inReview); err != nil {
			t.Fatal(err)
		}
		before := len(s.AgentView("").Heartbeats)
		v, err := s.AwaitAgent(withTimeout(t, time.Minute), "",
			func(v adaptertest.AgentView) bool { return len(v.Heartbeats) >= before+3 })
		if err != nil {
			t.Fatal(err)
		}
		for _, hb := range v.Heartbeats[before+1:] { // one may have been under way
			if len(hb.TasksInProgress) != 0 || *hb.CurrentLoad != 0 {
				t.Errorf("in progress: %v", hb.TasksInProgress)
			}
		}
		restore()
		drain()
		if err := ended(); err != nil {
			t.Error(err)
		}
	})
}
