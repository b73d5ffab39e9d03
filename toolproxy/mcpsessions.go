package toolproxy

import "sync"

// sessions are the ids of MCP sessions that are open here. The zero value is
// ready.
type sessions struct {
	mu       sync.Mutex
	live     map[string]string // run by id
	of       map[string]int    // by run, with those that are being opened
	total    int               // of all runs
	finished []string          // ended by their client, the newest last
	watchers sync.WaitGroup
	closed   bool // nothing is watched any more
}

// maxFinished bounds how many ended sessions are told apart from those of
// other proxies.
const maxFinished = 1024

// reserve makes room for one more session of a run, or reports that there is none.
func (s *sessions) reserve(run string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= maxSessions || s.of[run] >= maxRunSessions {
		return false
	}
	if s.live == nil {
		s.live, s.of = map[string]string{}, map[string]int{}
	}
	s.of[run]++
	s.total++
	return true
}

// begin notes a session for which there was room. If the id is "", none was
// opened.
func (s *sessions) begin(id, run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == "" {
		s.release(run)
		return
	}
	s.live[id] = run
}

func (s *sessions) release(run string) {
	s.total--
	if s.of[run]--; s.of[run] == 0 {
		delete(s.of, run)
	}
}

func (s *sessions) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, open := s.live[id]
	return open
}

func (s *sessions) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(id)
}

func (s *sessions) drop(id string) {
	if run, open := s.live[id]; open {
		delete(s.live, id)
		s.release(run)
	}
}

// end remembers that the client itself has ended its session.
func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(id)
	if s.finished = append(s.finished, id); len(s.finished) > maxFinished {
		s.finished = s.finished[1:]
	}
}

func (s *sessions) ended(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.finished {
		if f == id {
			return true
		}
	}
	return false
}

// watch runs f beside, unless wait was called before; wait waits for it. A
// request may still be on its way out when the proxy is closed.
func (s *sessions) watch(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.watchers.Go(f)
	}
}

func (s *sessions) wait() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.watchers.Wait()
}
