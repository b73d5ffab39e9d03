// Package rig is what the tests of every room stand on: stores to run against,
// a virtual one on the clock of a synctest bubble and a real redis-server.
package rig

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket/internal/devredis"
	"github.com/picket-dev/picket/internal/seal"
)

// Store says where a test's store is, in the terms of orchestrator.Config.
type Store struct {
	Redis  redis.UniversalOptions
	Memory bool
}

// patience is how long a test waits for a store that works, in which nothing is to fail.
const patience = 20 * time.Second

// Patient returns the store with more time for an answer, for tests that nothing is to fail in and
// that may run beside others on a busy machine.
func (s Store) Patient() Store {
	s.Redis.ReadTimeout = patience
	return s
}

// Memory starts an in-process miniredis that uses no socket, so it may live
// inside a synctest bubble, where TIME and TTLs follow the virtual clock. Call
// stop at the end of the bubble. Its Lua is interpreted in Go, which is slow with the race
// detector, so it gets more time for an answer than a real store.
func Memory() (s Store, stop func()) {
	m := devredis.NewMemory()
	s = Store{Memory: true, Redis: redis.UniversalOptions{
		Addrs:       []string{"127.0.0.1:6379"},
		ReadTimeout: patience,
		Dialer:      func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
	}}
	return s, m.Close
}

// Real starts a redis-server of its own on a unix socket, without persistence,
// and ends it with the test. Without a redis-server on PATH the test fails:
// what is not tested on a real store is not tested.
func Real(tb testing.TB) Store {
	tb.Helper()
	s, _ := RealServer(tb)
	return s
}

// SkipShort skips a test that starts processes of its own when the tests run with
// -short. The short run uses the store in memory and the virtual clock only.
func SkipShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short: this test starts processes")
	}
}

// RealServer is Real that also gives the process, for tests that kill or stop it.
func RealServer(tb testing.TB, args ...string) (Store, *os.Process) {
	tb.Helper()
	SkipShort(tb)
	// t.TempDir carries the test's name, which can be too long for a socket.
	dir, err := os.MkdirTemp("", "pk")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	cmd := exec.Command("redis-server", append([]string{"--port", "0", "--unixsocket", socket, "--dir", dir,
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		tb.Fatalf("start redis-server (apt-get install redis-server): %v", err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := Store{Redis: redis.UniversalOptions{
		Addrs: []string{"127.0.0.1:6379"},
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	if err := answering(s); err != nil {
		tb.Fatalf("redis-server does not answer: %v\n%s", err, out.String())
	}
	return s, cmd.Process
}

// answering waits until a store answers a PING. It connects on its own until that succeeds, because a client would wait
// longer before it tries again, and log each failure.
func answering(s Store) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := redis.NewUniversalClient(&s.Redis)
	defer c.Close()
	ping := func() error {
		conn, err := s.Redis.Dialer(ctx, "tcp", s.Redis.Addrs[0])
		if err != nil {
			return err
		}
		_ = conn.Close()
		return c.Ping(ctx).Err()
	}
	for {
		err := ping()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after 10 s: %w", err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Sealer returns a sealer with a fixed key, so capabilities of a test repeat.
func Sealer() *seal.Sealer {
	s, err := seal.New(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		panic(err)
	}
	return s
}
