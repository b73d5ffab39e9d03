//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/moves"
)

// Workers that are missed after 4 s, with leases of a minute: only the silence
// of an agent ends them.
func newSilenceTest(t *testing.T) *freezeTest {
	z := newFreezeTest(t)
	z.pairFlags, z.pairWindow = briskFlags, time.Minute
	return z
}

// silenceTime is a time around the thresholds: some agents are only warned of.
func (z *freezeTest) silenceTime() time.Duration {
	return time.Second + time.Duration(z.random.Int64N(int64(8*time.Second)))
}

// Whatever of a run is stopped around its agent's death and woken: the next run
// starts when the tree of the old one is gone, no stale write is admitted, and
// the worker registers again and goes on.
func TestZombiesOfDeadAgents(t *testing.T) {
	z := newSilenceTest(t)
	for batch := range soakTimes(t, "zombies of dead agents, rounds of 6", 1, 60) {
		order := []string{"adapter", "adapter+agent", "shim", "adapter", "shim+agent", fenceOnly}
		var thawed sync.WaitGroup
		lanes := z.open(batch, len(order))
		for i, l := range lanes {
			frozen := z.silenceTime()
			z.count[order[i]]++
			l.signalParts(order[i], syscall.SIGSTOP)
			if order[i] != fenceOnly {
				l.thawAfter(frozen, order[i], &thawed)
			}
			l.story = fmt.Sprintf("%s stopped for %s", order[i], frozen.Round(time.Millisecond))
		}
		thawed.Wait()
		for i, l := range lanes {
			if order[i] == fenceOnly {
				l.orphaned()
				l.signalParts(order[i], syscall.SIGCONT)
			}
			z.after(l, order[i])
		}
	}
	z.tellSilence("stopped")
}

// The same holds when the network breaks and requests, replies or both are lost. A worker whose
// replies are lost ends its agent as well, and its lease does not have to run out.
func TestPartitionsOfDeadAgents(t *testing.T) {
	ways := []string{"requests", "replies", "both ways", "requests", "replies", "both ways"}
	hub, spokes := spokes(t, len(ways)+1)
	z := newSilenceTest(t)
	front := z.behind(hub)
	for batch := range soakTimes(t, "partitions around the death of agents, rounds of 6", 1, 50) {
		var lanes []*workerPair
		for i := range ways {
			lanes = append(lanes, z.networkWorkerPair(fmt.Sprintf("lane%d-%d", batch, i), front, spokes[i],
				spokes[len(ways)]))
		}
		for _, l := range lanes {
			l.awaitRunning()
		}
		var healed sync.WaitGroup
		for i, l := range lanes {
			cut := z.silenceTime()
			l.story = fmt.Sprintf("%s lost for %s", ways[i], cut.Round(time.Millisecond))
			z.count[ways[i]]++
			hub.cut(spokes[i], ways[i])
			healed.Go(func() {
				time.Sleep(cut) // how long is what is random
				hub.heal(spokes[i], ways[i])
			})
		}
		healed.Wait()
		for _, l := range lanes {
			z.after(l, "network")
		}
	}
	z.tellSilence("cut off")
}

// tellSilence prints what became of the agents, and holds every life against
// the legal moves.
func (z *freezeTest) tellSilence(how string) {
	z.t.Helper()
	counts := map[string]int{}
	status := map[string]picket.AgentStatus{}
	for _, ev := range z.allEvents() {
		if ev.Type != picket.EventAgentLifecycle {
			continue
		}
		counts[string(ev.NewStatus)+" "+ev.Reason]++
		from, why := ev.PreviousStatus, picket.LifecycleReason(ev.Reason)
		if was := status[ev.LifecycleAgentID]; moves.NextAgentStatus(from, why) != ev.NewStatus ||
			was != "" && was != from {
			z.t.Errorf("event %d: %s was %q and goes from %s to %s: %s", ev.Seq, ev.LifecycleAgentID, was, from,
				ev.NewStatus, why)
		}
		status[ev.LifecycleAgentID] = ev.NewStatus
	}
	var told []string
	for move, n := range counts {
		told = append(told, fmt.Sprintf("%d %s", n, move))
	}
	slices.Sort(told)
	z.t.Logf("agents: %q", told)
	z.tell(how)
}
