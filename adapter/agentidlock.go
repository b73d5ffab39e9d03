package adapter

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/picket-dev/picket"
)

// agentIDLock is an agent id in the hands of this process. One that was given, rather
// than made here, has a directory under a lock that the kernel drops when the
// process ends: who gets it knows that the process before is dead, and finds
// there what that one had registered as.
type agentIDLock struct {
	dir       string // empty: there is none
	lock      *os.File
	instances []string // of registrations of whom nobody is left, or that are our own
	warned    bool
}

// agentIDRecordFile holds a agentIDRecord.
const agentIDRecordFile = "registered.json"

type agentIDRecord struct {
	Instances []string `json:"instances"`
}

// agentIDsDir holds one directory for each given agent id.
const agentIDsDir = "agents"

// lockAgentID takes the seat of the agent id, and waits while another process here has
// it.
func (m *registrar) lockAgentID(ctx context.Context) error {
	if m.idLock != nil {
		return nil
	}
	if !m.cfg.agentIDGiven {
		m.idLock = &agentIDLock{}
		return nil
	}
	dir := filepath.Join(m.cfg.StateDir, agentIDsDir, m.cfg.AgentID)
	for said := false; ; {
		s, err := lockAgentIDDir(ctx, dir)
		switch {
		case err == nil:
			m.idLock = s
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, errInUse):
			return picket.Invalid("StateDir", "Name a directory that you may write to.",
				"the seat of agent %s cannot be taken: %v", m.cfg.AgentID, err)
		case !said:
			said = true
			m.cfg.Log.Warn("another adapter on this machine has this agent id: waiting for its end", "agent",
				m.cfg.AgentID,
				"remedy", "end it, or start this one with an agent id of its own")
		}
	}
}

// lockAgentIDDir locks a seat's directory, which its holder before may have deleted
// under the lock.
func lockAgentIDDir(ctx context.Context, dir string) (*agentIDLock, error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		lock, err := flock(ctx, dir, 5*time.Second)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if mine, err := lock.Stat(); err == nil {
			if there, err := os.Stat(dir); err == nil && os.SameFile(mine, there) {
				s := &agentIDLock{dir: dir, lock: lock}
				s.loadInstances()
				return s, nil
			}
		}
		lock.Close()
	}
}

// loadInstances takes over what the process before has noted. Without locks nobody knows
// whether it is dead.
func (s *agentIDLock) loadInstances() {
	var was agentIDRecord
	if canLock && readJSON(s.dir, agentIDRecordFile, &was) == nil {
		s.instances = was.Instances
	}
}

// addInstance writes an instance down, before it is registered.
func (s *agentIDLock) addInstance(instance string) error {
	const most = 16
	s.instances = append(s.instances, instance)
	s.instances = s.instances[max(len(s.instances)-most, 0):]
	if s.dir == "" {
		return nil
	}
	return replaceJSON(s.dir, agentIDRecordFile, agentIDRecord{s.instances})
}

// owns reports whether nobody but this process can be behind an instance.
func (s *agentIDLock) owns(instance string) bool { return slices.Contains(s.instances, instance) }

// warnTaken says, once, whom a registration waits for.
func (s *agentIDLock) warnTaken(log *slog.Logger, there picket.Agent) {
	if s.warned {
		return
	}
	s.warned = true
	log.Warn("this agent id is alive elsewhere: waiting until it is gone", "agent", there.AgentID, "status",
		there.Status,
		"dead_after_seconds", there.Heartbeat.DeadAfterSeconds, "last_heartbeat", there.LastHeartbeatAt.String(),
		"remedy", "start this one with an agent id of its own, or end the other one: picket agent deregister "+
			there.AgentID)
}

// unlockAgentID gives the id to whoever comes next; one that is not in the registry
// any more leaves nothing behind.
func (m *registrar) unlockAgentID() {
	s := m.idLock
	if s == nil || s.dir == "" {
		return
	}
	if m.deregistered {
		_ = os.RemoveAll(s.dir)
	}
	s.lock.Close()
}
