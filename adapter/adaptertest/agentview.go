package adaptertest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/picket-dev/picket"
)

// AgentView is what an agent has done and what became of it.
type AgentView struct {
	Record        picket.Agent
	Registrations []RegistrationView // that took effect, oldest first
	Heartbeats    []HeartbeatView    // all that arrived, refused ones too
	Acquires      []AcquireView      // acquires under its id since it registered
	Transitions   []picket.LifecycleReason
}

// RegistrationView is one registration.
type RegistrationView struct {
	picket.Registration
	At          time.Time
	Incarnation int64
}

// HeartbeatView is one heartbeat.
type HeartbeatView struct {
	picket.Heartbeat
	At time.Time
}

// AcquireView is one request for a lease.
type AcquireView struct {
	At          time.Time
	Incarnation int64
}

// SupportRegistry says whether the server has the routes of agents; without them, it
// is one of an earlier version. It has them at first.
func (s *Server) SupportRegistry(has bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noRegistry = !has
}

// ForgetAgents empties the registry, as a store does that was lost. What the
// agents held has ended with it.
func (s *Server) ForgetAgents() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.agents {
		for _, l := range s.heldBy(a) {
			s.end(l, picket.WatchLost, picket.CodeLeaseExpired, picket.TaskQueued)
		}
	}
	clear(s.agents)
	s.notify()
}

// Kill declares an agent dead, as silence does.
func (s *Server) Kill(agentID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.agents[agentID]; a != nil {
		if a.record.Status == picket.AgentActive {
			s.transition(a, picket.ReasonHeartbeatTimeout)
		}
		s.transition(a, picket.ReasonHeartbeatTimeout)
	}
}

// Deregister removes an agent, as an operator does.
func (s *Server) Deregister(agentID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.agents[agentID]; a != nil {
		s.transition(a, picket.ReasonDeregistered)
	}
}

// Drain drains an agent, as an operator does.
func (s *Server) Drain(agentID string, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.agents[agentID]; a != nil {
		s.drain(a, int(timeout/time.Second))
	}
}

// CommandAgent leaves a command for an agent and answers its id.
func (s *Server) CommandAgent(agentID string, c picket.AgentCommand) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := newID("command")
	if a := s.agents[agentID]; a != nil {
		a.commands = append(a.commands, picket.PendingCommand{CommandID: id, AgentCommand: c})
	}
	return id
}

// Pending are the commands that wait for an agent.
func (s *Server) Pending(agentID string) []picket.PendingCommand {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.agents[agentID]; a != nil {
		return slices.Clone(a.commands)
	}
	return nil
}

// Agents are the ids that were registered, in the order of their first time.
func (s *Server) Agents() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.agentIDs)
}

// AgentView answers what has become of an agent; of the first one for "".
func (s *Server) AgentView(agentID string) AgentView {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agentView(agentID)
}

func (s *Server) agentView(id string) AgentView {
	if id == "" && len(s.agentIDs) > 0 {
		id = s.agentIDs[0]
	}
	a := s.agents[id]
	if a == nil {
		return AgentView{}
	}
	s.evaluateSilence(a)
	v := a.view
	v.Record = a.record
	v.Registrations, v.Heartbeats = slices.Clone(v.Registrations), slices.Clone(v.Heartbeats)
	v.Acquires, v.Transitions = slices.Clone(v.Acquires), slices.Clone(v.Transitions)
	return v
}

// AwaitAgent returns as soon as ok holds for an agent, the first one for "", or
// with ctx's error. ok is asked after every change.
func (s *Server) AwaitAgent(ctx context.Context, agentID string, ok func(AgentView) bool) (AgentView, error) {
	for {
		s.mu.Lock()
		v := s.agentView(agentID)
		changed := s.changed
		s.mu.Unlock()
		if ok(v) {
			return v, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return v, fmt.Errorf("agent %s is %q after %d registrations and %d heartbeats: %w",
				v.Record.AgentID, v.Record.Status, len(v.Registrations), len(v.Heartbeats), ctx.Err())
		}
	}
}
