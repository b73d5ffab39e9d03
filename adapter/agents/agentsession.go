package agents

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/picket-dev/picket/internal/files"
)

// agentSession is where a coding agent's own session on a task is noted, so that
// the next run of the task on this machine goes on with it. Without a directory it
// notes nothing.
type agentSession struct {
	dir    string // of the task and the agent; it stays as long as the session
	record sessionRecord
	resume string // the id of the session to go on with; empty: a new one

	mu sync.Mutex
}

type sessionRecord struct {
	Session   string `json:"session"`
	Workspace string `json:"workspace"` // agents find a session again where it began
	RunID     string `json:"runId"`
}

const sessionFile = "session.json"

// sessionTTL is how long a session that nobody goes on with is kept.
const sessionTTL = 7 * 24 * time.Hour

// openAgentSession finds what the run before has left. All that fails here only
// makes the run begin with a new session.
func openAgentSession(root string, p Preset, run Run) *agentSession {
	if root == "" {
		return &agentSession{}
	}
	deleteOldSessions(root, time.Now())
	s := &agentSession{
		dir:    filepath.Join(root, run.Lease.TaskID, string(p)),
		record: sessionRecord{Workspace: run.Dir, RunID: run.Lease.RunID},
	}
	var before sessionRecord
	err := files.ReadJSON(filepath.Join(s.dir, sessionFile), &before)
	if err == nil && before.Workspace == run.Dir {
		s.resume = before.Session
	}
	return s
}

// save keeps the id of the session that the agent works in.
func (s *agentSession) save(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" || s.record.Session == id || len(id) > 128 {
		return
	}
	s.record.Session = id
	_ = files.WritePrivateJSON(filepath.Join(s.dir, sessionFile), s.record) // else the next run starts a new session
}

// remove has the next run begin with a session of its own.
func (s *agentSession) remove() {
	if s.dir != "" {
		_ = os.Remove(filepath.Join(s.dir, sessionFile))
	}
}

// deleteOldSessions deletes those of tasks that have not been worked on for long.
func deleteOldSessions(root string, now time.Time) {
	tasks, _ := os.ReadDir(root)
	for _, t := range tasks {
		dir := filepath.Join(root, t.Name())
		if last := lastSessionChange(dir); !last.IsZero() && now.Sub(last) > sessionTTL {
			_ = os.RemoveAll(dir)
		}
	}
}

// lastSessionChange is when a session of a task was last noted, or its directory made.
func lastSessionChange(dir string) (last time.Time) {
	notes, _ := filepath.Glob(filepath.Join(dir, "*", sessionFile))
	for _, name := range append(notes, dir) {
		if info, err := os.Stat(name); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}
