//go:build linux

package e2e

import (
	"fmt"
	"testing"

	"github.com/picket-dev/picket"
)

// A worker renews all its leases with one request for each round, at a tool proxy that runs apart from the
// orchestrator.
func TestAWorkerRenewsItsLeasesTogether(t *testing.T) {
	const held = 6
	w := newTestEnv(t)
	w.store()
	w.ok("init", "--redis", w.storeURL(), "--secret-file", w.path("secret.key"), "--admin-key-file",
		w.path("data", "picket", "admin.key"))
	w.key = w.secret("admin.key")
	var servers serverSet
	servers.dialAll(w, "0")
	w.url = servers.mainURL
	w.events = followEvents(w)
	for i := range held {
		w.submit(spec(fmt.Sprint("one of several ", i), 10))
	}
	env := w.env
	w.env = append(env[:len(env):len(env)], "PICKET_URL="+servers.mainURL, "PICKET_API_KEY="+w.key)
	worker := w.worker("first", "exec sleep 600", "--max", fmt.Sprint(held))
	together := func() int { return w.countedAt(servers.proxyURL, `route="/v1/leases/renew",status="200"`) }
	w.until("three rounds of renewals", func() bool { return together() >= 3 })
	alone := w.countedAt(servers.proxyURL, `route="/v1/lease/renew",status="200"`)
	if alone > 2*held { // the first renewal of each, which comes before the launch, and some on a busy machine
		t.Errorf("%d renewals of one lease", alone)
	}
	if n := w.counted(`route="/v1/leases/renew"`); n != 0 {
		t.Errorf("%d renewals went to the orchestrator", n)
	}
	for _, ev := range w.allEvents() {
		if ev.Type == picket.EventLeaseExpired || ev.Type == picket.EventLeaseReleased {
			t.Errorf("a lease has ended: %+v", ev)
		}
	}
	t.Logf("%d leases: %d requests for all of them, %d for one", held, together(), alone)
	worker.kill()
}
