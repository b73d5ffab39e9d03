package storeloss

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Failover as it happens in the field: three Sentinels choose another primary, the processes follow
// them automatically, and the load never stops. In half of the failovers the replica has missed the
// last writes.
func TestFailoverSentinelReal(t *testing.T) {
	l := newClients(t)
	l.pace = 10 * time.Millisecond // the Sentinels take seconds
	trio := rig.StartSentinels(t, rig.SentinelConfig{})
	for _, n := range trio.Sentinels {
		// A replica is chosen only if its last INFO is younger than five of the
		// first or three of the second, and without a primary it gives one a second.
		kit.OK(t, n.Do(l.ctx, "SENTINEL", "DEBUG", "ping-period", 300, "info-period", 500).Err())
	}
	for i := range 3 {
		l.startProcess(trio.Store(), i < 2, nil)
	}
	var adopted, served []time.Duration
	for i := range rig.SoakRounds(t, "failover by Sentinels", 3, 200) {
		a, s := sentinelRound(t, l, trio, i)
		adopted, served = append(adopted, a), append(served, s)
		if len(l.promises.broken) > 0 {
			t.Fatalf("in failover %d: broken promises: %v\n%s", i, l.promises.broken,
				strings.Join(l.promises.first, "\n"))
		}
	}
	r := l.rested
	t.Logf("failover by Sentinels: %d failovers (%s), %d adoptions; adoption after the new primary accepts: %s; %d tokens granted, %d raised by reclaim; "+
		"%d survivors went on, %d forgotten and %d ended refused, %d refused under load, %d zombies refused; 0 regressions; seed %d, %.0f s",
		len(adopted), sentinelKinds(l), r.adoptions, spread(adopted), l.promises.granted, l.promises.raised,
		r.survivors,
		r.forgotten, r.ended, l.lost.value(), r.zombies, l.seed, time.Since(l.start).Seconds())
	t.Logf("40 calls answered after the new primary accepts: %s", spread(served))
}

func sentinelKinds(l *lossHistory) string {
	return fmt.Sprintf("primary killed %d, still writable %d; with a cut link %d", l.kinds["killed"], l.kinds["asked"],
		l.kinds["cut"])
}

// spread tells the middle and the worst of some durations.
func spread(all []time.Duration) string {
	slices.Sort(all)
	return fmt.Sprintf("median %d ms, worst %d ms", all[len(all)/2].Milliseconds(), all[len(all)-1].Milliseconds())
}

// sentinelRound is one failover, and all in step again. It returns how long
// after the new primary accepted writes it was adopted, and how long until 40
// calls more had been answered.
func sentinelRound(t *testing.T, l *lossHistory, trio *rig.Sentinels, i int) (adopted, served time.Duration) {
	l.ahead.Add(int64(10 * time.Second))
	stop := l.startLoad()
	l.done.wait(t, 30+l.rnd.IntN(30), "calls before the failover")
	was := trio.Primary()
	if was == nil {
		t.Fatal("the Sentinels do not agree on a primary")
	}
	cut, kill := l.rnd.IntN(2) == 0, i%2 == 0
	if cut {
		l.kinds["cut"]++
		kit.OK(t, trio.CutLinks(was))
		l.done.wait(t, 10+l.rnd.IntN(20), "calls that never reach the replica")
	}
	var now *rig.Node
	var err error
	if kill {
		l.kinds["killed"]++
		now, err = trio.AwaitFailover(func() error { was.Kill(); return nil })
	} else {
		l.kinds["asked"]++
		l.promises.mu.Lock()
		l.promises.split = true // until it is made a replica, some may be with the old one
		l.promises.mu.Unlock()
		_, now, err = trio.FailOver()
	}
	kit.OK(t, err)
	accepts := time.Now()
	raw := now.Client()
	t.Cleanup(func() { _ = raw.Close() })
	l.raw = raw
	runID := now.Info(l.ctx, "server", "run_id")
	kit.WaitFor(t, "the new primary is adopted", func() bool {
		return strings.HasPrefix(raw.HGet(l.ctx, lossPrefix+"meta", "identity").Val(), runID)
	})
	adopted = time.Since(accepts)
	l.done.wait(t, 40, "calls on the new primary")
	served = time.Since(accepts)
	if kill {
		was.Start()
	}
	kit.OK(t, trio.RestoreLinks(was))
	kit.WaitFor(t, "the old primary follows the new one",
		func() bool { return was.Info(l.ctx, "replication", "role") == "slave" })
	l.done.wait(t, 10, "calls after the old primary is one no more")
	stop()
	l.promises.endSplit(number(raw.HGet(l.ctx, lossPrefix+"meta", "floor").Val()))
	l.checkAtRest()
	kit.OK(t, trio.WaitInSync())
	return adopted, served
}
