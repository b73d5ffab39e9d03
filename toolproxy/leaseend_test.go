package toolproxy_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/toolproxy"
)

// A lease that does not hold reaches no server, and no money moves, whatever
// is wrong with it.
func TestInvalidLeasesReachNothing(t *testing.T) {
	u := serveRecording(t, func(http.ResponseWriter, *http.Request) {})
	ways := 0
	for _, r := range matrix {
		t.Run(strings.ReplaceAll(r.name, " ", "-"), func(t *testing.T) {
			h, leave := newEngineEnv(t, rig.Real(t))
			defer leave()
			m := h.openPriced(t, func(c *toolproxy.Config) { c.Parts = externalTools(u.at()) })
			defer m.proxy.Close()
			bearer := r.make(h)
			want := r.fenced
			if r.list != "" {
				want = r.list
			}
			before := h.state()
			for _, name := range []string{"http_request", "buy", "look"} {
				a := m.undescribed().call(t,
					request{
						path:   "/v1/tools/" + name,
						bearer: bearer,
						body:   `{"url":"` + u.URL + `","method":"POST","body":"x"}`,
					})
				if a.code() != string(want) || a.status != want.Status() {
					t.Errorf("%s: %d %s, want %s", name, a.status, a.raw, want)
				}
				ways++
			}
			for key, was := range before {
				if now := h.state()[key]; (strings.HasPrefix(key, "env:") || strings.HasPrefix(key, "hold") ||
					key == "ledger") && now != was {
					t.Errorf("%s has changed from %s to %s", key, was, now)
				}
			}
			if n := m.source.calls.Load(); n != 0 {
				t.Errorf("%d calls were made", n)
			}
		})
	}
	if u.count() != 0 {
		t.Errorf("the server was reached %d times", u.count())
	}
	t.Logf("%d calls with %d credentials that do not hold", ways, len(matrix))
}

// The end of a lease cuts its external calls off, so that the next holder does
// not wait for their deadline; the money of the call is not given back.
func TestTheNextLeaseDoesNotWaitForTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onVirtualStore(t, func(h *engineEnv) {
			m := h.openPriced(t, nil)
			defer m.proxy.Close()
			task := m.submit()
			l := m.lease()
			inside := make(chan struct{})
			m.source.during = func(ctx context.Context) error { close(inside); <-ctx.Done(); return errNever }
			told := make(chan answer)
			go func() { told <- m.tool(t, l, "buy", `{}`, "k") }()
			<-inside
			began := time.Now()
			_, err := m.Expire(m.ctx, operator, task.TaskID, "test")
			m.ok(err)
			if a := <-told; a.status != 412 || a.code() != "lease_released" || a.body["outcome"] != "uncertain" ||
				time.Since(began) > 5*time.Second {
				t.Errorf("after %s: %d %s", time.Since(began), a.status, a.raw)
			}
			wait := 20
			leases, err := m.Acquire(m.ctx, operator, picket.AcquireRequest{AgentID: "agent-2", WaitSeconds: &wait})
			m.ok(err)
			if len(leases) != 1 || time.Since(began) > 15*time.Second {
				t.Fatalf("%d leases after %s", len(leases), time.Since(began))
			}
			m.expectSettled(t, task.TaskID, 30*cent)
			// Nobody knows what it came to, so that it is not made again on its own.
			m.source.during = nil
			if a := m.tool(t, leases[0], "buy", `{}`, "k"); a.status != 409 || a.code() != "state_conflict" ||
				m.source.calls.Load() != 1 {
				t.Errorf("with the same key: %d %s, %d calls", a.status, a.raw, m.source.calls.Load())
			}
		})
	})
}

// Shortly before the end of a lease nothing outside is begun any more; what
// nobody waits for still is.
func TestNothingOutsideIsBegunAtTheEnd(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		m := h.openPriced(t, nil)
		defer m.proxy.Close()
		m.submit()
		l := m.lease()
		m.advance(275 * time.Second) // of 300
		if a := m.tool(t, l, "buy", `{}`, ""); a.status != 409 || a.code() != "lease_ending" || a.remedy() == "" {
			t.Errorf("%d %s", a.status, a.raw)
		}
		if a := m.tool(t, l, "look", `{}`, ""); a.status != 200 {
			t.Errorf("%d %s", a.status, a.raw)
		}
		if n := m.source.calls.Load(); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}
