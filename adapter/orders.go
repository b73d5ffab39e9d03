package adapter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/picket-dev/picket"
)

// noLease is the reason of a command that the server derives from a heartbeat:
// a task is reported of which no lease is held. It comes with every such
// heartbeat and needs no answer.
const noLease = "no_lease"

// obey carries a command out, once however often it comes.
func (s *session) obey(ctx context.Context, c picket.PendingCommand) {
	log := s.cfg.Log.With("agent", s.cfg.AgentID, "command", c.Command, "id", c.CommandID, "reason", c.Reason)
	if c.Command == picket.CommandStopTask && c.Reason == noLease && c.CommandID == "stop_"+c.TaskID {
		for _, r := range s.runsOf(c.TaskID) {
			s.jobs.Go(func() { r.disowned(ctx) })
		}
		return
	}
	if !s.fresh(c.CommandID) {
		return
	}
	switch c.Command {
	case picket.CommandDrain:
		s.drained()
	case picket.CommandStopTask:
		log.Info("the registry asks to stop a task", "task", c.TaskID)
		s.jobs.Go(func() { s.stop(ctx, c) })
	case picket.CommandPing:
		s.did(c.CommandID)
	default:
		log.Warn("a command is not known; a newer adapter may know it")
	}
}

// fresh takes a command that was not taken before. It remembers more than can
// wait for one agent: a task that was stopped may be back here before the
// registry has heard of it.
func (s *session) fresh(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.known, id) {
		return false
	}
	s.known = append(s.known, id)
	s.known = s.known[max(len(s.known)-8*picket.MaxPendingCommands, 0):]
	return true
}

// did tells the registry that a command was carried out.
func (s *session) did(id string) {
	s.mu.Lock()
	s.handled = append(s.handled, id)
	s.mu.Unlock()
	s.stir()
}

func (s *session) runsOf(task string) (runs []*run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, held := range s.runs {
		if held && r.lease.TaskID == task {
			runs = append(runs, r)
		}
	}
	return runs
}

// stop ends the runs of a task that are here now, and says so when nobody of
// them is left.
func (s *session) stop(ctx context.Context, c picket.PendingCommand) {
	runs := s.runsOf(c.TaskID)
	for _, r := range runs {
		r.stop(fmt.Errorf("stop_task: %s", c.Reason))
	}
	for _, r := range runs {
		select {
		case <-r.vacant:
		case <-ctx.Done():
			return
		}
	}
	s.did(c.CommandID)
}

// disowned asks what became of a lease that the registry does not know of: an
// agent that handed its result in a moment ago may end by itself.
func (r *run) disowned(ctx context.Context) {
	select {
	case <-r.vacant:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	w, news, err := r.proxy.Watch(ctx, 0)
	if err != nil {
		w, news = picket.Watch{State: picket.WatchLost}, true
	}
	if news && w.State != picket.WatchReclaim {
		r.log.Info("the registry knows of no lease", "state", w.State, "err", err)
		r.watched(w)
	}
}
