package rig

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
)

// link is one client's connection and the proxy's own to the store.
type link struct {
	faults *FaultProxy
	client net.Conn
	store  net.Conn
	giveUp func() // nil: the client is another process
	gone   onceSignal

	mu      sync.Mutex
	drained sync.Cond
	waiting []*inFlight // commands whose replies are still to come, in order
	raw     bool        // no commands and replies any more, but a stream
	ended   bool
}

// inFlight is a command that the store has been given.
type inFlight struct {
	fault *Fault // nil: it just passes
	skip  int    // replies to throw away first
}

func newLink(f *FaultProxy, client, store net.Conn, giveUp func()) *link {
	l := &link{faults: f, client: client, store: store, giveUp: giveUp, gone: newSignal()}
	l.drained.L = &l.mu
	return l
}

func (l *link) close() {
	l.gone.fire()
	_ = l.client.Close()
	_ = l.store.Close()
	l.mu.Lock()
	l.ended = true
	for _, s := range l.waiting {
		if s.fault != nil {
			s.fault.over.fire()
		}
	}
	l.waiting = nil
	l.drained.Broadcast()
	l.mu.Unlock()
	l.faults.mu.Lock()
	delete(l.faults.links, l)
	l.faults.mu.Unlock()
}

// requests reads what the client sends until it or a fault closes the
// connection. What the store has been given it finishes first.
func (l *link) requests() {
	defer l.close()
	in := bufio.NewReader(l.client)
	for {
		words, raw, err := readCommand(in)
		if err != nil || len(words) == 0 {
			l.drain()
			return
		}
		fault := l.faults.pick(words)
		if startsStream(words[0]) {
			l.stream(fault, raw, in)
			return
		}
		if !l.forward(fault, raw) {
			l.drain()
			return
		}
	}
}

// forward gives a command to the store as its fault will have it, and reports
// whether the next one may follow.
func (l *link) forward(fault *Fault, raw []byte) bool {
	if fault == nil {
		return l.send(&inFlight{}, raw)
	}
	l.drain() // what came before is done and answered: only this one is in doubt
	fault.strike(l)
	switch fault.kind {
	case Drop:
		l.close()
		fault.over.fire()
		return false
	case HoldRequest:
		if !l.hold(fault) {
			fault.over.fire()
			return false
		}
	case Duplicate:
		return l.send(&inFlight{fault: fault, skip: 1}, append(slices.Clone(raw), raw...))
	}
	return l.send(&inFlight{fault: fault}, raw) && fault.kind != SwallowReply
}

func (l *link) send(s *inFlight, raw []byte) bool {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		if s.fault != nil {
			s.fault.over.fire()
		}
		return false
	}
	l.waiting = append(l.waiting, s)
	l.mu.Unlock()
	_, err := l.store.Write(raw)
	return err == nil
}

// drain waits until the store has answered all it was given.
func (l *link) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) > 0 && !l.ended {
		l.drained.Wait()
	}
}

// hold waits for the release; false means that the connection was cut first.
func (l *link) hold(fault *Fault) bool {
	select {
	case <-fault.release.c:
		return true
	case <-l.gone.c:
		return false
	}
}

// replies passes on what the store says. A client that has gone does not end
// it: the store is heard to the end of what it was given.
func (l *link) replies() {
	defer l.close()
	in := bufio.NewReader(l.store)
	for {
		if _, err := in.Peek(1); err != nil {
			return
		}
		l.mu.Lock()
		raw := l.raw
		l.mu.Unlock()
		if raw {
			_, _ = io.Copy(l.client, in)
			return
		}
		reply, err := readValue(in, nil)
		if err != nil {
			return
		}
		if reply[0] == '>' { // a message, no reply
			_, _ = l.client.Write(reply)
		} else if !l.deliver(reply) {
			return
		}
	}
}

// deliver does to a reply what its command's fault says, and reports whether
// the connection goes on.
func (l *link) deliver(reply []byte) bool {
	l.mu.Lock()
	if len(l.waiting) == 0 {
		l.mu.Unlock()
		_, err := l.client.Write(reply)
		return err == nil
	}
	s := l.waiting[0]
	if s.skip > 0 {
		s.skip--
		l.mu.Unlock()
		return true
	}
	l.mu.Unlock()
	if s.fault != nil {
		s.fault.answered.fire()
		if s.fault.kind == SwallowReply || s.fault.kind == HoldReply && !l.hold(s.fault) {
			return false // closing says that it is over
		}
	}
	_, _ = l.client.Write(reply)
	if s.fault != nil {
		s.fault.over.fire()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.waiting = l.waiting[1:]
		l.drained.Broadcast()
	}
	return true
}

// stream passes a connection through from a command on that starts a stream.
// Such a command has no reply to hold: it arrives, late or not at all.
func (l *link) stream(fault *Fault, raw []byte, in io.Reader) {
	l.drain()
	if fault != nil {
		fault.strike(l)
		defer fault.over.fire()
		if fault.kind == Drop || fault.kind == HoldRequest && !l.hold(fault) {
			return
		}
	}
	l.mu.Lock()
	l.raw = true
	l.mu.Unlock()
	if _, err := l.store.Write(raw); err == nil {
		_, _ = io.Copy(l.store, in)
	}
}

// startsStream reports whether a command's connection carries no replies in order
// from then on.
func startsStream(command string) bool {
	return slices.Contains([]string{"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR", "SYNC", "PSYNC"},
		strings.ToUpper(command))
}
