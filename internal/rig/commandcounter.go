package rig

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
)

// CommandCounter counts the commands that a client of Redis sends: the server's own count
// has those that scripts run as well, so it cannot tell that nothing else was
// asked. The zero value is ready.
type CommandCounter struct {
	mu sync.Mutex
	n  map[string]int
}

// Take returns how often each command, in small letters, has been sent since the
// last time.
func (w *CommandCounter) Take() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.n
	w.n = nil
	return n
}

func (w *CommandCounter) add(command string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n == nil {
		w.n = map[string]int{}
	}
	w.n[strings.ToLower(command)]++
}

type dialer = func(context.Context, string, string) (net.Conn, error)

// Dialer counts what goes over the connections that dial makes.
func (w *CommandCounter) Dialer(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &countingConn{Conn: c, count: w}, nil
	}
}

// countingConn counts the commands written to a connection before they are sent,
// so before their answers can come back.
type countingConn struct {
	net.Conn
	count *CommandCounter
	rest  []byte // the beginning of a command that is not whole yet
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.rest = append(c.rest, b...)
	for {
		command, size := firstCommand(c.rest)
		if size == 0 {
			break
		}
		c.count.add(command)
		c.rest = c.rest[size:]
	}
	return c.Conn.Write(b)
}

// firstCommand reads one command, an array of bulk strings, and its size on
// the wire; a size of 0 means that it is not whole.
func firstCommand(b []byte) (command string, size int) {
	number := func(mark byte) (n int) {
		end := bytes.Index(b[size:], []byte("\r\n"))
		if end < 2 || b[size] != mark {
			return -1
		}
		n, err := strconv.Atoi(string(b[size+1 : size+end]))
		if err != nil {
			return -1
		}
		size += end + 2
		return n
	}
	words := number('*')
	if words < 0 {
		return "", 0
	}
	for i := range words {
		n := number('$')
		if n < 0 || size+n+2 > len(b) {
			return "", 0
		}
		if i == 0 {
			command = string(b[size : size+n])
		}
		size += n + 2
	}
	return command, size
}
