package web

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// Listen bounds the connections of l. Put TLS on top of what it returns, not
// below.
func (g *Guard) Listen(l net.Listener) net.Listener {
	return &guardedListener{Listener: l, guard: g, closed: make(chan struct{})}
}

type guardedListener struct {
	net.Listener
	guard  *Guard
	closed chan struct{}
}

func (l *guardedListener) Close() error {
	err := l.Listener.Close()
	if err == nil {
		close(l.closed)
	}
	return err
}

// Accept returns the next connection that there is room for. It does not fail
// because the process has no descriptor left.
func (l *guardedListener) Accept() (net.Conn, error) {
	for pause := acceptBackoff; ; pause = min(2*pause, time.Second) {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			if admitted := l.guard.admit(c); admitted != nil {
				return admitted, nil
			}
			pause = acceptBackoff
			continue
		case !isTemporary(err):
			return nil, err
		case l.guard.acceptFailed(err):
			pause = acceptBackoff
		}
		select {
		case <-l.closed:
			return nil, net.ErrClosed
		case <-time.After(pause):
		}
	}
}

// acceptBackoff is how long Accept waits after an error before it tries again, so
// that a closed connection has given its descriptor back.
const acceptBackoff = time.Millisecond

// isTemporary reports whether the error is temporary.
func isTemporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED,
		syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// acceptFailed counts an error of Accept, and closes some connections to get
// their descriptors: a quarter of those without a credential, or else one that
// is idle. It reports whether it has closed any.
func (g *Guard) acceptFailed(err error) bool {
	g.mu.Lock()
	g.failed++
	g.warn("accept", "a connection cannot be accepted", "err", err)
	var victims []*guardedConn
	for range g.unknown.len()/4 + 1 {
		victim := g.unknown.oldest()
		if victim == nil {
			victim = g.known.oldestIdle()
		}
		if victim != nil {
			victims = append(victims, g.drop(victim, ClosedNoFiles))
		}
	}
	g.mu.Unlock()
	for _, v := range victims {
		_ = v.Conn.Close()
	}
	return len(victims) > 0
}

// admit makes room for a new connection. It returns nil, and closes the new
// one, when every other connection is at work for a credential.
func (g *Guard) admit(raw net.Conn) net.Conn {
	c := &guardedConn{Conn: raw, guard: g}
	g.mu.Lock()
	victims, room := g.makeRoom(addressOf(raw))
	if room {
		g.all[c] = struct{}{}
		g.join(c, g.groupFor(groupID{KindUnknown, addressOf(raw)}))
	} else {
		g.closed[ClosedFull]++
		g.warn("full", "a new connection was closed, because all others are in use", "limit", g.limits.Connections)
	}
	g.mu.Unlock()
	for _, v := range victims {
		_ = v.Conn.Close()
	}
	if !room {
		_ = raw.Close()
		return nil
	}
	return c
}

// makeRoom drops connections until one more connection without a credential from
// this address fits. The guard is locked.
func (g *Guard) makeRoom(address string) (victims []*guardedConn, room bool) {
	if in := g.groups[groupID{KindUnknown, address}]; in != nil && in.len() >= in.limit {
		victims = append(victims, g.drop(in.oldest(), ClosedAddress))
	}
	if g.unknown.len() >= g.limits.Unknown {
		victims = append(victims, g.drop(g.unknown.oldest(), ClosedUnknown))
	}
	if len(g.all) < g.limits.Connections {
		return victims, true
	}
	victim := g.unknown.oldest()
	if victim == nil {
		victim = g.known.oldestIdle()
	}
	if victim == nil {
		return victims, false
	}
	return append(victims, g.drop(victim, ClosedFull)), true
}
