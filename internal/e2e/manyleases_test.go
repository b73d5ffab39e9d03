//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/picket-dev/picket"
)

// An agent that holds more leases than one step ends goes silent and writes
// under all of them without a pause: its death makes them void at once, however
// long the book-keeping takes, and each task goes to the next worker.
func TestDeathVoidsManyLeases(t *testing.T) {
	const held = 230
	w := newTestEnv(t)
	w.store()
	w.up("--redis", w.storeURL(), "--log-level", "warn")
	for i := range held {
		s := spec(fmt.Sprint("one of many ", i), 60)
		s.Role, s.Review = "many", picket.ReviewByNone
		backoff := 0
		s.Retry = &picket.Retry{BackoffSeconds: &backoff}
		w.submit(s)
	}
	holder := w.register("many")
	holder.live()
	leases := holder.takeAll("many", held)
	holder.silence()
	var running sync.WaitGroup
	var admitted, refused atomic.Int64
	for writer := range 4 {
		running.Go(func() {
			// From the end: those are ended last.
			for n := writer; ; n += 4 {
				l := leases[held-1-n%held]
				got, err := try(l.LeaseToken.Reveal(), http.MethodPost, l.ProxyURL+"/v1/tools/report_progress",
					map[string]string{"summary": fmt.Sprint(n)})
				switch {
				case err == nil && got.status == http.StatusOK:
					admitted.Add(1)
				case err == nil && got.status == http.StatusPreconditionFailed:
					if refused.Add(1) > 400 {
						return
					}
				default:
					t.Errorf("a write: %d %v %s", got.status, err, got.body)
					return
				}
			}
		})
	}
	running.Wait()
	next := &rawAgent{testEnv: w, id: "next"}
	for _, l := range next.takeAll("many", held) {
		if l.FencingToken != 2 {
			t.Errorf("%s is leased again under %d", l.TaskID, l.FencingToken)
		}
	}
	written, ended, dead := int64(0), map[string]int64{}, int64(0)
	for _, ev := range w.allEvents() {
		switch {
		case ev.Type == picket.EventAgentLifecycle && ev.NewStatus == picket.AgentDead:
			dead = ev.Seq
		case ev.Type == picket.EventTaskProgress:
			if written++; dead != 0 {
				t.Errorf("event %d is a write under token %d, the death is event %d", ev.Seq, ev.FencingToken, dead)
			}
		case ev.Type == picket.EventLeaseExpired:
			if ended[ev.TaskID]++; dead == 0 || ev.Reason != string(picket.ExitAgentDead) || ended[ev.TaskID] > 1 {
				t.Errorf("event %d ends the lease on %s for %s, the death is event %d", ev.Seq, ev.TaskID, ev.Reason,
					dead)
			}
		}
	}
	if len(ended) != held || written != admitted.Load() {
		t.Errorf("%d leases ended, %d writes were admitted and %d are in the log", len(ended), admitted.Load(), written)
	}
	t.Logf("%d leases of one agent that died: %d writes admitted before, %d refused after", held, admitted.Load(),
		refused.Load())
}

// takeAll takes n leases of a role.
func (m *rawAgent) takeAll(role string, n int) (all []picket.Lease) {
	m.t.Helper()
	m.until(fmt.Sprintf("%s has %d leases", m.id, n), func() bool {
		leases, got, err := m.acquireMost(role, n-len(all))
		if err != nil || got.status != http.StatusOK {
			m.t.Fatalf("%s has %d leases: %d %v %s", m.id, len(all), got.status, err, got.body)
		}
		all = append(all, leases...)
		return len(all) == n
	})
	return all
}
