package devredis

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// An empty store beside the state of an earlier start would deny every lease.
func TestNoMemoryBesideState(t *testing.T) {
	needRedis(t)
	dir := t.TempDir()
	first := start(t, dir)
	do(t, first, "SET", "kept", "yes")
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	var said bytes.Buffer
	second, err := Start(t.Context(), dir, 0, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatalf("a store that runs is not adopted: %v", err)
	}
	if second.PID() != first.PID() || do(t, second, "GET", "kept") != "yes" {
		t.Errorf("pid %d, want the running %d", second.PID(), first.PID())
	}
	if !strings.Contains(said.String(), "could not be started again if it ended: there is no redis-server on PATH") {
		t.Errorf("said %q", said.String())
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-second.Done()
	for _, again := range []func(context.Context, string, int64, *slog.Logger) (*Server, error){Start, Restart} {
		s, err := again(t.Context(), dir, 0, nil)
		if s != nil || err == nil || !strings.Contains(err.Error(), dir) ||
			!strings.Contains(err.Error(), "put redis-server 7.0 or newer on PATH") {
			t.Errorf("%v, %v", s, err)
		}
	}
	t.Setenv("PATH", path)
	if got := do(t, start(t, dir), "GET", "kept"); got != "yes" {
		t.Errorf("kept = %q", got)
	}
}

func TestRestartIsNeverMemory(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if s, err := Restart(t.Context(), t.TempDir(), 0, nil); s != nil || err == nil ||
		!strings.Contains(err.Error(), "no redis-server on PATH") {
		t.Errorf("%v, %v", s, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := Start(ended, t.TempDir(), 0, nil); s != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("a start that was given up: %v, %v", s, err)
	}
}
