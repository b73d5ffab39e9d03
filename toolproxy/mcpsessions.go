package toolproxy

import "sync"

// sessions are the ids of MCP sessions that are open here. The zero value is
// ready.
type sessions struct {
	mu       sync.Mutex
	live     map[string]bool
	finished []string // ended by their client, the newest last
	watchers sync.WaitGroup
}

// maxFinished bounds how many ended sessions are told apart from those of
// other proxies.
const maxFinished = 1024

// begin notes a session; "" is none.
func (s *sessions) begin(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		s.live = map[string]bool{}
	}
	if id != "" {
		s.live[id] = true
	}
}

func (s *sessions) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[id]
}

func (s *sessions) room() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live) < maxSessions
}

func (s *sessions) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, id)
}

// end remembers that the client itself has ended its session.
func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, id)
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

// watch runs f beside; wait waits for it.
func (s *sessions) watch(f func()) { s.watchers.Go(f) }

func (s *sessions) wait() { s.watchers.Wait() }
