package devredis

import (
	"net"
	"sync"
	"time"
)

// Buffered makes a connection of an in-process store take what is written to
// it at once, as a socket would. A bare net.Pipe has no buffer: the store
// answers the first command of a batch before it has read the rest, and both
// sides would write at each other until one times out.
func Buffered(c net.Conn) net.Conn {
	b := &bufferedConn{Conn: c}
	b.cond.L = &b.mu
	go b.pump()
	return b
}

type bufferedConn struct {
	net.Conn
	mu     sync.Mutex
	cond   sync.Cond // there is something in out, or the end
	out    []byte
	closed bool
	err    error // of the pump
}

func (b *bufferedConn) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, net.ErrClosed
	}
	if b.err != nil {
		return 0, b.err
	}
	b.out = append(b.out, p...)
	b.cond.Signal()
	return len(p), nil
}

// pump writes what has gathered until the connection is closed.
func (b *bufferedConn) pump() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil {
		for len(b.out) == 0 && !b.closed {
			b.cond.Wait()
		}
		if b.closed {
			return
		}
		chunk := b.out
		b.out = nil
		b.mu.Unlock()
		_, err := b.Conn.Write(chunk)
		b.mu.Lock()
		b.err = err
	}
}

func (b *bufferedConn) Close() error {
	b.mu.Lock()
	b.closed = true
	b.cond.Signal()
	b.mu.Unlock()
	return b.Conn.Close()
}

// A write never waits, so only reading has a deadline.
func (b *bufferedConn) SetWriteDeadline(time.Time) error { return nil }
func (b *bufferedConn) SetDeadline(t time.Time) error    { return b.SetReadDeadline(t) }
