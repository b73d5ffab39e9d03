//go:build linux

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// A rack of hosts dies at once: its network is gone, its adapters and shims are
// killed, nothing is given back. Each task goes to another worker as soon as the
// host is known to be dead, long before its lease would have ended. When the
// network comes back, the agents that nobody was left to kill are refused.
func TestHostsDie(t *testing.T) {
	w := newTestEnv(t)
	w.store()
	w.up("--redis", w.storeURL())
	proxy := w.newTCPProxy(w.url)
	_, beside := w.serve("orchestrator", "orchestrator", "", "--proxy-url", proxy.url, "--secret-file",
		filepath.Join(w.data(), "secret.key"))
	control := w.newTCPProxy(beside)
	w.pairFlags, w.pairWindow = briskFlags, time.Minute
	var lanes []*workerPair
	for i := range times(4, 4) {
		l := w.newWorkerPair(fmt.Sprintf("host%d", i), "")
		l.front = control.url
		l.first = l.startWorker("first")
		lanes = append(lanes, l)
	}
	for _, l := range lanes {
		l.writes(1, 1, time.Time{})
		l.front = w.url
		l.awaitRunning()
	}
	control.cut()
	proxy.cut()
	began := time.Now()
	for _, l := range lanes {
		l.signalParts(fenceOnly, syscall.SIGKILL)
	}
	var took []time.Duration
	for _, l := range lanes {
		next := w.leased(l.task.TaskID, l.token+1)
		took = append(took, next.At.Time().Sub(began))
		if next.AgentID != l.name+"-second" {
			t.Errorf("%s: %s has it", l.name, next.AgentID)
		}
		if ended := w.of(l.task.TaskID, picket.EventLeaseExpired); ended.Reason != string(picket.ExitAgentDead) ||
			ended.Seq > next.Seq {
			t.Errorf("%s: event %d ended the lease for %s, %d granted the next", l.name, ended.Seq, ended.Reason,
				next.Seq)
		}
	}
	slices.Sort(took)
	t.Logf("host death: %d hosts at thresholds 1/2/4 s, the next lease after p50 %s, max %s",
		len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	control.heal()
	proxy.heal()
	for _, l := range lanes {
		l.orphaned()
		l.signalParts("agent", syscall.SIGKILL)
		l.finish(l.task.TaskID)
		w.expectStatuses(t, l.name+"-first", "registering > active: registered",
			"active > unhealthy: heartbeat_timeout", "unhealthy > dead: heartbeat_timeout")
		w.expectStatuses(t, l.name+"-second", "registering > active: registered")
	}
}
