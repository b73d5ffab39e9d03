package orchestrator_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// Every fourth worker of the storm is a registered agent. Its silence is made by
// setting its last heartbeat back, so that nothing depends on the test's speed.

// falls are the ways in which a registration ends, taken in turn.
const falls = 4

// poke makes a reaper look again. One that is asked for already will see all
// that was done until now.
func (x *storm) poke() {
	select {
	case x.look <- struct{}{}:
	default:
	}
}

// reap judges whenever it is asked to, one reaper through the network and one
// past it, until stop is called.
func (x *storm) reap() (stop func()) {
	var running sync.WaitGroup
	for _, on := range []*orchestrator.Engine{x.e, x.past} {
		running.Go(func() {
			for range x.look {
				answered(x, "judge", func() (int, error) { return on.Judge(x.ctx, 100) })
				answered(x, "chore", func() (int, error) { return on.Chore(x.ctx, 100) })
			}
		})
	}
	return func() {
		close(x.look)
		running.Wait()
	}
}

// silent sets the agent's last heartbeat back by so long.
func (w *stormWorker) silent(d time.Duration) {
	now, err := strconv.ParseInt(w.raw.HGet(w.ctx, w.prefix+"meta", "now").Val(), 10, 64)
	if err == nil {
		_, err = w.raw.TxPipelined(w.ctx, func(p redis.Pipeliner) error {
			p.HSet(w.ctx, w.prefix+"agent:"+w.name, "beat_at", now-d.Milliseconds())
			p.ZAdd(w.ctx, w.prefix+"silence", redis.Z{Score: 0, Member: w.name})
			return nil
		})
	}
	if err != nil {
		w.t.Errorf("seed %d: %v", w.seed, err)
		runtime.Goexit()
	}
	w.poke()
}

// enlist registers, for the first time or again.
func (w *stormWorker) enlist() {
	by := w.once()
	a := answered(w.storm, "register", func() (picket.Agent, error) {
		return w.e.Register(w.ctx, by, picket.Registration{AgentID: w.name, RoleID: w.name})
	})
	if a.Incarnation <= w.incarnation || a.Status != picket.AgentActive {
		w.t.Errorf("seed %d: registered after incarnation %d as %+v", w.seed, w.incarnation, a)
	}
	w.incarnation = a.Incarnation
}

func (w *stormWorker) beat() (picket.HeartbeatAnswer, error) {
	return w.e.Heartbeat(w.ctx, picket.Caller{Actor: "key_" + w.name}, w.name,
		picket.Heartbeat{
			Status:          picket.AgentActive,
			TasksInProgress: []string{w.task},
			ClientTimestamp: picket.Instant(time.Now().UnixMilli()),
			Incarnation:     w.incarnation,
		})
}

// beats sends a heartbeat, now and then after it was silent for a while.
func (w *stormWorker) beats() {
	if w.rnd.IntN(2) == 0 {
		w.silent(100 * time.Second) // longer than 90 and shorter than 300
	}
	got := answered(w.storm, "heartbeat", w.beat)
	if got.AgentStatus != picket.AgentActive || len(got.PendingCommands) > 0 {
		w.t.Errorf("seed %d: %s holds its task, and its heartbeat was answered by %+v", w.seed, w.name, got)
	}
}

// fall ends the registration under the lease and begins the next one. It
// reports whether the lease ended with it.
func (w *stormWorker) fall() (ended bool) {
	w.fallen++
	switch how := w.fallen % falls; how {
	case 0:
		return false
	case 1:
		w.silent(400 * time.Second)
		w.zombie("agent_dead")
	case 2:
		w.change(picket.AgentDeregistered)
		w.zombie("released")
	default:
		w.change(picket.AgentDraining)
		w.closed = w.end([]int{5, 7}[w.rnd.IntN(2)])
	}
	w.until("heartbeat of the gone", picket.CodeAgentGone, func() error { _, err := w.beat(); return err })
	w.enlist()
	return true
}

func (w *stormWorker) change(to picket.AgentStatus) {
	by := w.once()
	by.Actor, by.Operator = "key_ops", true
	a := answered(w.storm, string(to), func() (picket.Agent, error) {
		return w.e.ChangeAgent(w.ctx, by, w.name, nil, picket.AgentStatusChange{Status: to, Incarnation: w.incarnation})
	})
	if a.Status != to {
		w.t.Errorf("seed %d: %s is to be %s, but is %+v", w.seed, w.name, to, a)
	}
}

// zombie writes on until it is refused, and hands in how its process ended.
func (w *stormWorker) zombie(cause string) {
	before := int64(w.count(picket.EventTaskProgress))
	admitted := int64(0)
	err := w.until("a zombie's report", picket.CodeLeaseExpired, func() error {
		_, err := w.e.Report(w.ctx, w.held, fmt.Sprint("z", admitted),
			picket.Progress{Summary: fmt.Sprint("still here ", admitted)})
		if err == nil {
			admitted++
			w.caused(picket.EventTaskProgress)
		}
		return err
	})
	if got := err.Facts["cause"]; got != cause {
		w.t.Errorf("seed %d: refused because of %v, not of %s", w.seed, got, cause)
	}
	w.until("a zombie's renewal", picket.CodeLeaseExpired,
		func() error { _, err := w.e.Renew(w.ctx, w.held); return err })
	// The last one that was admitted may be known from the task alone.
	task, bad := w.past.Task(w.ctx, w.task)
	if bad != nil {
		w.t.Errorf("seed %d: %v", w.seed, bad)
		runtime.Goexit()
	}
	if r := task.LastReport; r != nil && r.Seq == before+admitted+1 {
		w.caused(picket.EventTaskProgress)
	}
	w.caused(picket.EventLeaseExpired)
	w.exit()
}

// until repeats a call until it is refused as it has to be in the end.
func (w *stormWorker) until(what string, code picket.Code, call func() error) *picket.Error {
	return answered(w.storm, what, func() (*picket.Error, error) {
		for {
			err := call()
			if err == nil && w.ctx.Err() == nil {
				w.poke()
				continue
			}
			refusal, is := err.(*picket.Error)
			if is && refusal.Code == code {
				return refusal, nil
			}
			return nil, err
		}
	})
}

// crew holds the replay against the agents of the store, and both against what
// a storm has to bring about.
func (x *storm) crew(log *crew) {
	stored := map[string]toldAgent{}
	for id := range log.agents {
		a, _, err := x.past.Agent(x.ctx, id)
		ok(x.t, err)
		stored[id] = toldAgent{Status: a.Status, Incarnation: a.Incarnation, Version: a.Version}
	}
	if diff := log.differsFrom(stored); diff != "" {
		x.t.Errorf("seed %d: %s", x.seed, diff)
	}
	if over := x.tenures(); over < len(stored)*falls {
		x.t.Errorf("seed %d: only %d registrations of %d agents ended", x.seed, over, len(stored))
	}
	for _, move := range []string{"active heartbeat_timeout", "unhealthy heartbeat_timeout",
		"unhealthy heartbeat_resumed", "draining drain_completed", "active deregistered"} {
		if log.moves[move] == 0 {
			x.t.Errorf("seed %d: nothing was moved by %s", x.seed, move)
		}
	}
}

// tenures checks by the order of the log that nothing was written under a
// registration after it was over, and returns how many were.
func (x *storm) tenures() int {
	runs, latest, over := map[string]tenure{}, map[string]int64{}, map[tenure]int64{}
	for last := int64(0); ; {
		page, err := x.past.Events(x.ctx, picket.EventQuery{After: last, Limit: 1000})
		ok(x.t, err)
		for _, ev := range page.Events {
			last = ev.Seq
			var d eventData
			ok(x.t, json.Unmarshal(ev.Data, &d))
			switch {
			case ev.Type == picket.EventAgentLifecycle && ev.NewStatus.Gone():
				over[tenure{ev.AgentID, d.Incarnation}] = ev.Seq
			case ev.Type == picket.EventAgentLifecycle:
				latest[ev.AgentID] = d.Incarnation
			case ev.Type == picket.EventTaskLeased:
				runs[ev.RunID] = tenure{ev.AgentID, latest[ev.AgentID]}
			case fencedEvents[ev.Type]:
				it, known := runs[ev.RunID]
				if at := over[it]; !known || at > 0 {
					x.t.Errorf("seed %d: event %d is %s of %+v, which was over with event %d", x.seed, ev.Seq, ev.Type,
						it, at)
				}
			}
		}
		if len(page.Events) < 1000 {
			return len(over)
		}
	}
}
