package adapter

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// member is the adapter's place in the registry, through all its sessions.
type member struct {
	*Adapter
	drained func()
	seat    *seat
	clean   bool        // nothing is left of processes that died here
	sweep   func() bool // looks again whether it is so, and ends what is left
	left    bool        // the registry
	off     bool        // the server has no registry
}

// application is one attempt to be registered, however often it is sent.
type application struct {
	reg  picket.Registration
	once string
	sent time.Duration // when it was first sent with an effect, as far as is known
	open bool          // it may have had one
}

// enrol registers, and goes on trying until ctx ends. It answers nil where
// there is nothing to register with.
func (m *member) enrol(ctx context.Context) (*session, error) {
	if m.cfg.Unregistered || m.off {
		return nil, nil
	}
	if m.seat == nil {
		if err := m.sit(ctx); err != nil {
			return nil, err
		}
		if m.cfg.named { // who had the seat may have died after the first look
			m.clean = m.sweep()
		}
	}
	const least = 250 * time.Millisecond
	most := min(max(m.cfg.Health.Interval, time.Second), 15*time.Second)
	var app *application
	for wait := least; ; wait = min(2*wait, most) {
		if app == nil {
			var err error
			if app, err = m.apply(); err != nil {
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
		case noRoute(err):
			m.off = true
			m.cfg.Log.Warn("the server is of a version without a registry: working unregistered", "agent",
				m.cfg.AgentID, "err", err)
			return nil, nil
		case errors.Is(err, picket.CodeStateConflict):
			app = nil
			switch free, err := m.evict(ctx); {
			case err != nil:
				return nil, err
			case free:
				continue
			}
		case errors.Is(err, picket.CodeAgentGone): // it took effect, and has been followed since
			app = nil
		case !again(err) && !errors.Is(err, picket.CodeInternal):
			return nil, err
		default:
			m.cfg.Log.Warn("not registered yet", "agent", m.cfg.AgentID, "err", err)
		}
		if !sleep(ctx, max(wait/2, retryAfter(err))+m.cfg.jitter(wait)) {
			if app != nil && app.open {
				m.withdraw(ctx)
			}
			return nil, ctx.Err()
		}
	}
}

// apply makes a new application. Its instance is noted before it is sent.
func (m *member) apply() (*application, error) {
	instance := newULID(time.Now())
	if err := m.seat.note(instance); err != nil {
		return nil, err
	}
	reg, err := m.cfg.registration(instance)
	return &application{reg: reg, once: newULID(time.Now())}, err
}

// register sends an application. Its effect counts as the first heartbeat, from
// when it may have had it first.
func (m *member) register(ctx context.Context, app *application) (*session, error) {
	now := m.cfg.clock()
	if !app.open {
		app.sent = now
	}
	try, cancel := context.WithTimeout(ctx, hurry)
	defer cancel()
	agent, err := m.client.Register(try, app.reg, WithIdempotencyKey(app.once))
	if err != nil {
		app.open = app.open || errors.Is(err, picket.ErrUnknown)
		return nil, err
	}
	m.cfg.Log.Info("registered", "agent", agent.AgentID, "incarnation", agent.Incarnation)
	return newSession(m.Adapter, agent.Incarnation, app.sent, m.drained), nil
}

// withdraw takes back a registration of which nobody knows whether it took
// effect, for an adapter that is drained before it has begun.
func (m *member) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	m.left, _ = m.evict(ctx)
}

// evict takes the place of a registration that was made from this state
// directory, and of which nobody is left. Of any other that lives, it waits for
// the end: two that take turns would end each other's work. An id of another
// key is none to wait for: it stays with that key.
func (m *member) evict(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, hurry)
	defer cancel()
	there, err := m.client.Agent(ctx, m.cfg.AgentID)
	switch {
	case errors.Is(err, picket.CodeForbidden):
		return false, picket.Refuse(picket.CodeForbidden,
			"Start this adapter with an agent id of its own, or with the key that registered that one.",
			"the agent id %s is taken: another key has registered it", m.cfg.AgentID).Because(err)
	case err != nil:
		return false, nil
	}
	var about map[string]any
	_ = json.Unmarshal(there.Metadata, &about)
	instance, _ := about[instanceKey].(string)
	if !m.clean || !m.seat.mine(instance) {
		m.seat.warn(m.cfg.Log, there)
		return false, nil
	}
	m.cfg.Log.Info("ending a registration of this state directory that nobody holds any more", "agent", there.AgentID,
		"incarnation", there.Incarnation)
	// Late or repeated, this must not meet the registration after that one.
	_, err = m.client.AgentStatus(ctx, m.cfg.AgentID, there.Version,
		picket.AgentStatusChange{Status: picket.AgentDeregistered, Incarnation: there.Incarnation})
	return err == nil, nil
}
