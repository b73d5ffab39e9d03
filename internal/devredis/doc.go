// Package devredis is the store that `picket up` uses when nobody named one: a
// redis-server child that this package starts, finds again and stops, or, where
// there is no redis-server and no state, an in-process one that keeps nothing.
//
// The child is made to outlive picket. Its lock file is held through a file descriptor that it
// inherits. The lock is therefore free exactly when no redis-server of this directory lives, even
// after a crash.
package devredis

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
)

// Server is a running store.
type Server struct {
	dir    string
	socket string
	// maxMemory bounds what the redis-server may use, in bytes; 0: any amount.
	maxMemory string
	pid       int
	reused    bool // it was already running
	log       *slog.Logger
	done      chan struct{} // closed when the store has ended
	endErr    error         // why; read after done
	stopped   atomic.Bool   // the end was asked for

	memory     *Memory // nil: there is a redis-server
	stopMemory func()
}

// Start returns a store that answers. In dir it adopts the redis-server that an earlier picket left
// running, else starts one, for which a redis-server of at least version 7.0 must be on PATH.
// Without one it keeps state in memory and reports that once. If dir holds the state of an earlier
// start, that is an error instead, because an empty store would deny every lease of that state. A
// large file may take minutes to load: ctx bounds the wait, and ending it does not stop a store
// that was returned.
func Start(ctx context.Context, dir string, maxMemory int64, log *slog.Logger) (*Server, error) {
	s, err := Restart(ctx, dir, maxMemory, log)
	var none *noBinaryError
	if errors.As(err, &none) && !none.state {
		return startMemory(orDiscard(log), none.why), nil
	}
	return s, err
}

// Restart is Start after the store of dir has ended: it never falls back to
// memory, which the clients of the old one would not find.
func Restart(ctx context.Context, dir string, maxMemory int64, log *slog.Logger) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	binary, why := findBinary(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err // and not a verdict on the binary
	}
	return startServer(ctx, binary, why, dir, maxMemory, orDiscard(log))
}

// DefaultMemory is how much memory the store may use by default: half of the
// memory of the machine or of the cgroup, and at least 128 MiB. It is 0, which
// means no limit, if that memory is not known.
func DefaultMemory() int64 {
	if all := machineMemory(); all > 0 {
		return max(all/2, 128<<20)
	}
	return 0
}

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}

// Addr is the unix socket of the store, an absolute path; empty in memory.
func (s *Server) Addr() string { return s.socket }

// Dial connects to the store. A client of the in-memory store must use it; for
// the managed one it is the same as dialling Addr.
func (s *Server) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if s.memory != nil {
		return s.memory.Dial()
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", s.socket)
}

// InMemory reports whether state is lost when this process ends.
func (s *Server) InMemory() bool { return s.memory != nil }

// PID is the process id of the redis-server; 0 in memory.
func (s *Server) PID() int { return s.pid }

// String names the store for people.
func (s *Server) String() string {
	if s.InMemory() {
		return "in memory (lost at exit)"
	}
	return "redis-server, appendonly, in " + s.dir
}

// Done is closed when the store has ended, no matter who ended it; Err then says why.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is why the store ended, with the last lines of its log; nil while it runs
// and after Stop.
func (s *Server) Err() error {
	select {
	case <-s.done:
		if s.stopped.Load() {
			return nil
		}
		return s.endErr
	default:
		return nil
	}
}
