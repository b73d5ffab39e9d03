//go:build linux

package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// A worker is cut off from the servers for half a lease to three: requests
// lost, replies lost, or both. Its agent is dead before the task is granted
// again, and once the network is healed it goes on as if nothing had been.
func TestPartitions(t *testing.T) {
	ways := []string{"requests", "replies", "both ways", "requests", "replies", "both ways"}
	hub, spokes := spokes(t, len(ways)+1)
	z := newZombies(t)
	front := z.behind(hub)
	for batch := range times(1, 50) {
		var lanes []*lane
		for i := range ways {
			l := z.placeLane(fmt.Sprintf("lane%d-%d", batch, i), front, spokes[i], spokes[len(ways)])
			lanes = append(lanes, l)
		}
		for _, l := range lanes {
			l.stand()
		}
		var healed sync.WaitGroup
		for i, l := range lanes {
			// The first three are short, so that some keep their lease.
			cut := window/4 + time.Duration(z.random.Int64N(int64(window/2)))
			if i >= len(ways)/2 {
				cut = window + time.Duration(z.random.Int64N(int64(window*2)))
			}
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
	z.tell("cut off")
}

// behind puts the servers behind a hub: workers are told its addresses.
func (z *zombies) behind(hub *netns) (url string) {
	z.t.Helper()
	z.house.proxyURL = hub.relay(z.t, z.house.proxyURL)
	main := z.house.processes[2]
	main.end()
	z.house.processes[2], _ = z.serve("orchestrator", "orchestrator", z.house.mainURL, "--proxy-url", z.house.proxyURL)
	return hub.relay(z.t, z.house.mainURL)
}

// placeLane is openLane with workers in networks of their own.
func (z *zombies) placeLane(name, front string, first, second *netns) *lane {
	z.t.Helper()
	l := z.newLane(name, "")
	l.front, l.places = front, map[string]*netns{"first": first, "second": second}
	l.first = l.hire("first")
	return l
}
