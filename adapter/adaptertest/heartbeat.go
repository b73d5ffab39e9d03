package adaptertest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

func (s *Server) heartbeat(a *agent, body []byte) (int, any, error) {
	hb, err := decode[picket.Heartbeat](body)
	if err == nil {
		err = hb.Check()
	}
	if err != nil {
		return 0, nil, err
	}
	a.view.Heartbeats = append(a.view.Heartbeats, HeartbeatView{Heartbeat: hb, At: time.Now()})
	if err := s.checkIncarnation(a, hb.Incarnation); err != nil {
		s.notify()
		return 0, nil, err
	}
	if a.record.Status == picket.AgentUnhealthy {
		s.transition(a, picket.ReasonHeartbeatResumed)
	}
	if a.record.Status == picket.AgentDraining && len(s.heldBy(a)) == 0 {
		s.transition(a, picket.ReasonDrainCompleted)
	}
	if hb.Status == picket.AgentDraining && a.record.Status == picket.AgentActive {
		s.drain(a, a.drainTimeout())
	}
	if hb.CurrentLoad != nil {
		a.record.Capacity.CurrentLoad = *hb.CurrentLoad
	}
	a.commands = slices.DeleteFunc(a.commands, func(c picket.PendingCommand) bool {
		return c.Command != picket.CommandDrain && slices.Contains(hb.HandledCommands, c.CommandID)
	})
	s.recordHeartbeat(a)
	return http.StatusOK, picket.HeartbeatAnswer{
		Acknowledged: true, ServerTimestamp: picket.InstantOf(s.now()), AgentStatus: a.record.Status,
		PendingCommands: slices.Concat(a.commands, s.stopCommands(a, hb.TasksInProgress)),
	}, nil
}

// stopCommands are commands to stop what the agent holds no lease of.
func (s *Server) stopCommands(a *agent, tasks []string) (stop []picket.PendingCommand) {
	for _, id := range tasks {
		if !slices.ContainsFunc(s.heldBy(a), func(l *lease) bool { return l.task.id == id }) {
			stop = append(stop, picket.PendingCommand{CommandID: "stop_" + id,
				AgentCommand: picket.AgentCommand{Command: picket.CommandStopTask, TaskID: id, Reason: "no_lease"}})
		}
	}
	return stop
}

// drainTimeout is that of a command that waits, else the agent's own.
func (a *agent) drainTimeout() int {
	for _, c := range a.commands {
		if c.Command == picket.CommandDrain && c.DrainTimeoutSeconds != nil {
			return *c.DrainTimeoutSeconds
		}
	}
	if n := a.record.DrainTimeoutSeconds; n != nil {
		return *n
	}
	return picket.DefaultDrainTimeout
}

func (s *Server) drain(a *agent, seconds int) {
	a.record.DrainDeadlineAt = picket.InstantOf(s.now().Add(time.Duration(seconds) * time.Second))
	a.commands = slices.DeleteFunc(a.commands,
		func(c picket.PendingCommand) bool { return c.Command == picket.CommandDrain })
	s.transition(a, picket.ReasonDrainInitiated)
	time.AfterFunc(time.Duration(seconds)*time.Second, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.evaluateSilence(a)
	})
}

func (s *Server) changeStatus(a *agent, match string, body []byte) (int, any, error) {
	version, err := strconv.ParseInt(strings.Trim(match, `"`), 10, 64)
	if match == "*" {
		version, err = a.record.Version, nil
	}
	if err != nil {
		return 0, nil, picket.Refuse(picket.CodePreconditionRequired, "Send the record's version.",
			"If-Match is missing or unreadable")
	}
	change, err := decode[picket.AgentStatusChange](body)
	if err == nil {
		err = change.Check()
	}
	switch {
	case err != nil:
		return 0, nil, err
	case change.Incarnation > 0 && change.Incarnation < a.record.Incarnation:
		return 0, nil, s.checkIncarnation(a, change.Incarnation)
	case version != a.record.Version:
		return 0, nil, picket.Refuse(picket.CodeVersion, "Read the record again.", "the version is %d",
			a.record.Version).
			With("presented", version).With("current", a.record.Version)
	case change.Status == a.record.Status:
	case change.Status == picket.AgentDeregistered:
		return s.deregister(a)
	case change.Status == picket.AgentDraining && !a.record.Status.Gone():
		seconds := a.drainTimeout()
		if n := change.DrainTimeoutSeconds; n != nil {
			seconds = *n
		}
		s.drain(a, seconds)
	default:
		return 0, nil, picket.Refuse(picket.CodeStateConflict, "See the protocol.", "agent %s is %s", a.record.AgentID,
			a.record.Status)
	}
	return http.StatusOK, a.record, nil
}
