package adaptertest

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/moves"
)

// agent is what the registry knows of one id.
type agent struct {
	record   picket.Agent
	beatAt   time.Time              // by the server's clock
	began    time.Time              // of a drain
	reason   picket.LifecycleReason // of the last transition
	commands []picket.PendingCommand
	alarm    *time.Timer // of its death
	view     AgentView
}

// registryRoute serves what is under /api/v1/agents.
func (s *Server) registryRoute(r *http.Request, body []byte) (int, any, error) {
	if bearer(r) != Key {
		return 0, nil, picket.Refuse(picket.CodeUnauthenticated, "Send an API key.", "the key is not known")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.Split(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/v1/agents"), "/"), "/")
	if s.noRegistry {
		return 0, nil, picket.Refuse(picket.CodeNotFound, "See the protocol.", "there is no such route")
	}
	if path[0] == "" && r.Method == http.MethodPost {
		return s.register(r.Header.Get("Idempotency-Key"), body)
	}
	a := s.agents[path[0]]
	if a == nil {
		return 0, nil, picket.Refuse(picket.CodeNotFound, "Register it.", "there is no agent %s", path[0])
	}
	s.evaluateSilence(a)
	switch verb := r.Method + " " + strings.Join(path[1:], "/"); verb {
	case "GET ":
		return http.StatusOK, a.record, nil
	case "DELETE ":
		return s.deregister(a)
	case "PATCH status":
		return s.changeStatus(a, r.Header.Get("If-Match"), body)
	case "POST heartbeat":
		return s.heartbeat(a, body)
	}
	return 0, nil, picket.Refuse(picket.CodeNotFound, "See the protocol.", "there is no %s %s", r.Method, r.URL.Path)
}

func (s *Server) register(once string, body []byte) (int, any, error) {
	reg, err := decode[picket.Registration](body)
	if err == nil {
		err = reg.Normalize()
	}
	if err != nil {
		return 0, nil, err
	}
	if s.OnRegister != nil {
		s.OnRegister(reg)
	}
	if done, again := s.registered[once]; again {
		return http.StatusCreated, done, nil
	}
	if reg.AgentID == "" {
		reg.AgentID = newID("agent")
	}
	a := s.agents[reg.AgentID]
	if a == nil {
		a = &agent{}
		s.agents[reg.AgentID] = a
		if !slices.Contains(s.agentIDs, reg.AgentID) {
			s.agentIDs = append(s.agentIDs, reg.AgentID)
		}
	} else if s.evaluateSilence(a); !a.record.Status.Gone() {
		return 0, nil, picket.Refuse(picket.CodeStateConflict, "Use another agent_id, or deregister that one.",
			"agent %s is %s", reg.AgentID, a.record.Status).
			With("agent_status", string(a.record.Status))
	}
	s.incarnation++
	now := picket.InstantOf(s.now())
	a.record = picket.Agent{
		AgentID:             reg.AgentID,
		RoleID:              reg.RoleID,
		Name:                reg.Name,
		Capabilities:        reg.Capabilities,
		Status:              picket.AgentActive,
		Endpoint:            reg.Endpoint,
		Heartbeat:           reg.Heartbeat.Config(),
		Metadata:            reg.Metadata,
		RegisteredAt:        now,
		LastHeartbeatAt:     now,
		Version:             1,
		Incarnation:         s.incarnation,
		DrainTimeoutSeconds: reg.DrainTimeoutSeconds,
	}
	if reg.Capacity != nil {
		a.record.Capacity.MaxConcurrentTasks = reg.Capacity.MaxConcurrentTasks
	}
	a.commands, a.reason = nil, picket.ReasonRegistered
	a.view.Registrations = append(a.view.Registrations,
		RegistrationView{Registration: reg, At: time.Now(), Incarnation: s.incarnation})
	s.recordHeartbeat(a)
	if once != "" {
		s.registered[once] = a.record
	}
	return http.StatusCreated, a.record, nil
}

// recordHeartbeat notes a sign of life and when its absence is a death.
func (s *Server) recordHeartbeat(a *agent) {
	a.beatAt = s.now()
	a.record.LastHeartbeatAt = picket.InstantOf(a.beatAt)
	if a.alarm != nil {
		a.alarm.Stop()
	}
	a.alarm = time.AfterFunc(time.Duration(a.record.Heartbeat.DeadAfterSeconds)*time.Second+time.Millisecond, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.evaluateSilence(a)
	})
	s.notify()
}

// evaluateSilence makes of an agent's silence what it means.
func (s *Server) evaluateSilence(a *agent) {
	r := &a.record
	silence := s.now().Sub(a.beatAt)
	over := func(seconds int) bool { return silence > time.Duration(seconds)*time.Second }
	if r.Status == picket.AgentActive && over(r.Heartbeat.UnhealthyAfterSeconds) {
		s.transition(a, picket.ReasonHeartbeatTimeout)
	}
	if (r.Status == picket.AgentUnhealthy || r.Status == picket.AgentDraining) && over(r.Heartbeat.DeadAfterSeconds) {
		s.transition(a, picket.ReasonHeartbeatTimeout)
	}
	if r.Status != picket.AgentDraining {
		return
	}
	held := len(s.heldBy(a))
	if late := !s.now().Before(r.DrainDeadlineAt.Time()); late && held > 0 {
		s.transition(a, picket.ReasonDrainTimeout)
	} else if held == 0 && (late || s.now().Sub(a.began) > time.Duration(r.Heartbeat.IntervalSeconds)*time.Second) {
		s.transition(a, picket.ReasonDrainCompleted)
	}
}

// transition is one transition, with what it does to leases.
func (s *Server) transition(a *agent, reason picket.LifecycleReason) {
	to := moves.NextAgentStatus(a.record.Status, reason)
	if to == "" {
		return
	}
	a.record.Status, a.reason = to, reason
	a.record.Version++
	if to == picket.AgentDraining {
		a.began = s.now()
	} else {
		a.record.DrainDeadlineAt = 0
	}
	a.view.Transitions = append(a.view.Transitions, reason)
	if to.Gone() {
		for _, l := range s.heldBy(a) {
			next := picket.TaskQueued
			if reason == picket.ReasonHeartbeatTimeout {
				next = l.task.stateAfterFailure()
			}
			s.end(l, picket.WatchLost, picket.CodeLeaseExpired, next)
		}
	}
	s.notify()
}

// heldBy are the leases of the agent's present incarnation.
func (s *Server) heldBy(a *agent) (held []*lease) {
	for _, l := range s.leases {
		if l.state == picket.WatchHeld && l.agent == a.record.AgentID && l.incarnation == a.record.Incarnation {
			held = append(held, l)
		}
	}
	return held
}

// checkIncarnation refuses an agent that no longer participates, and an incarnation that is not the latest.
func (s *Server) checkIncarnation(a *agent, incarnation int64) error {
	if a.record.Status.Gone() || incarnation > 0 && incarnation < a.record.Incarnation {
		return picket.Refuse(picket.CodeAgentGone, "Stop all work, then register again.", "agent %s is %s",
			a.record.AgentID, a.record.Status).
			With("agent_status", string(a.record.Status)).With("reason", string(a.reason))
	}
	return nil
}

func (s *Server) deregister(a *agent) (int, any, error) {
	if a.record.Status == picket.AgentDead {
		return 0, nil, picket.Refuse(picket.CodeStateConflict, "Nothing is left to do.", "agent %s is dead",
			a.record.AgentID)
	}
	s.transition(a, picket.ReasonDeregistered)
	return http.StatusOK, a.record, nil
}

// checkAgent refuses an acquire of an agent that may take nothing.
func (s *Server) checkAgent(req picket.AcquireRequest) error {
	a := s.agents[req.AgentID]
	if a == nil {
		return nil
	}
	s.evaluateSilence(a)
	if err := s.checkIncarnation(a, req.Incarnation); err != nil {
		return err
	}
	if a.record.Status == picket.AgentDraining {
		return picket.Refuse(picket.CodeAgentDraining, "Finish what runs.", "agent %s is draining", a.record.AgentID)
	}
	return nil
}

// recordAcquire notes that an agent asks for leases.
func (s *Server) recordAcquire(req picket.AcquireRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.agents[req.AgentID]; a != nil {
		a.view.Acquires = append(a.view.Acquires, AcquireView{At: time.Now(), Incarnation: req.Incarnation})
	}
}
