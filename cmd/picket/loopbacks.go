package main

import (
	"errors"
	"net"
	"strconv"
	"sync"
	"syscall"

	"github.com/picket-dev/picket"
)

// Browsers resolve localhost, and every name below it, to 127.0.0.1 or to ::1. A
// server with a console listens on both. If another process listened on one of
// them, it would get the console's cookies.

// loopbackAddresses are the addresses to which browsers resolve names below
// localhost.
var loopbackAddresses = []string{"127.0.0.1", "::1"}

// freePortTries is how many ports are tried to find one that is free on all
// loopback addresses.
const freePortTries = 20

// listenOnLoopbacks listens on a loopback address and on the same port of the
// others.
func listenOnLoopbacks(addr string) (net.Listener, error) {
	_, port, _ := net.SplitHostPort(addr)
	for try := 1; ; try++ {
		first, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, addressTakenError(addr, err)
		}
		all, err := withOtherLoopbacks(first)
		if err == nil {
			return all, nil
		}
		first.Close()
		if port != "0" || try == freePortTries {
			return nil, err
		}
	}
}

func withOtherLoopbacks(first net.Listener) (net.Listener, error) {
	addr := first.Addr().(*net.TCPAddr)
	l := &multiListener{
		Listener: first,
		all:      []net.Listener{first},
		accepted: make(chan accepted),
		done:     make(chan struct{}),
	}
	for _, ip := range loopbackAddresses {
		if addr.IP.Equal(net.ParseIP(ip)) {
			continue
		}
		at := net.JoinHostPort(ip, strconv.Itoa(addr.Port))
		other, err := net.Listen("tcp", at)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			l.Close()
			return nil, picket.Refuse(picket.CodeStateConflict,
				"End the program that listens there, choose another port (--listen 127.0.0.1:0 picks a free one), or set console.host_per_login to false.",
				"%s is taken, and browsers that open localhost could send the console's cookies there", at)
		case err != nil: // this machine has no such address, so nobody else can listen there
			continue
		}
		l.all = append(l.all, other)
	}
	return l, nil
}

// multiListener combines several listeners into one. Its address is that of the first.
type multiListener struct {
	net.Listener
	all       []net.Listener
	accepted  chan accepted
	done      chan struct{}
	startOnce sync.Once
	closeOnce sync.Once
}

type accepted struct {
	conn net.Conn
	err  error
}

// Accept waits for a connection to any of the addresses.
func (l *multiListener) Accept() (net.Conn, error) {
	l.startOnce.Do(func() {
		for _, one := range l.all {
			go l.acceptFrom(one)
		}
	})
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *multiListener) acceptFrom(one net.Listener) {
	for {
		conn, err := one.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		select {
		case l.accepted <- accepted{conn, err}:
		case <-l.done:
			if conn != nil {
				conn.Close()
			}
			return
		}
	}
}

// Close ends listening on all addresses. A second Close fails, as it does for a
// single listener.
func (l *multiListener) Close() error {
	err := net.ErrClosed
	l.closeOnce.Do(func() {
		err = nil
		close(l.done)
		for _, one := range l.all {
			err = errors.Join(err, one.Close())
		}
	})
	return err
}
