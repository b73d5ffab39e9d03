package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
)

// staleSocket leaves a socket on which nobody listens.
func staleSocket(t *testing.T) (path string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "api.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Of several servers that find the socket of a dead one, one gets the path.
func TestOneServerGetsASocket(t *testing.T) {
	path := staleSocket(t)
	const servers = 8
	var all [servers]net.Listener
	var errs [servers]error
	var group sync.WaitGroup
	for i := range servers {
		group.Go(func() { all[i], errs[i] = listenOnUnix(path) })
	}
	group.Wait()
	listening := 0
	for i, l := range all {
		if l != nil {
			listening++
			defer l.Close()
		} else if !errors.Is(errs[i], picket.CodeStateConflict) {
			t.Errorf("server %d: %v", i, errs[i])
		}
	}
	if listening != 1 {
		t.Errorf("%d servers listen on one socket", listening)
	}
}

// A server that stops leaves the socket of another alone that took its place.
func TestSocketOfAnotherServerIsKept(t *testing.T) {
	path := staleSocket(t)
	first, err := listenOnUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := listenOnUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket of the second server: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// Both loopback addresses may be named, though the first stands for both.
func TestBothLoopbackAddresses(t *testing.T) {
	cfg, err := loadTestSettings(t, "", "--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := roles{orchestrator: true}
	first, err := listen(cfg, connectionGuard(cfg, nil), r, "")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(first[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	first.close()
	cfg.Listen = []string{"127.0.0.1:" + port, "[::1]:" + port}
	both, err := listen(cfg, connectionGuard(cfg, nil), r, "")
	if err != nil {
		t.Fatal(err)
	}
	both.close()
}
