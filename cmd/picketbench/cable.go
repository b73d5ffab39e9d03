package main

import (
	"fmt"
	"net"
	"strings"
	"sync"
)

// cable carries connections to a server until it is cut. Then nothing comes
// through any more and neither side is told, not even of the other's end: what
// is left of a host whose power failed.
type cable struct {
	listener net.Listener
	to       string
	severed  chan struct{}
	cut      func()

	mu      sync.Mutex
	conns   []net.Conn
	over    bool
	running sync.WaitGroup
}

func layCable(url string) (*cable, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	c := &cable{listener: l, to: strings.TrimPrefix(url, "http://"), severed: make(chan struct{})}
	c.cut = sync.OnceFunc(func() { close(c.severed) })
	c.running.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			c.running.Go(func() { c.carry(from) })
		}
	})
	return c, nil
}

func (c *cable) url() string { return "http://" + c.listener.Addr().String() }

// remove ends every connection.
func (c *cable) remove() {
	c.cut()
	c.listener.Close()
	c.mu.Lock()
	c.over = true
	for _, conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
	c.running.Wait()
}

// keep has remove close a connection.
func (c *cable) keep(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, conn)
	if c.over {
		conn.Close()
	}
	return !c.over
}

func (c *cable) isCut() bool {
	select {
	case <-c.severed:
		return true
	default:
		return false
	}
}

func (c *cable) carry(from net.Conn) {
	if !c.keep(from) || c.isCut() {
		return
	}
	to, err := net.Dial("tcp", c.to)
	if err != nil {
		from.Close()
		return
	}
	if !c.keep(to) {
		return
	}
	c.running.Go(func() { c.pump(to, from) })
	c.pump(from, to)
}

// pump copies until an end, which it tells the other side only while the cable
// is whole.
func (c *cable) pump(from, to net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if c.isCut() {
			return
		}
		if n > 0 {
			if _, werr := to.Write(b[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			from.Close()
			to.Close()
			return
		}
	}
}
