package devredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket/internal/files"
)

// errNoServer means that nothing answers at the socket (yet, or any more).
var errNoServer = errors.New("no store answers")

// reuse takes over the redis-server that holds the lock, after checking that
// what answers at the socket is the one of this directory.
func (s *Server) reuse(ctx context.Context) error {
	if _, err := sendCommand(ctx, s.socket, "PING"); err != nil && !errors.Is(err, errLoading) {
		return fmt.Errorf("%w: %w", errNoServer, err)
	}
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	got, err := sendCommand(ctx, s.socket, "CONFIG", "GET", "dir")
	if err != nil {
		return fmt.Errorf("%w: %w", errNoServer, err)
	}
	if real, err := filepath.EvalSymlinks(s.dir); got != "dir\n"+s.dir && (err != nil || got != "dir\n"+real) {
		return fmt.Errorf("the redis-server at %s belongs to another directory (%q): end it, or use another --data",
			s.socket, got)
	}
	info, err := sendCommand(ctx, s.socket, "INFO", "server")
	if err != nil {
		return fmt.Errorf("%w: %w", errNoServer, err)
	}
	if s.pid, err = strconv.Atoi(infoField(info, "process_id")); err != nil {
		return fmt.Errorf("the redis-server at %s does not say its process id", s.socket)
	}
	if _, err := sendCommand(ctx, s.socket, "CONFIG", "SET", "maxmemory", s.maxMemory); err != nil {
		return fmt.Errorf("bound the memory of the store: %w", err)
	}
	// A connection that is only held: its end is the first sign of the store's.
	var d net.Dialer
	held, err := d.DialContext(ctx, "unix", s.socket)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoServer, err)
	}
	s.reused = true
	s.log.Info("found the store of an earlier start", "pid", s.pid, "dir", s.dir)
	go s.watchReused(held)
	return nil
}

// watchReused notices the end of a redis-server that is not our child, and so
// cannot be waited for: the connection breaks, then the lock becomes free.
func (s *Server) watchReused(held net.Conn) {
	defer close(s.done)
	defer held.Close()
	_, _ = held.Read(make([]byte, 1)) // nothing is ever sent: it returns at the end
	for {
		lock, err := files.LockFile(context.Background(), filepath.Join(s.dir, lockName), 0)
		if !errors.Is(err, files.ErrLocked) {
			if err == nil {
				lock.Close()
			}
			s.endErr = fmt.Errorf("redis-server (pid %d) ended; its log is %s", s.pid, filepath.Join(s.dir, logName))
			return
		}
		time.Sleep(pollEvery)
	}
}

// Stop shuts the store down, keeping its state, and returns when its process has
// ended. It is safe to call again.
func (s *Server) Stop(ctx context.Context) error {
	if s.memory != nil {
		s.stopMemory()
		return nil
	}
	select {
	case <-s.done:
		return nil
	default:
	}
	s.stopped.Store(true)
	// The reply of a SHUTDOWN that works is the end of the connection.
	_, err := sendCommand(ctx, s.socket, "SHUTDOWN")
	if err := s.awaitEnd(ctx, 10*time.Second); err == nil {
		removeSocket(s.dir, s.socket)
		return nil
	}
	if kill := unix.Kill(s.pid, unix.SIGTERM); kill != nil {
		return fmt.Errorf("stop redis-server (pid %d): %w", s.pid, errors.Join(err, kill))
	}
	if end := s.awaitEnd(ctx, 10*time.Second); end != nil {
		return fmt.Errorf("redis-server (pid %d) does not end: %w", s.pid, errors.Join(err, end))
	}
	removeSocket(s.dir, s.socket)
	return nil
}

func (s *Server) awaitEnd(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
