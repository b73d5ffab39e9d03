package api_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

// Whatever trouble the store is in, a request over HTTP is answered 503 with a remedy and
// Retry-After. The server reports that it is not ready, and recovers automatically afterwards.
func TestStoreTroubleReal(t *testing.T) {
	for _, trouble := range rig.Outages {
		t.Run(trouble.Name, func(t *testing.T) {
			t.Parallel() // most of the time is waiting
			n := rig.StartOutageNode(t)
			p := newFixture(t, n.Store(), api.Config{})
			began := time.Now()
			p.want(201, "POST", "/api/v1/tasks", "operator", `{"title":"before"}`)
			end := sync.OnceFunc(trouble.Begin(t, n))
			defer end()
			code := picket.CodeUnavailable
			if trouble.MemoryFull {
				code = picket.CodeStoreFull
				p.want(200, "GET", "/api/v1/tasks", "operator", "") // reading goes on
			}
			var group sync.WaitGroup // at once: some take their time to give up
			if !trouble.MemoryFull {
				group.Go(func() { p.wantUnavailable(code, "GET", "/api/v1/tasks", "") })
			}
			group.Go(func() {
				p.wantUnavailable(code, "POST", "/api/v1/tasks", `{"title":"during"}`, "Idempotency-Key", "once")
			})
			group.Go(func() { p.wantUnavailable(code, "POST", "/api/v1/leases", `{"agentId":"a1"}`) })
			group.Wait()
			p.want(200, "GET", "/healthz", "", "")
			p.want(200, "GET", "/metrics", "", "")
			end()
			p.wantWorking()
			t.Logf("%s: %.1f s", trouble.Name, time.Since(began).Seconds())
		})
	}
}

// wantUnavailable expects 503 and all that a client needs to know.
func (p *fixture) wantUnavailable(code picket.Code, method, path, body string, headers ...string) {
	p.t.Helper()
	a, err := p.send(p.t.Context(), method, path, p.keys["operator"], body, headers...)
	if err != nil || a.status != 503 || a.text("code") != string(code) || a.text("remedy") == "" ||
		a.text("message") == "" {
		p.t.Errorf("%s %s: %v, %d %s, want 503 %s with a remedy", method, path, err, a.status, a.raw, code)
	}
	if code == picket.CodeUnavailable && a.header.Get("Retry-After") == "" {
		p.t.Errorf("%s %s does not say when to come back", method, path)
	}
}

// wantWorking waits until the server works again, and repeats what was refused: it
// has happened once.
func (p *fixture) wantWorking() {
	p.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		a := p.call("POST", "/api/v1/tasks", "operator", `{"title":"during"}`, "Idempotency-Key", "once")
		if a.status == 201 || a.status == 200 {
			break
		}
		if a.status != 503 || time.Now().After(deadline) {
			p.t.Fatalf("after the trouble: %d %s", a.status, a.raw)
		}
	}
	if n := strings.Count(p.want(200, "GET", "/api/v1/tasks", "operator", "").raw, `"title":"during"`); n != 1 {
		p.t.Errorf("the repeated task is there %d times", n)
	}
}
