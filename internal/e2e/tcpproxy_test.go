//go:build linux

package e2e

import (
	"net"
	"strings"
	"sync"
)

// tcpProxy passes connections on to a server until it is cut. Then it is a network
// that loses everything without a word: connections are opened, nothing comes
// through, and nobody is told. What was on its way arrives when it is healed, as
// from a TCP that sent it again all the while. It needs no rights.
type tcpProxy struct {
	url string

	mu    sync.Mutex
	open  chan struct{} // closed while bytes pass
	conns map[net.Conn]struct{}
	over  bool
}

// newTCPProxy lays one that lasts until the processes of the world have ended.
func (w *testEnv) newTCPProxy(to string) *tcpProxy {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	f := &tcpProxy{url: "http://" + l.Addr().String(), open: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	close(f.open)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { f.pass(from, strings.TrimPrefix(to, "http://")) })
		}
	})
	w.atEnd = append(w.atEnd, func() {
		l.Close()
		f.sever()
		f.heal()
		running.Wait()
	})
	return f
}

// cut lets nothing pass any more.
func (f *tcpProxy) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.open:
		f.open = make(chan struct{})
	default:
	}
}

// heal lets everything pass again.
func (f *tcpProxy) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.open:
	default:
		close(f.open)
	}
}

// sever ends all connections, now and for ever.
func (f *tcpProxy) sever() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	for c := range f.conns {
		c.Close()
	}
}

func (f *tcpProxy) mayPass() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// keep remembers connections for sever; false when that has happened.
func (f *tcpProxy) keep(conns ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		f.conns[c] = struct{}{}
	}
	return !f.over
}

func (f *tcpProxy) forget(conns ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		delete(f.conns, c)
		c.Close()
	}
}

// pass carries bytes both ways until either side is done.
func (f *tcpProxy) pass(from net.Conn, address string) {
	defer f.forget(from)
	if !f.keep(from) {
		return
	}
	<-f.mayPass()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer f.forget(to)
	if !f.keep(to) {
		return
	}
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			f.relay(pair[0], pair[1])
			ended <- struct{}{}
		}()
	}
	<-ended
	f.forget(from, to)
	<-ended
}

// relay reads before it waits: bytes that came before the cut are held, too,
// and an end that comes during it is not told before the healing.
func (f *tcpProxy) relay(from, to net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		<-f.mayPass()
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
