package devredis

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/rig/cleanup"
)

const ownerDir = "DEVREDIS_TEST_OWNER_DIR"

// TestMain also plays the picket that is killed: with ownerDir set it starts a
// store, prints its process id and waits to be killed.
func TestMain(m *testing.M) {
	dir := os.Getenv(ownerDir)
	if dir == "" {
		goleak.VerifyTestMain(cleanup.WithTempDir(m, "pk-devredis-"))
		return
	}
	s, err := Start(context.Background(), dir, 0, nil)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println(s.PID())
	select {}
}

func needRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not on PATH: apt-get install redis-server")
	}
}

func start(t *testing.T, dir string) *Server {
	t.Helper()
	s, err := Start(t.Context(), dir, 0, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if pid := s.PID(); pid != 0 && alive(pid) {
			t.Errorf("process %d is still there", pid)
		}
	})
	return s
}

// alive does not count a process that has ended and waits to be reaped, as an
// orphan does under an init that never reaps.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

func do(t *testing.T, s *Server, args ...any) string {
	t.Helper()
	got, err := sendCommand(t.Context(), s.Addr(), args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return got
}

func TestStateSurvivesAStop(t *testing.T) {
	needRedis(t)
	dir := t.TempDir()
	first := start(t, dir)
	do(t, first, "SET", "kept", "yes")
	if got := do(t, first, "CONFIG", "GET", "appendfsync"); got != "appendfsync\nalways" {
		t.Errorf("appendfsync: %q", got)
	}
	if got := do(t, first, "CONFIG", "GET", "maxmemory-policy"); got != "maxmemory-policy\nnoeviction" {
		t.Errorf("maxmemory-policy: %q", got)
	}
	if got := do(t, first, "CONFIG", "GET", "port"); got != "port\n0" {
		t.Errorf("port: %q", got)
	}
	if pgid, err := unix.Getpgid(first.PID()); err != nil || pgid == unix.Getpgrp() {
		t.Errorf("process group %d, %v: want one of its own", pgid, err)
	}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := e.Info(); err != nil || path != dir && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s can be read by others: %v, %v", path, info.Mode(), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Err(); err != nil {
		t.Errorf("a stop that was asked for left an error: %v", err)
	}
	second := start(t, dir)
	if second.reused {
		t.Error("adopted a store that was stopped")
	}
	if got := do(t, second, "GET", "kept"); got != "yes" {
		t.Errorf("kept = %q", got)
	}
}

func TestStoreOutlivesItsKilledOwner(t *testing.T) {
	needRedis(t)
	dir := t.TempDir()
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerDir+"="+dir)
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, convErr := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || convErr != nil {
		t.Fatalf("the owner said %q: %v", line, err)
	}
	if _, err := sendCommand(t.Context(), filepath.Join(dir, "redis.sock"), "SET", "kept", "yes"); err != nil {
		t.Fatal(err)
	}
	_ = owner.Process.Kill()
	_ = owner.Wait()

	s := start(t, dir)
	if !s.reused || s.PID() != pid {
		t.Errorf("adopted %v, pid %d: want the running store with pid %d", s.reused, s.PID(), pid)
	}
	if got := do(t, s, "GET", "kept"); got != "yes" {
		t.Errorf("kept = %q", got)
	}
}

func TestTwoStartsShareOneStore(t *testing.T) {
	needRedis(t)
	dir := t.TempDir()
	type result struct {
		s   *Server
		err error
	}
	results := make(chan result)
	for range 2 {
		go func() {
			s, err := Start(t.Context(), dir, 0, nil)
			results <- result{s, err}
		}()
	}
	a, b := <-results, <-results
	if a.err != nil || b.err != nil {
		t.Fatal(a.err, b.err)
	}
	if a.s.PID() != b.s.PID() {
		t.Errorf("two stores, %d and %d, on one directory", a.s.PID(), b.s.PID())
	}
	if err := a.s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	<-b.s.Done()
}

func TestLongDirectoryGetsAShortSocket(t *testing.T) {
	needRedis(t)
	t.Setenv("XDG_RUNTIME_DIR", "")
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-", 25))
	s := start(t, dir)
	if len(s.Addr()) > maxSocketPath || filepath.Dir(s.Addr()) == dir {
		t.Errorf("socket %s", s.Addr())
	}
	if !isPrivateDir(filepath.Dir(s.Addr())) {
		t.Errorf("%s is not private", filepath.Dir(s.Addr()))
	}
	again, err := Start(t.Context(), dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if again.PID() != s.PID() || !again.reused {
		t.Errorf("the recorded socket was not found again")
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-again.Done()
	if _, err := os.Stat(filepath.Dir(s.Addr())); err == nil {
		t.Errorf("%s was left behind", filepath.Dir(s.Addr()))
	}
}

func TestTheReasonOfAnEndIsReported(t *testing.T) {
	needRedis(t)
	s := start(t, t.TempDir())
	if err := unix.Kill(s.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("Err() = %v", err)
	}
}

func TestBrokenFileIsAClearError(t *testing.T) {
	needRedis(t)
	dir := t.TempDir()
	aof := filepath.Join(dir, "appendonlydir")
	if err := os.Mkdir(aof, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(aof, "appendonly.aof.manifest"), []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), dir, 0, nil)
	if err == nil || !strings.Contains(err.Error(), "ended while it started") ||
		!strings.Contains(err.Error(), "manifest") {
		t.Errorf("Start: %v", err)
	}
}

func TestForeignStoreIsNotReused(t *testing.T) {
	needRedis(t)
	mine, other := t.TempDir(), start(t, t.TempDir())
	lock, err := files.LockFile(t.Context(), filepath.Join(mine, lockName), 0)
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	defer lock.Close()
	if err := os.Symlink(other.Addr(), filepath.Join(mine, "redis.sock")); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), mine, 0, nil); err == nil ||
		!strings.Contains(err.Error(), "belongs to another directory") {
		t.Errorf("Start: %v", err)
	}
}

func TestMemoryWithoutRedis(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script string
		why    string
	}{
		{"absent", "", "no redis-server on PATH"},
		{"old", "#!/bin/sh\necho 'Redis server v=6.2.7 sha=0'\n", "7.0 or newer is needed"},
		{"broken", "#!/bin/sh\nexit 3\n", "does not run"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bin := t.TempDir()
			if tc.script != "" {
				if err := os.WriteFile(filepath.Join(bin, "redis-server"), []byte(tc.script), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", bin)
			var said bytes.Buffer
			s, err := Start(t.Context(), t.TempDir(), 0, slog.New(slog.NewTextHandler(&said, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Stop(t.Context())
			if !s.InMemory() || strings.Count(said.String(), "\n") != 1 || !strings.Contains(said.String(), tc.why) ||
				!strings.Contains(said.String(), "apt-get install redis-server") {
				t.Errorf("memory %v, said %q", s.InMemory(), said.String())
			}
			conn, err := s.Dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got := ping(t, conn); got != "PONG" {
				t.Errorf("PING: %q", got)
			}
		})
	}
}

func ping(t *testing.T, conn net.Conn) string {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, "*1\r\n$4\r\nPING\r\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "+"))
}
