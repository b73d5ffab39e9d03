package agents

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/files"
)

// agentSession is where a coding agent's own session on a task is noted, so that
// the next run of the task on this machine goes on with it. Without a directory it
// notes nothing.
type agentSession struct {
	dir    string // of the task and the agent; it stays as long as the session
	record sessionRecord
	resume string    // the id of the session to go on with; empty: a new one
	before usedTotal // by the conversation, when this began
	shared bool      // with prompts outside of runs

	mu sync.Mutex
}

type sessionRecord struct {
	Session   string    `json:"session"`
	Workspace string    `json:"workspace"` // agents find a session again where it began
	RunID     string    `json:"runId"`
	Used      usedTotal `json:"used"` // as the agent has told last
}

// usedTotal is what a session has used since it began.
type usedTotal struct {
	Tokens int64        `json:"tokens"`
	USD    budget.Money `json:"usd"`
}

// Conversation is that of an agent session, whose prompts and runs go on with it one after the other. The zero
// value stands for none.
type Conversation struct {
	Dir       string // where it is noted, beside the configuration of the agent
	Workspace string // the current directory of prompts
}

// openConversation finds what the prompt or the run before has left. dir is the current directory of the agent
// now. Agents that find a conversation only where it began start a new one elsewhere, which is not noted.
func openConversation(c Conversation, p Preset, dir string) *agentSession {
	s := &agentSession{dir: c.Dir, record: sessionRecord{Workspace: c.Workspace}, shared: true}
	if dir != c.Workspace && !p.spec().resumesAnywhere {
		s.dir = ""
		return s
	}
	var before sessionRecord
	err := files.ReadJSON(filepath.Join(c.Dir, sessionFile), &before)
	if err == nil && before.Workspace == c.Workspace {
		s.resume, s.before, s.record.Used = before.Session, before.Used, before.Used
	}
	return s
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
	if s.record.Session = id; id != s.resume {
		s.record.Used, s.before = usedTotal{}, usedTotal{}
	}
	_ = files.WritePrivateJSON(filepath.Join(s.dir, sessionFile), s.record) // else the next run starts a new session
}

// saveUsed keeps what the session has used, and returns a report of a shared one as that of this run alone.
func (s *agentSession) saveUsed(u picket.UsageReport) picket.UsageReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shared || u.Scope != usageScopeSession {
		return u
	}
	s.record.Used = usedTotal{max(s.record.Used.Tokens, u.Tokens), max(s.record.Used.USD, u.USD)}
	if s.dir != "" {
		// If this fails, the next run is charged for this one, too.
		_ = files.WritePrivateJSON(filepath.Join(s.dir, sessionFile), s.record)
	}
	u.Scope, u.Tokens, u.USD = usageScopeRun, max(0, u.Tokens-s.before.Tokens), max(0, u.USD-s.before.USD)
	return u
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
