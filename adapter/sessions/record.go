package sessions

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/files"
)

// sessionRecord is what the state directory says about a session.
type sessionRecord struct {
	SessionID      string        `json:"sessionId"`
	Preset         agents.Preset `json:"preset"`
	LastActivityAt time.Time     `json:"lastActivityAt"` // of a prompt; zero: never
	// Messages were read for the agent, and it has not seen them.
	Messages []picket.Message `json:"messages,omitempty"`
}

const (
	recordFile      = "session.json"
	processDir      = "process"      // the record of the process
	conversationDir = "conversation" // of the coding agent
	workDir         = "work"         // current directory of the processes, if no other is named
)

func (k *Keeper) sessionsDir() string { return filepath.Join(k.cfg.StateDir, "sessions") }

// openSessions finds the sessions of an earlier keeper, oldest first, and makes those that are missing.
func (k *Keeper) openSessions() (all []*session, err error) {
	entries, err := os.ReadDir(k.sessionsDir())
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(k.sessionsDir(), e.Name())
		if picket.CheckID("sessionId", "asession", e.Name()) != nil {
			continue
		}
		k.killLeftovers(e.Name(), dir)
		var r sessionRecord
		err := files.ReadJSON(filepath.Join(dir, recordFile), &r)
		if err == nil && r.SessionID == e.Name() && r.Preset == k.cfg.Preset && len(all) < k.cfg.Max {
			all = append(all, k.newSession(r))
			continue
		}
		k.cfg.Log.Info("an agent session has ended: it cannot be read, has another preset, or there are too many",
			"session", e.Name())
		if err := os.RemoveAll(dir); err != nil {
			k.cfg.Log.Warn("an agent session that has ended cannot be deleted", "session", e.Name(), "err", err)
		}
	}
	for len(all) < k.cfg.Max {
		id := "asession_" + ulid.MustNew(ulid.Now(), rand.Reader).String()
		all = append(all, k.newSession(sessionRecord{SessionID: id, Preset: k.cfg.Preset}))
	}
	for _, s := range all {
		if err := s.prepare(); err != nil {
			return nil, fmt.Errorf("keep a session: %w", err)
		}
	}
	return all, nil
}

// killLeftovers ends what a keeper that was killed has left, where no shim has done it.
func (k *Keeper) killLeftovers(id, dir string) {
	left, err := process.ReadRecord(filepath.Join(dir, processDir))
	if err != nil || left.BootID != process.BootID() {
		return
	}
	if err := process.KillLeftovers(left, id, requestTimeout); err != nil {
		k.cfg.Log.Warn("an earlier process of an agent session does not end", "session", id, "err", err)
	}
}

// prepare makes the directories of a session and writes its record.
func (s *session) prepare() error {
	for _, dir := range []string{s.dir, filepath.Join(s.dir, processDir), filepath.Join(s.dir, workDir)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.save()
}

// save writes the record. The caller has locked the session.
func (s *session) save() error {
	return files.WritePrivateJSON(filepath.Join(s.dir, recordFile), s.record)
}

// saveOrWarn is save for what goes on without a record. The caller has locked the session.
func (s *session) saveOrWarn() {
	if errors.Is(s.closed, errStopped) {
		return // its directory is deleted
	}
	if err := s.save(); err != nil {
		s.k.cfg.Log.Warn("the record of an agent session cannot be written", "session", s.id, "err", err)
	}
}

// workDir is the current directory of the processes.
func (s *session) workDir() string {
	if s.k.cfg.Dir != "" {
		return s.k.cfg.Dir
	}
	return filepath.Join(s.dir, workDir)
}
