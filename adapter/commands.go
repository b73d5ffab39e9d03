package adapter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/picket-dev/picket"
)

// reasonNoLease is the reason of a command that the server derives from a heartbeat:
// a task is reported of which no lease is held. It comes with every such
// heartbeat and needs no answer.
const reasonNoLease = "no_lease"

// handleCommand carries a command out, once however often it comes.
func (s *registration) handleCommand(ctx context.Context, c picket.PendingCommand) {
	log := s.cfg.Log.With("agent", s.cfg.AgentID, "command", c.Command, "id", c.CommandID, "reason", c.Reason)
	if c.Command == picket.CommandStopTask && c.Reason == reasonNoLease && c.CommandID == "stop_"+c.TaskID {
		for _, r := range s.runsOf(c.TaskID) {
			s.jobs.Go(func() { r.checkUnknownLease(ctx) })
		}
		return
	}
	if !s.isNewCommand(c.CommandID) {
		return
	}
	switch c.Command {
	case picket.CommandDrain:
		s.onDrain()
	case picket.CommandStopTask:
		log.Info("the registry asks to stop a task", "task", c.TaskID)
		s.jobs.Go(func() { s.stopTask(ctx, c) })
	case picket.CommandPing:
		s.recordHandled(c.CommandID)
	default:
		log.Warn("a command is not known; a newer adapter may know it")
	}
}

// isNewCommand takes a command that was not taken before. It remembers more than can
// wait for one agent: a task that was stopped may be back here before the
// registry has heard of it.
func (s *registration) isNewCommand(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.knownCommands, id) {
		return false
	}
	s.knownCommands = append(s.knownCommands, id)
	s.knownCommands = s.knownCommands[max(len(s.knownCommands)-8*picket.MaxPendingCommands, 0):]
	return true
}

// recordHandled tells the registry that a command was carried out.
func (s *registration) recordHandled(id string) {
	s.mu.Lock()
	s.handledCommands = append(s.handledCommands, id)
	s.mu.Unlock()
	s.heartbeatNow()
}

func (s *registration) runsOf(task string) (runs []*run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, held := range s.runs {
		if held && r.lease.TaskID == task {
			runs = append(runs, r)
		}
	}
	return runs
}

// stopTask ends the runs of a task that are here now, and says so when nobody of
// them is left.
func (s *registration) stopTask(ctx context.Context, c picket.PendingCommand) {
	runs := s.runsOf(c.TaskID)
	for _, r := range runs {
		r.stop(fmt.Errorf("stop_task: %s", c.Reason))
	}
	for _, r := range runs {
		select {
		case <-r.processesGone:
		case <-ctx.Done():
			return
		}
	}
	s.recordHandled(c.CommandID)
}

// checkUnknownLease asks what became of a lease that the registry does not know of: an
// agent that handed its result in a moment ago may end by itself.
func (r *run) checkUnknownLease(ctx context.Context) {
	select {
	case <-r.processesGone:
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
		r.onLeaseChange(w)
	}
}
