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

// seat is an agent id in the hands of this process. One that was given, rather
// than made here, has a directory under a lock that the kernel drops when the
// process ends: who gets it knows that the process before is dead, and finds
// there what that one had registered as.
type seat struct {
	dir       string // empty: there is none
	lock      *os.File
	instances []string // of registrations of whom nobody is left, or that are our own
	warned    bool
}

// seatFile holds a seatNote.
const seatFile = "registered.json"

type seatNote struct {
	Instances []string `json:"instances"`
}

// seatsDir holds one directory for each given agent id.
const seatsDir = "agents"

// sit takes the seat of the agent id, and waits while another process here has
// it.
func (m *member) sit(ctx context.Context) error {
	if m.seat != nil {
		return nil
	}
	if !m.cfg.named {
		m.seat = &seat{}
		return nil
	}
	dir := filepath.Join(m.cfg.StateDir, seatsDir, m.cfg.AgentID)
	for said := false; ; {
		s, err := takeSeat(ctx, dir)
		switch {
		case err == nil:
			m.seat = s
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

// takeSeat locks a seat's directory, which its holder before may have deleted
// under the lock.
func takeSeat(ctx context.Context, dir string) (*seat, error) {
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
				s := &seat{dir: dir, lock: lock}
				s.read()
				return s, nil
			}
		}
		lock.Close()
	}
}

// read takes over what the process before has noted. Without locks nobody knows
// whether it is dead.
func (s *seat) read() {
	var was seatNote
	if locks && readJSON(s.dir, seatFile, &was) == nil {
		s.instances = was.Instances
	}
}

// note writes an instance down, before it is registered.
func (s *seat) note(instance string) error {
	const most = 16
	s.instances = append(s.instances, instance)
	s.instances = s.instances[max(len(s.instances)-most, 0):]
	if s.dir == "" {
		return nil
	}
	return replaceJSON(s.dir, seatFile, seatNote{s.instances})
}

// mine reports whether nobody but this process can be behind an instance.
func (s *seat) mine(instance string) bool { return slices.Contains(s.instances, instance) }

// warn says, once, whom a registration waits for.
func (s *seat) warn(log *slog.Logger, there picket.Agent) {
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

// leaveSeat gives the id to whoever comes next; one that is not in the registry
// any more leaves nothing behind.
func (m *member) leaveSeat() {
	s := m.seat
	if s == nil || s.dir == "" {
		return
	}
	if m.left {
		_ = os.RemoveAll(s.dir)
	}
	s.lock.Close()
}
