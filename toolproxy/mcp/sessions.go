package mcp

import (
	"slices"
	"sync"
)

// sessionTable holds the ids of the MCP sessions that are open here. The zero value is
// ready.
type sessionTable struct {
	mu         sync.Mutex
	runByID    map[string]string // run by id
	countByRun map[string]int    // by run, with those that are being opened
	total      int               // of all runs
	finished   []string          // ended by their client, the newest last
	watchers   sync.WaitGroup
	closed     bool // nothing is watched any more
}

// Bounds of the sessions that are kept open. Later clients are served without one.
const (
	maxSessions       = 1024
	maxSessionsPerRun = 16
)

// maxFinished bounds how many ended sessions are told apart from those of
// other proxies.
const maxFinished = 1024

// admit makes room for one more session of a run, or reports that there is none.
func (s *sessionTable) admit(run string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= maxSessions || s.countByRun[run] >= maxSessionsPerRun {
		return false
	}
	if s.runByID == nil {
		s.runByID, s.countByRun = map[string]string{}, map[string]int{}
	}
	s.countByRun[run]++
	s.total++
	return true
}

// add notes a session for which there was room. If the id is "", none was
// opened.
func (s *sessionTable) add(id, run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == "" {
		s.uncount(run)
		return
	}
	s.runByID[id] = run
}

func (s *sessionTable) uncount(run string) {
	s.total--
	if s.countByRun[run]--; s.countByRun[run] == 0 {
		delete(s.countByRun, run)
	}
}

func (s *sessionTable) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, open := s.runByID[id]
	return open
}

func (s *sessionTable) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(id)
}

func (s *sessionTable) remove(id string) {
	if run, open := s.runByID[id]; open {
		delete(s.runByID, id)
		s.uncount(run)
	}
}

// finish remembers that the client itself has ended its session.
func (s *sessionTable) finish(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(id)
	if s.finished = append(s.finished, id); len(s.finished) > maxFinished {
		s.finished = s.finished[1:]
	}
}

func (s *sessionTable) isFinished(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.finished, id)
}

// goWatch runs f beside, unless wait was called before; wait waits for it. A
// request may still be on its way out when the proxy is closed.
func (s *sessionTable) goWatch(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.watchers.Go(f)
	}
}

func (s *sessionTable) wait() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.watchers.Wait()
}
