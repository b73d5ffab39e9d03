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
	z := newFreezeTest(t)
	front := z.behind(hub)
	for batch := range soakTimes(t, "partitions, rounds of 6", 1, 50) {
		var lanes []*workerPair
		for i := range ways {
			l := z.networkWorkerPair(fmt.Sprintf("lane%d-%d", batch, i), front, spokes[i], spokes[len(ways)])
			lanes = append(lanes, l)
		}
		for _, l := range lanes {
			l.awaitRunning()
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
func (z *freezeTest) behind(hub *netns) (url string) {
	z.t.Helper()
	z.servers.proxyURL = hub.relay(z.t, z.servers.proxyURL)
	main := z.servers.processes[2]
	main.end()
	z.servers.processes[2], _ = z.serve("orchestrator", "orchestrator", z.servers.mainURL, "--proxy-url",
		z.servers.proxyURL)
	return hub.relay(z.t, z.servers.mainURL)
}

// networkWorkerPair is openWorkerPair with workers in networks of their own.
func (z *freezeTest) networkWorkerPair(name, front string, first, second *netns) *workerPair {
	z.t.Helper()
	l := z.newWorkerPair(name, "")
	l.front, l.locations = front, map[string]*netns{"first": first, "second": second}
	l.first = l.startWorker("first")
	return l
}
