//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket/internal/rig"
)

// freezeTest is a stack whose processes are stopped and woken, lane by lane.
type freezeTest struct {
	*testEnv
	random   *rand.Rand
	redis    *process
	servers  serverSet
	count    map[string]int
	refused  int
	kept     int             // lanes whose first agent held on and went on
	fence    int             // lanes in which an old tree lived on beside the next holder, as it must
	lateness []time.Duration // from the instant a tree had to be dead to its death
}

func newFreezeTest(t *testing.T) *freezeTest {
	z := &freezeTest{testEnv: newTestEnv(t), random: rig.Random(t), count: map[string]int{}}
	z.redis = z.store()
	z.ok("init", "--redis", z.storeURL(), "--secret-file", z.path("secret.key"), "--admin-key-file",
		z.path("data", "picket", "admin.key"))
	z.key = z.secret("admin.key")
	z.servers.dialAll(z.testEnv, "")
	z.url = z.servers.mainURL
	z.events = followEvents(z.testEnv)
	return z
}

// victims are what is stopped together; a plus joins them.
var victims = []string{
	"adapter", "adapter+shim", "agent", "shim", "adapter+agent", "adapter+shim+agent", "shim+agent", "adapter",
}

// fenceOnly leaves nobody who could end the agent.
const fenceOnly = "adapter+shim"

// Whatever of a run is stopped for half a lease to three, and woken: no stale
// write is admitted, and the next run starts when the tree of the old one is
// gone. Adapter and shim stopped together leave only the fence, and the fence
// holds.
func TestZombies(t *testing.T) {
	z := newFreezeTest(t)
	for batch := range soakTimes(t, "zombies, rounds of 8", 1, 125) {
		order := slices.Clone(victims)
		z.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		var thawed sync.WaitGroup
		lanes := z.open(batch, len(order))
		for i, l := range lanes {
			frozen := window/2 + time.Duration(z.random.Int64N(int64(window*5/2)))
			z.count[order[i]]++
			l.signalParts(order[i], syscall.SIGSTOP)
			if order[i] != fenceOnly {
				l.thawAfter(frozen, order[i], &thawed)
			}
			l.story = fmt.Sprintf("%s stopped for %s", order[i], frozen.Round(time.Millisecond))
		}
		thawed.Wait()
		for i, l := range lanes {
			if order[i] == fenceOnly { // they stand still until the fence has been seen to hold
				l.orphaned()
				l.signalParts(order[i], syscall.SIGCONT)
			}
			z.after(l, order[i])
		}
	}
	z.tell("stopped")
}

// The servers stand still while agents work: each adapter is done with its
// agent before its lease ends, whatever the servers do with the writes that
// have piled up when they wake.
func TestFrozenServers(t *testing.T) {
	z := newFreezeTest(t)
	for batch := range soakTimes(t, "frozen servers, rounds of 4", 1, 60) {
		roles := [][]int{{1}, {0, 1, 2}, {1, 2}, {0, 1, 2, storeRole}}[z.random.IntN(4)]
		lanes := z.open(batch, 4)
		frozen := window*3/4 + time.Duration(z.random.Int64N(int64(window*9/4)))
		pids := z.pidsOf(roles)
		z.count[fmt.Sprint(roles)] += len(lanes)
		for _, pid := range pids {
			if err := unix.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(frozen) // how long is what is random
		for _, pid := range slices.Backward(pids) {
			if err := unix.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range lanes {
			l.story = fmt.Sprintf("servers %v stopped for %s", roles, frozen)
			z.after(l, "servers")
		}
	}
	z.tell("servers stopped")
}

// storeRole stands for the store beside the places of a pair's processes:
// reaper, proxy, orchestrator.
const storeRole = 3

func (z *freezeTest) pidsOf(roles []int) (pids []int) {
	for _, role := range roles {
		if role == storeRole {
			pids = append(pids, z.redis.pid())
			continue
		}
		pids = append(pids, z.servers.processes[role].pid())
	}
	return pids
}

// kill -9 of what holds a run: the next one starts alone, or, with adapter and
// shim gone at once, beside an orphan whose writes are refused. An adapter that
// is started again ends the orphan.
func TestKilledHolders(t *testing.T) {
	z := newFreezeTest(t)
	// The orphan is looked at first: an adapter that starts takes care of all.
	who := []string{fenceOnly, "adapter", "shim", "agent"}
	for batch := range soakTimes(t, "killed holders, rounds of 4", 1, 60) {
		lanes := z.open(batch, len(who))
		for i, l := range lanes {
			z.count[who[i]]++
			l.story = who[i] + " killed"
			l.signalParts(who[i], syscall.SIGKILL)
		}
		for i, l := range lanes {
			if who[i] != "shim" {
				l.writes(l.token+1, 1, time.Time{})
			}
			if strings.HasPrefix(who[i], "adapter") {
				if who[i] == fenceOnly {
					l.orphaned()
				}
				l.first.wait()
				l.first = l.startWorker("first")
			}
			z.after(l, who[i])
		}
	}
	z.tell("killed")
}

// open makes lanes side by side.
func (z *freezeTest) open(batch, n int) (lanes []*workerPair) {
	z.t.Helper()
	for i := range n {
		lanes = append(lanes, z.openWorkerPair(fmt.Sprintf("lane%d-%d", batch, i), ""))
	}
	for _, l := range lanes {
		l.awaitRunning()
	}
	return lanes
}

// after looks at a lane whose processes all run again.
func (z *freezeTest) after(l *workerPair, who string) {
	z.t.Helper()
	unfenced := who == fenceOnly || who == "adapter+shim+agent"
	l.settle()
	overlap := 0
	for _, e := range l.ledger(l.task.TaskID) {
		switch {
		case e.what == "start" && e.older > 0:
			overlap++
		case e.what == "refused":
			z.refused++
		}
	}
	switch {
	case unfenced && overlap > 0:
		z.fence++
	case overlap > 0:
		z.t.Errorf("%s, %s: a run started beside the tree of an older one\n%s", l.name, l.story,
			tail(l.first.err.text()))
	}
	if z.testEnv.task(l.task.TaskID).FencingToken == l.token {
		z.kept++
	} else if at := l.killAt(); !unfenced && !at.IsZero() && z.pairWindow == 0 {
		z.lateness = append(z.lateness, (<-l.died).Sub(at))
	}
	l.serves(l.first, "first")
	l.serves(l.second, "second")
	for _, p := range []*process{l.first, l.second} {
		p.end()
	}
}

// tell prints what the suite has seen.
func (z *freezeTest) tell(how string) {
	slices.Sort(z.lateness)
	at := func(q float64) time.Duration {
		if len(z.lateness) == 0 {
			return 0
		}
		return z.lateness[int(q*float64(len(z.lateness)-1))].Round(time.Millisecond)
	}
	events := z.allEvents()
	_, broken := replay(events)
	for _, b := range broken {
		z.t.Error(b)
	}
	z.t.Logf("zombies: %s %v; %d went on under their lease, %d writes refused, in %d only the fence held; "+
		"dead after the instant (of %d): median %s, p99 %s, max %s; margin %s; %d events, %d of them break a promise",
		how, z.count, z.kept, z.refused, z.fence, len(z.lateness), at(0.5), at(0.99), at(1), margin, len(events),
		len(broken))
}
