package rig

import (
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/picket-dev/picket/internal/devredis"
)

// FaultKind is what is done to one command.
type FaultKind int

const (
	// Drop closes the connection before the command reaches the store. Replies
	// to commands before it are delivered; those after it are lost with it.
	Drop FaultKind = iota + 1
	// SwallowReply lets the store do the command, then closes the connection
	// without its reply. Replies before it are delivered; commands after it do
	// not reach the store, so that one effect only is in doubt.
	SwallowReply
	// HoldRequest keeps the command from the store until Release. It arrives
	// even when its caller has gone meanwhile.
	HoldRequest
	// HoldReply lets the store do the command and keeps the reply until Release.
	HoldReply
	// Duplicate gives the command to the store twice and delivers the second
	// reply.
	Duplicate
)

func (k FaultKind) String() string {
	names := map[FaultKind]string{
		Drop:         "drop",
		SwallowReply: "swallow reply",
		HoldRequest:  "hold request",
		HoldReply:    "hold reply",
		Duplicate:    "duplicate",
	}
	if s, ok := names[k]; ok {
		return s
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Fault is one thing done to one command. Its channels close as it happens, so
// a test waits for the event and never for a time.
type Fault struct {
	kind     FaultKind
	struck   onceSignal
	answered onceSignal
	over     onceSignal
	release  onceSignal
	link     *link
}

// NewFault makes a fault for a plan.
func NewFault(kind FaultKind) *Fault {
	return &Fault{kind: kind, struck: newSignal(), answered: newSignal(), over: newSignal(), release: newSignal()}
}

// Struck closes when the command has come in.
func (f *Fault) Struck() <-chan struct{} { return f.struck.c }

// Answered closes when the store has executed the command and has answered; never for Drop.
func (f *Fault) Answered() <-chan struct{} { return f.answered.c }

// Over closes when the proxy has nothing more to do with the command: it was
// delivered late, twice or not at all, or its connection was cut.
func (f *Fault) Over() <-chan struct{} { return f.over.c }

// Release lets a held request or reply go on. It may come before the command.
func (f *Fault) Release() { f.release.fire() }

// GiveUp makes the client's reading from this connection time out now, as if
// its read timeout had passed. Call it after Struck.
func (f *Fault) GiveUp() {
	<-f.struck.c
	if f.link != nil && f.link.giveUp != nil {
		f.link.giveUp()
	}
}

func (f *Fault) strike(l *link) {
	f.link = l
	f.struck.fire()
}

// onceSignal is a channel that closes once.
type onceSignal struct {
	c    chan struct{}
	once *sync.Once
}

func newSignal() onceSignal { return onceSignal{make(chan struct{}), new(sync.Once)} }
func (s onceSignal) fire()  { s.once.Do(func() { close(s.c) }) }

// connPair makes two connected ends. Sockets let a client see a closed connection
// before it is used, as it does in earnest; a synctest bubble can have none.
func connPair(memory bool) (client, proxy net.Conn, err error) {
	if memory {
		client, proxy = net.Pipe()
		return devredis.Buffered(client), proxy, nil
	}
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	ends := [2]net.Conn{}
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		end, failed := net.FileConn(file)
		_ = file.Close()
		if ends[i] = end; failed != nil {
			err = failed
		}
	}
	return ends[0], ends[1], err
}

// timeoutConn is the client's end. Once it has given up every read times out,
// whatever deadline the client sets.
type timeoutConn struct {
	net.Conn
	mu     sync.Mutex
	gaveUp bool
}

func (c *timeoutConn) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gaveUp = true
	_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
}

func (c *timeoutConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gaveUp {
		t = time.Unix(1, 0)
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *timeoutConn) SetDeadline(t time.Time) error {
	if err := c.Conn.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

// timeoutSocketConn shows the client the socket it looks into before it uses a
// connection again.
type timeoutSocketConn struct {
	*timeoutConn
	syscall.Conn
}
