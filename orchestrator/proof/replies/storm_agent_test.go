package replies

import (
	stdjson "encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Every fourth worker of the storm is a registered agent. Its silence is made by
// setting its last heartbeat back, so that nothing depends on the test's speed.

// registrationEnds are the ways in which a registration ends, taken in turn.
const registrationEnds = 4

// wakeReapers makes a reaper look again. One that is asked for already will see all
// that was done until now.
func (x *storm) wakeReapers() {
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
				retryUntilAnswered(x, "judge", func() (int, error) { return on.JudgeAgents(x.ctx, 100) })
				retryUntilAnswered(x, "chore", func() (int, error) { return on.RunChores(x.ctx, 100) })
			}
		})
	}
	return func() {
		close(x.look)
		running.Wait()
	}
}

// backdateHeartbeat sets the agent's last heartbeat back by so long.
func (w *stormClient) backdateHeartbeat(d time.Duration) {
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
	w.wakeReapers()
}

// registerAgent registers, for the first time or again.
func (w *stormClient) registerAgent() {
	by := w.once()
	a := retryUntilAnswered(w.storm, "register", func() (picket.Agent, error) {
		return w.e.Register(w.ctx, by, picket.Registration{AgentID: w.name, RoleID: w.name})
	})
	if a.Incarnation <= w.incarnation || a.Status != picket.AgentActive {
		w.t.Errorf("seed %d: registered after incarnation %d as %+v", w.seed, w.incarnation, a)
	}
	w.incarnation = a.Incarnation
}

func (w *stormClient) heartbeat() (picket.HeartbeatAnswer, error) {
	return w.e.Heartbeat(w.ctx, picket.Caller{Actor: "key_" + w.name}, w.name,
		picket.Heartbeat{
			Status:          picket.AgentActive,
			TasksInProgress: []string{w.task},
			ClientTimestamp: picket.Instant(time.Now().UnixMilli()),
			Incarnation:     w.incarnation,
		})
}

// sendHeartbeats sends a heartbeat, now and then after it was silent for a while.
func (w *stormClient) sendHeartbeats() {
	if w.rnd.IntN(2) == 0 {
		w.backdateHeartbeat(100 * time.Second) // longer than 90 and shorter than 300
	}
	got := retryUntilAnswered(w.storm, "heartbeat", w.heartbeat)
	if got.AgentStatus != picket.AgentActive || len(got.PendingCommands) > 0 {
		w.t.Errorf("seed %d: %s holds its task, and its heartbeat was answered by %+v", w.seed, w.name, got)
	}
}

// endRegistration ends the registration under the lease and begins the next one. It
// reports whether the lease ended with it.
func (w *stormClient) endRegistration() (ended bool) {
	w.fallen++
	switch how := w.fallen % registrationEnds; how {
	case 0:
		return false
	case 1:
		w.backdateHeartbeat(400 * time.Second)
		w.zombie("agent_dead")
	case 2:
		w.change(picket.AgentDeregistered)
		w.zombie("released")
	default:
		w.change(picket.AgentDraining)
		w.closed = w.end([]int{5, 7}[w.rnd.IntN(2)])
	}
	w.untilRefused("heartbeat of the gone", picket.CodeAgentGone, func() error { _, err := w.heartbeat(); return err })
	w.registerAgent()
	return true
}

func (w *stormClient) change(to picket.AgentStatus) {
	by := w.once()
	by.Actor, by.Operator = "key_ops", true
	a := retryUntilAnswered(w.storm, string(to), func() (picket.Agent, error) {
		return w.e.ChangeAgent(w.ctx, by, w.name, nil, picket.AgentStatusChange{Status: to, Incarnation: w.incarnation})
	})
	if a.Status != to {
		w.t.Errorf("seed %d: %s should be %s, but is %+v", w.seed, w.name, to, a)
	}
}

// zombie writes on until it is refused, and hands in how its process ended.
func (w *stormClient) zombie(cause string) {
	before := int64(w.count(picket.EventTaskProgress))
	admitted := int64(0)
	err := w.untilRefused("a zombie's report", picket.CodeLeaseExpired, func() error {
		_, err := w.e.Report(w.ctx, w.held, fmt.Sprint("z", admitted),
			picket.Progress{Summary: fmt.Sprint("still here ", admitted)})
		if err == nil {
			admitted++
			w.expectEvent(picket.EventTaskProgress)
		}
		return err
	})
	if got := err.Facts["cause"]; got != cause {
		w.t.Errorf("seed %d: refused because of %v, not of %s", w.seed, got, cause)
	}
	w.untilRefused("a zombie's renewal", picket.CodeLeaseExpired,
		func() error { _, err := w.e.Renew(w.ctx, w.held); return err })
	// The last one that was admitted may be known from the task alone.
	task, bad := w.past.Task(w.ctx, w.task)
	if bad != nil {
		w.t.Errorf("seed %d: %v", w.seed, bad)
		runtime.Goexit()
	}
	if r := task.LastReport; r != nil && r.Seq == before+admitted+1 {
		w.expectEvent(picket.EventTaskProgress)
	}
	w.expectEvent(picket.EventLeaseExpired)
	w.exit()
}

// untilRefused repeats a call until it is refused as it has to be in the end.
func (w *stormClient) untilRefused(what string, code picket.Code, call func() error) *picket.Error {
	return retryUntilAnswered(w.storm, what, func() (*picket.Error, error) {
		for {
			err := call()
			if err == nil && w.ctx.Err() == nil {
				w.wakeReapers()
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

// checkAgents holds the replay against the agents of the store, and both against what
// a storm has to bring about.
func (x *storm) checkAgents(log *kit.AgentReplay) {
	stored := map[string]kit.ReplayedAgent{}
	for id := range log.Agents {
		a, _, err := x.past.Agent(x.ctx, id)
		kit.OK(x.t, err)
		stored[id] = kit.ReplayedAgent{Status: a.Status, Incarnation: a.Incarnation, Version: a.Version}
	}
	if diff := log.DiffersFrom(stored); diff != "" {
		x.t.Errorf("seed %d: %s", x.seed, diff)
	}
	if over := x.checkRegistrations(); over < len(stored)*registrationEnds {
		x.t.Errorf("seed %d: only %d registrations of %d agents ended", x.seed, over, len(stored))
	}
	for _, move := range []string{"active heartbeat_timeout", "unhealthy heartbeat_timeout",
		"unhealthy heartbeat_resumed", "draining drain_completed", "active deregistered"} {
		if log.Moves[move] == 0 {
			x.t.Errorf("seed %d: nothing was moved by %s", x.seed, move)
		}
	}
}

// checkRegistrations checks by the order of the log that nothing was written under a
// registration after it was over, and returns how many were.
func (x *storm) checkRegistrations() int {
	runs, latest, over := map[string]kit.RegistrationKey{}, map[string]int64{}, map[kit.RegistrationKey]int64{}
	for last := int64(0); ; {
		page, err := x.past.Events(x.ctx, picket.EventQuery{After: last, Limit: 1000})
		kit.OK(x.t, err)
		for _, ev := range page.Events {
			last = ev.Seq
			var d kit.EventData
			kit.OK(x.t, stdjson.Unmarshal(ev.Data, &d))
			switch {
			case ev.Type == picket.EventAgentLifecycle && ev.NewStatus.Gone():
				over[kit.RegistrationKey{Agent: ev.AgentID, Incarnation: d.Incarnation}] = ev.Seq
			case ev.Type == picket.EventAgentLifecycle:
				latest[ev.AgentID] = d.Incarnation
			case ev.Type == picket.EventTaskLeased:
				runs[ev.RunID] = kit.RegistrationKey{Agent: ev.AgentID, Incarnation: latest[ev.AgentID]}
			case kit.FencedEvents[ev.Type]:
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
