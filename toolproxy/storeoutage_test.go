package toolproxy_test

import (
	"syscall"
	"testing"

	"github.com/picket-dev/picket/internal/rig"
)

// A store that hangs leaves the outcome open: the caller is told to repeat,
// and the repeat with the same key has the effect once.
func TestTheStoreHangs(t *testing.T) {
	store, process := rig.RealServer(t)
	h, leave := newEngineEnv(t, store)
	defer leave()
	l := h.submitAndLease()
	report := request{
		path:   "/v1/tools/report_progress",
		body:   `{"summary":"s"}`,
		bearer: l.LeaseToken.Reveal(),
		header: map[string]string{"Idempotency-Key": "once"},
	}

	h.ok(process.Signal(syscall.SIGSTOP))
	h.checkAway(h.call(t, report))
	h.ok(process.Signal(syscall.SIGCONT))
	h.expectAnswer(h.call(t, report), 200, `"seq":1`)
	reports, err := h.Reports(h.ctx, l.TaskID)
	h.ok(err)
	if len(reports) != 1 {
		t.Errorf("one report was sent twice, %d are stored", len(reports))
	}
	if recorded := h.RefusedWrites(); len(recorded) != 0 {
		t.Errorf("an absent store counts as a refused write: %v", recorded)
	}
}

// Every call fails clearly while the state of record is gone; 401 stays 401.
func TestTheStoreIsGone(t *testing.T) {
	store, process := rig.RealServer(t)
	h, leave := newEngineEnv(t, store)
	defer leave()
	l := h.submitAndLease()
	h.ok(process.Kill())
	_, _ = process.Wait()
	for _, call := range goodRequests {
		h.checkAway(h.call(t, call.with(l.LeaseToken.Reveal(), "1")))
	}
	if a := h.call(t, goodRequests["renew"]); a.status != 401 {
		t.Errorf("without a lease token: %d %s", a.status, a.raw)
	}
	if a := h.call(t, request{method: "GET", path: "/v1/tools", bearer: l.LeaseToken.Reveal()}); a.status != 200 {
		t.Errorf("the list of tools needs no store: %d %s", a.status, a.raw)
	}
}

func (h *engineEnv) checkAway(a answer) {
	h.t.Helper()
	if a.status != 503 || a.code() != "orchestrator_unavailable" || a.header.Get("Retry-After") == "" ||
		a.remedy() == "" || a.body["retryable"] != true {
		h.t.Errorf("%d %v %s", a.status, a.header, a.raw)
	}
}
