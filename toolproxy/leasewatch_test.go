package toolproxy_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
)

// ends are the ways a watched lease changes, and what the watch says.
var ends = []struct {
	name  string
	do    func(h *engineEnv, l picket.Lease)
	state string
}{
	{"cancel", func(h *engineEnv, l picket.Lease) { _, err := h.Cancel(h.ctx, operator, l.TaskID, "test"); h.ok(err) },
		"cancelled"},
	{"complete", func(h *engineEnv, l picket.Lease) {
		_, err := h.Complete(h.ctx, h.held(l), picket.Completion{Output: picket.RawJSON(`1`)})
		h.ok(err)
	}, "completed"},
	{"help", func(h *engineEnv, l picket.Lease) {
		_, err := h.RequestHelp(h.ctx, h.held(l), picket.HelpRequest{Question: "?"})
		h.ok(err)
	}, "handoff"},
	{"fail", func(h *engineEnv, l picket.Lease) { _, err := h.Fail(h.ctx, h.held(l), "no", true); h.ok(err) }, "lost"},
	{"operator", func(h *engineEnv, l picket.Lease) {
		_, err := h.Expire(h.ctx, operator, l.TaskID, "test")
		h.ok(err)
	},
		"lost"},
	{"expiry", func(h *engineEnv, _ picket.Lease) { h.expire() }, "lost"},
	{"stop button", func(h *engineEnv, _ picket.Lease) {
		_, err := h.Pause(h.ctx, operator, true, "test")
		h.ok(err)
		_, err = h.RunChores(h.ctx, 100)
		h.ok(err)
	}, "lost"},
}

// atOnce leaves room for commands that wait a moment to share a round trip.
const atOnce = 5 * time.Millisecond

func (h *engineEnv) watchOf(l picket.Lease, query string) answer {
	h.t.Helper()
	return h.call(h.t, request{
		method: "GET",
		path:   "/v1/lease/watch" + query,
		bearer: l.LeaseToken.Reveal(),
		fence:  show(l.FencingToken),
	})
}

func TestAWatchWakesAtOnce(t *testing.T) {
	for _, end := range ends {
		t.Run(end.name, func(t *testing.T) {
			onBothStores(t, func(t *testing.T, h *engineEnv) {
				l := h.submitAndLease()
				answers := make(chan answer, 1)
				began := time.Now()
				go func() { answers <- h.watchOf(l, "?waitSeconds=50") }()
				if h.virtual {
					synctest.Wait() // it waits now; on the real store it may come too late, which must not matter
				}
				end.do(h, l)
				a := <-answers
				h.expectAnswer(a, 200, `"state":"`+end.state+`"`, `"commands":[`)
				if h.virtual && time.Since(began) > atOnce {
					t.Errorf("it woke after %v", time.Since(began))
				}
				h.expectAnswer(h.watchOf(l, ""), 200, `"state":"`+end.state+`"`) // an ended lease answers at once
				if h.virtual && time.Since(began) > 2*atOnce {
					t.Errorf("an ended lease answered after %v", time.Since(began))
				}
			})
		})
	}
}

func TestAWatchWaitsNoLongerThanAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onVirtualStore(t, func(h *engineEnv) {
			l := h.submitAndLease()
			for query, wait := range map[string]time.Duration{
				"?waitSeconds=0": 0,
				"?waitSeconds=7": 7 * time.Second,
				"":               50 * time.Second,
			} {
				_, err := h.Renew(h.ctx, h.held(l))
				h.ok(err)
				began := time.Now()
				a := h.watchOf(l, query)
				if a.status != 204 || a.raw != "" || time.Since(began) < wait || time.Since(began) > wait+atOnce {
					t.Errorf("%q: %d %q after %v", query, a.status, a.raw, time.Since(began))
				}
			}
		})
	})
}
