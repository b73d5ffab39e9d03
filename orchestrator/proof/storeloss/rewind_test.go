package storeloss

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket/internal/rig"
)

// An earlier state is put back under a server process that lives on. Only sequence numbers that
// fall show it, and only to a process that had seen later ones. With one orchestrator, which has
// seen every grant, tokens rise all the same.
func TestStateRewoundReal(t *testing.T) {
	l := newClients(t)
	l.server = rig.StartDurableServer(t, "--enable-debug-command", "yes")
	s := l.server.Store()
	patient := s.Patient()
	l.raw = rig.Hashes(redis.NewUniversalClient(&patient.Redis))
	t.Cleanup(func() { _ = l.raw.Close() })
	for i := range 3 {
		l.startProcess(s, i == 0, nil)
	}
	l.snapshot()
	n := rig.SoakRounds(t, "state put back under a living server", 10, 5*200)
	for range n {
		l.rewindCycle()
		for promise, times := range l.promises.broken {
			// Until the next grant, processes that grant nothing go on writing.
			if promise != "no sequence number is used twice" && promise != promiseTokenNeverFalls {
				t.Fatalf("%s: broken %d times\n%s", promise, times, strings.Join(l.promises.first, "\n"))
			}
		}
	}
	r := l.rested
	t.Logf("state put back under a living server: %d times; %d tokens granted, %d raised by reclaim, %d adoptions; %d survivors went on, %d forgotten and "+
		"%d ended refused, %d recorded reports looked at; 0 regressions; seed %d, %.0f s",
		n, l.promises.granted, l.promises.raised, r.adoptions, r.survivors, r.forgotten, r.ended, r.reports, l.seed,
		time.Since(l.start).Seconds())
}

// rewindCycle puts back a state that lacks more grants than can be on their way at one moment.
// Otherwise a grant that was sent before its process knew of the last ones could be taken for them.
func (l *lossHistory) rewindCycle() {
	const inFlight = lossClients * 2
	l.ahead.Add(int64(10 * time.Second))
	stop := l.startLoad()
	l.done.wait(l.t, 20+l.rnd.IntN(40), "calls before the state that is put back")
	mark, granted := l.server.Size(), l.promises.grantedCount()
	for l.promises.grantedCount() <= granted+inFlight {
		l.done.wait(l.t, 5, "calls that will be forgotten")
	}
	l.server.Rewind(func(int64) int64 {
		if l.rnd.IntN(4) == 0 {
			return l.rnd.Int64N(mark + 1)
		}
		return max(0, mark-l.rnd.Int64N(4096))
	})
	l.done.wait(l.t, 60, "calls afterwards")
	stop()
	l.checkAtRest()
}
