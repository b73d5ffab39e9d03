package adapter

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
)

// fullRegistry refuses every registration because of a quota.
type fullRegistry struct{ http.RoundTripper }

func (f fullRegistry) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost || r.URL.Path != "/api/v1/agents" {
		return f.RoundTripper.RoundTrip(r)
	}
	return &http.Response{
		StatusCode: http.StatusTooManyRequests,
		Header:     http.Header{"Content-Type": {"application/problem+json"}},
		Body:       io.NopCloser(strings.NewReader(`{"code":"quota_exceeded","status":429,"detail":"the registry is full"}`)),
		Request:    r,
	}, nil
}

// An attached adapter registers in the role attached, and its agents do not have that name. If a
// quota refuses the registration, it works without one; another adapter ends.
func TestAnAttachedAdapter(t *testing.T) {
	for _, full := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, s := newScriptedAdapter(t, runFor(time.Minute), func(c *Config) {
				c.Attached, c.PinnedOnly, c.AgentID = true, true, "run-1"
				if full {
					c.HTTP = &http.Client{Transport: fullRegistry{c.HTTP.Transport}}
				}
			})
			ctx, drain := context.WithCancel(t.Context())
			ended := runAsync(ctx, a)
			id := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete})
			v, err := s.Await(withTimeout(t, 5*time.Minute), id,
				func(v adaptertest.View) bool { return v.State == picket.TaskReview })
			if err != nil {
				t.Fatal(err)
			}
			drain()
			if err := ended(); err != nil {
				t.Error(err)
			}
			record := s.AgentView("run-1")
			if full && len(record.Registrations) != 0 || !full && (record.Record.RoleID != picket.RoleAttached ||
				record.Record.Status != picket.AgentDeregistered) {
				t.Errorf("full %v: registered as %+v", full, record.Record)
			}
			for _, e := range v.Runs[0].Events {
				if e.Agent == picket.RoleAttached {
					t.Errorf("an event calls the agent attached: %+v", e)
				}
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		a, _ := newScriptedAdapter(t, runForever, func(c *Config) {
			c.HTTP = &http.Client{Transport: fullRegistry{c.HTTP.Transport}}
		})
		if err := a.Run(t.Context()); picket.CodeOf(err) != picket.CodeQuota {
			t.Errorf("a resident adapter ended with %v", err)
		}
	})
}
