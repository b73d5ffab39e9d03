package web

import (
	"net"
	"net/http"
	"sync"
)

// unusedConns remembers connections on which nothing has been asked yet. Clients
// open such spare ones; a server that stops would wait five seconds for each.
type unusedConns struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// track is the server's ConnState hook.
func (s *unusedConns) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateNew {
		s.conns[c] = struct{}{}
		return
	}
	delete(s.conns, c)
}

// close ends them all.
func (s *unusedConns) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}
