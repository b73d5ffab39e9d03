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

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/internal/files"
)

// registrar is the adapter's place in the registry, through all its registrations.
type registrar struct {
	*Adapter
	onDrain           func()
	idLock            *agentIDLock
	orphansEnded      bool        // nothing is left of processes that died here
	sweepOrphansAgain func() bool // looks again whether it is so, and ends what is left
	deregistered      bool        // the registry
	noRegistry        bool        // the server has no registry
}

// registrationAttempt is one attempt to be registered, however often it is sent.
type registrationAttempt struct {
	reg            picket.Registration
	idempotencyKey string
	sent           time.Duration // when it was first sent with an effect, as far as is known
	maybeSent      bool          // it may have had one
}

// registerWithRetry registers, and goes on trying until ctx ends. It answers nil where
// there is nothing to register with.
func (m *registrar) registerWithRetry(ctx context.Context) (*registration, error) {
	if m.cfg.Unregistered || m.noRegistry {
		return nil, nil
	}
	if m.idLock == nil {
		if err := m.lockAgentID(ctx); err != nil {
			return nil, err
		}
		if m.cfg.agentIDGiven { // its holder may have died after the first look
			m.orphansEnded = m.sweepOrphansAgain()
		}
	}
	pace := backoff{
		least:  250 * time.Millisecond,
		most:   min(max(m.cfg.Health.Interval, time.Second), 15*time.Second),
		jitter: m.cfg.jitter,
	}
	var app *registrationAttempt
	for {
		if app == nil {
			var err error
			if app, err = m.newAttempt(); err != nil {
				return nil, err
			}
		}
		s, err := m.register(ctx, app)
		switch {
		case err == nil:
			return s, nil
		case ctx.Err() != nil:
			m.withdraw(ctx)
			return nil, ctx.Err()
		case routeMissing(err):
			m.noRegistry = true
			m.cfg.Log.Warn("the server is of a version without a registry: working unregistered", "agent",
				m.cfg.AgentID, "err", err)
			return nil, nil
		case errors.Is(err, picket.CodeStateConflict):
			app = nil
			switch free, err := m.deregisterStale(ctx); {
			case err != nil:
				return nil, err
			case free:
				continue
			}
		case errors.Is(err, picket.CodeAgentGone): // it took effect, and has been followed since
			app = nil
		case m.cfg.Attached && (errors.Is(err, picket.CodeQuota) || errors.Is(err, picket.CodeForbidden)):
			m.noRegistry = true // its task matters more than its record
			m.cfg.Log.Warn("not registered: the lease ends at its own deadline only", "agent", m.cfg.AgentID, "err", err)
			return nil, nil
		case !isRetryable(err) && !errors.Is(err, picket.CodeInternal):
			return nil, err
		default:
			m.cfg.Log.Warn("not registered yet", "agent", m.cfg.AgentID, "err", err)
		}
		if !pace.pauseAfter(ctx, err) {
			if app != nil && app.maybeSent {
				m.withdraw(ctx)
			}
			return nil, ctx.Err()
		}
	}
}

// newAttempt makes a new application. Its instance is noted before it is sent.
func (m *registrar) newAttempt() (*registrationAttempt, error) {
	instance := newULID()
	if err := m.idLock.addInstance(instance); err != nil {
		return nil, err
	}
	reg, err := m.cfg.registrationRequest(instance)
	return &registrationAttempt{reg: reg, idempotencyKey: newULID()}, err
}

// register sends an application. Its effect counts as the first heartbeat, from
// when it may have had it first.
func (m *registrar) register(ctx context.Context, app *registrationAttempt) (*registration, error) {
	now := m.cfg.clock()
	if !app.maybeSent {
		app.sent = now
	}
	try, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	agent, err := m.client.Agents.Register(try, app.reg, client.WithIdempotencyKey(app.idempotencyKey))
	if err != nil {
		app.maybeSent = app.maybeSent || errors.Is(err, picket.ErrUnknown)
		return nil, err
	}
	m.cfg.Log.Info("registered", "agent", agent.AgentID, "incarnation", agent.Incarnation)
	return newRegistration(&m.cfg, m.client, agent.Incarnation, app.sent, m.onDrain), nil
}

// withdraw takes back a registration of which nobody knows whether it took
// effect, for an adapter that is drained before it has begun.
func (m *registrar) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deregisterTimeout)
	defer cancel()
	m.deregistered, _ = m.deregisterStale(ctx)
}

// deregisterStale removes a registration that was made from this state directory and whose process
// is dead. If another registration of the id is alive, it waits for its end, because two adapters
// that take turns would end each other's work. It does not wait for an id that belongs to another
// key.
func (m *registrar) deregisterStale(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	there, err := m.client.Agents.Get(ctx, m.cfg.AgentID)
	switch {
	case errors.Is(err, picket.CodeForbidden):
		return false, picket.Refuse(picket.CodeForbidden,
			"Start this adapter with an agent id of its own, or with the key that registered that one.",
			"the agent id %s is taken: another key has registered it", m.cfg.AgentID).WithCause(err)
	case err != nil:
		return false, nil
	}
	var about map[string]any
	_ = json.Unmarshal(there.Metadata, &about)
	instance, _ := about[instanceKey].(string)
	if !m.orphansEnded || !slices.Contains(m.idLock.instances, instance) {
		m.idLock.warnTaken(m.cfg.Log, there)
		return false, nil
	}
	m.cfg.Log.Info("ending a registration of this state directory that nobody holds any more", "agent", there.AgentID,
		"incarnation", there.Incarnation)
	// Late or repeated, this must not meet the registration after that one.
	_, err = m.client.Agents.ChangeStatus(ctx, m.cfg.AgentID, there.Version,
		picket.AgentStatusChange{Status: picket.AgentDeregistered, Incarnation: there.Incarnation})
	return err == nil, nil
}

// agentIDLock is this process's exclusive use of an agent id. A configured id has a directory and a
// lock that the kernel drops when the process ends. The next process that gets the lock knows that
// the earlier one is dead, and finds in the directory how it was registered.
type agentIDLock struct {
	dir       string // empty: there is none
	lock      *os.File
	instances []string // of registrations whose process is dead, or that are our own
	warned    bool
}

// agentIDRecordFile holds a agentIDRecord.
const agentIDRecordFile = "registered.json"

type agentIDRecord struct {
	Instances []string `json:"instances"`
}

// agentIDsDir holds one directory for each given agent id.
const agentIDsDir = "agents"

// lockAgentID takes the lock of the agent id, and waits while another process on this machine has
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
		case !errors.Is(err, files.ErrLocked):
			return picket.Invalid("StateDir", "Name a directory that you may write to.",
				"the directory of agent %s cannot be locked: %v", m.cfg.AgentID, err)
		case !said:
			said = true
			m.cfg.Log.Warn("another adapter on this machine has this agent id: waiting for its end", "agent",
				m.cfg.AgentID,
				"remedy", "end it, or start this one with an agent id of its own")
		}
	}
}

// lockAgentIDDir locks the directory of an agent id, which its holder before may have deleted
// under the lock.
func lockAgentIDDir(ctx context.Context, dir string) (*agentIDLock, error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		lock, err := files.LockDir(ctx, dir, 5*time.Second)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if mine, err := lock.Stat(); err == nil {
			if there, err := os.Stat(dir); err == nil && os.SameFile(mine, there) {
				// What the process before has noted. Without locks nobody knows whether it is dead.
				var was agentIDRecord
				s := &agentIDLock{dir: dir, lock: lock}
				if files.CanLock && files.ReadJSON(filepath.Join(dir, agentIDRecordFile), &was) == nil {
					s.instances = was.Instances
				}
				return s, nil
			}
		}
		lock.Close()
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
	return files.WriteJSON(filepath.Join(s.dir, agentIDRecordFile), agentIDRecord{s.instances})
}

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

// unlockAgentID releases the lock of the id. If the id is not in the registry any more, its
// directory is deleted.
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
