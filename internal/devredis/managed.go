package devredis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/picket-dev/picket/internal/files"
)

const (
	pollEvery    = 20 * time.Millisecond
	startTimeout = 20 * time.Second // to accept a connection; loading may take longer
)

// startServer adopts or starts. The two are tried in turn until one works: a
// store may be on its way up or on its way out while we look. Adopting needs no
// binary; starting without one is a noBinaryError that says why there is none.
func startServer(ctx context.Context, binary, why, dir string, maxMemory int64, log *slog.Logger) (*Server, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	socket, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	s := &Server{
		dir:       dir,
		socket:    socket,
		maxMemory: strconv.FormatInt(maxMemory, 10),
		log:       log,
		done:      make(chan struct{}),
	}
	giveUp := time.Now().Add(startTimeout)
	for {
		lock, err := files.LockFile(ctx, filepath.Join(dir, lockName), 0) // nil: a store holds it
		if err != nil && !errors.Is(err, files.ErrLocked) {
			return nil, err
		}
		if lock != nil && binary == "" {
			defer lock.Close()
			removeSocket(dir, socket)
			return nil, newNoBinaryError(dir, why)
		}
		if lock != nil {
			if err := s.launch(ctx, binary, lock); err != nil {
				return nil, err
			}
			return s, nil
		}
		switch err := s.reuse(ctx); {
		case err == nil:
			if binary == "" {
				log.Warn("the store runs, but could not be started again if it ended: " + why)
			}
			return s, nil
		case !errors.Is(err, errNoServer):
			return nil, err
		case time.Now().After(giveUp):
			return nil,
				fmt.Errorf("a redis-server holds %s but does not answer on %s: look at %s, end the process, then start again",
					filepath.Join(dir, lockName), socket, filepath.Join(dir, logName))
		}
		if err := pollPause(ctx); err != nil {
			return nil, err
		}
	}
}

const (
	lockName = "redis.lock"
	logName  = "redis.log"
	pidName  = "redis.pid"
)

// launch starts a child that inherits the lock, and waits until it answers.
func (s *Server) launch(ctx context.Context, binary string, lock *os.File) error {
	defer lock.Close() // the child's copy keeps it locked
	_ = os.Remove(s.socket)
	if err := cutUnfinishedTransaction(s.dir, s.log); err != nil {
		return fmt.Errorf("look at the end of the store's file: %w", err)
	}
	out, err := os.OpenFile(filepath.Join(s.dir, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	began, err := out.Seek(0, 2)
	if err != nil {
		return err
	}
	// The shell sets the umask for redis-server alone and becomes it.
	cmd := exec.Command("/bin/sh",
		append([]string{"-c", `umask 077; exec "$0" "$@"`, binary},
			serverArguments(s.dir, s.socket, s.maxMemory)...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, out, out
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.ExtraFiles = []*os.File{lock}
	// A session of its own: neither Ctrl-C nor a closed terminal reaches it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	s.pid = cmd.Process.Pid
	go s.waitChild(cmd, began)
	if err := s.awaitReady(ctx); err != nil {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return err
	}
	return nil
}

func serverArguments(dir, socket, maxMemory string) []string {
	return []string{
		"--port", "0", "--unixsocket", socket, "--unixsocketperm", "700",
		"--dir", dir, "--appendonly", "yes", "--appendfsync", "always", "--save", "",
		"--maxmemory-policy", "noeviction", "--maxmemory", maxMemory, "--daemonize", "no", "--pidfile",
		filepath.Join(dir, pidName),
		"--loglevel", "notice", "--always-show-logo", "no", "--set-proc-title", "no",
	}
}

// waitChild waits for a child of ours to end and keeps the reason.
func (s *Server) waitChild(cmd *exec.Cmd, logBegan int64) {
	err := cmd.Wait()
	if cmd.ProcessState == nil || !cmd.ProcessState.Success() {
		s.endErr = fmt.Errorf("redis-server (pid %d) ended: %v%s", s.pid, err,
			lastLines(filepath.Join(s.dir, logName), logBegan))
	}
	close(s.done)
}

// awaitReady waits for the end of LOADING.
func (s *Server) awaitReady(ctx context.Context) error {
	giveUp, told := time.Now().Add(startTimeout), time.Now()
	for {
		_, err := sendCommand(ctx, s.socket, "PING")
		if err == nil {
			return nil
		}
		loading := errors.Is(err, errLoading)
		switch {
		case !loading && time.Now().After(giveUp):
			return fmt.Errorf("redis-server (pid %d) does not answer on %s: %w", s.pid, s.socket, err)
		case loading && time.Since(told) > 5*time.Second:
			s.log.Info("the store is still loading its file", "dir", s.dir)
			told = time.Now()
		}
		select {
		case <-s.done:
			return fmt.Errorf("the store ended while it started: %w",
				cmp.Or(s.endErr, errors.New("shut down by somebody else")))
		default:
		}
		if err := pollPause(ctx); err != nil {
			return err
		}
	}
}

func pollPause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pollEvery):
		return nil
	}
}

// lastLines is the end of what the store logged since an offset.
func lastLines(path string, since int64) string {
	b, err := os.ReadFile(path)
	if err != nil || since > int64(len(b)) {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b[since:])), "\n")
	if n := len(lines); n > 5 {
		lines = lines[n-5:]
	}
	return "\n  " + strings.Join(lines, "\n  ")
}
