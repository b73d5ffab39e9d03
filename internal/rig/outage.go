package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Outage is one way in which a store does not serve although it loses nothing.
type Outage struct {
	Name string
	// NoAnswer says that requests get no answer, so the client does not know whether a request that
	// was sent had an effect. Otherwise the store refuses it and does nothing.
	NoAnswer bool
	// MemoryFull says that memory is full: what frees or ends something is still done.
	MemoryFull bool
	// NeedsAdoption says that the store is another one for its clients afterwards: it
	// has to be adopted.
	NeedsAdoption bool
	// ClosesConnections says that the connections of clients are closed.
	ClosesConnections bool
	begin             func(n *Node) (end func() error, err error)
}

// StartOutageNode starts a redis-server that can be brought into every Trouble.
func StartOutageNode(tb testing.TB) *Node {
	tb.Helper()
	return StartNode(tb, "--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024",
		"--busy-reply-threshold", "5", "--rdbcompression", "no", "--repl-timeout", "600")
}

// Begin brings n into trouble; end brings it out again and returns when it has
// answered. Both fail the test when that does not work.
func (t Outage) Begin(tb testing.TB, n *Node) (end func()) {
	tb.Helper()
	out, err := t.begin(n)
	if err != nil {
		tb.Fatalf("%s: %v", t.Name, err)
	}
	return func() {
		tb.Helper()
		if err := out(); err != nil {
			tb.Fatalf("the end of %s: %v", t.Name, err)
		}
		if err := eventually(func(ctx context.Context) error {
			return n.Do(ctx, "SET", "rig-trouble", "over").Err()
		}); err != nil {
			tb.Fatalf("after %s the store does not take writes: %v", t.Name, err)
		}
	}
}

// Outages are all of them.
var Outages = []Outage{
	{Name: "CLIENT PAUSE ALL", NoAnswer: true, begin: pauseAll},
	{Name: "CLIENT PAUSE WRITE", NoAnswer: true, begin: pauseWrites},
	{Name: "SIGSTOP", NoAnswer: true, begin: stopProcess},
	{Name: "maxmemory", MemoryFull: true, begin: fillMemory},
	{Name: "MISCONF", begin: breakSnapshots},
	{Name: "LOADING", begin: slowReload},
	{Name: "BUSY", begin: runEndlessScript},
	{Name: "maxclients", ClosesConnections: true, begin: exhaustClients},
	{Name: "READONLY", NeedsAdoption: true, begin: demoteToReplica},
}

func noop() error { return nil }

func (n *Node) command(args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return n.Do(ctx, args...).Err()
}

// pauseAll holds every command back, also the one that would end it.
func pauseAll(n *Node) (func() error, error) {
	return noop, n.command("CLIENT", "PAUSE", 3000, "ALL")
}

func pauseWrites(n *Node) (func() error, error) {
	return func() error { return n.command("CLIENT", "UNPAUSE") }, n.command("CLIENT", "PAUSE", 600_000, "WRITE")
}

func stopProcess(n *Node) (func() error, error) {
	return func() error { return n.Process().Signal(syscall.SIGCONT) }, n.Process().Signal(syscall.SIGSTOP)
}

// fillMemory makes the store full as it is.
func fillMemory(n *Node) (func() error, error) {
	return func() error { return n.command("CONFIG", "SET", "maxmemory", 0) },
		n.command("CONFIG", "SET", "maxmemory", 1)
}

// breakSnapshots is what a full disk does: a snapshot fails, and the server
// takes no writes until one has succeeded.
func breakSnapshots(n *Node) (func() error, error) {
	obstacle := filepath.Join(n.Dir, "dump.rdb")
	end := func() error {
		return errors.Join(os.Remove(obstacle), n.snapshot("ok"), n.command("CONFIG", "SET", "save", ""),
			os.Remove(obstacle))
	}
	err := os.RemoveAll(obstacle)
	if err == nil {
		err = os.Mkdir(obstacle, 0o700)
	}
	if err == nil {
		err = errors.Join(n.command("CONFIG", "SET", "save", "3600 1"), n.snapshot("err"))
	}
	return end, err
}

// snapshot makes one and waits for the result wanted.
func (n *Node) snapshot(want string) error {
	if err := n.command("BGSAVE", "SCHEDULE"); err != nil {
		return err
	}
	return eventually(func(ctx context.Context) error {
		if n.Info(ctx, "persistence", "rdb_bgsave_in_progress") != "0" ||
			n.Info(ctx, "persistence", "rdb_last_bgsave_status") != want {
			return fmt.Errorf("no snapshot with status %s", want)
		}
		return nil
	})
}

// slowReload reads the data again, so slowly that it can be watched: beside what
// there is, keys enough for seconds.
func slowReload(n *Node) (func() error, error) {
	fill := `for i = 1, 300 do redis.call('SET', 'rig-filler-' .. i, string.rep('x', 2000)) end return 1`
	if err := errors.Join(n.command("EVAL", fill, 0),
		n.command("CONFIG", "SET", "key-load-delay", 30_000)); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() {
		c := redis.NewClient(&redis.Options{Addr: n.Addr, MaxRetries: -1, ReadTimeout: startTimeout})
		defer c.Close()
		done <- c.Do(context.Background(), "DEBUG", "RELOAD").Err()
	}()
	err := n.awaitRefusal("LOADING ")
	return func() error {
		return errors.Join(n.command("CONFIG", "SET", "key-load-delay", 0), <-done)
	}, err
}

// runEndlessScript runs a script of somebody else that does not end.
func runEndlessScript(n *Node) (func() error, error) {
	done := make(chan error, 1)
	go func() {
		c := redis.NewClient(&redis.Options{Addr: n.Addr, MaxRetries: -1, ReadTimeout: startTimeout})
		defer c.Close()
		done <- c.Do(context.Background(), "EVAL", "while true do end", 0).Err()
	}()
	err := n.awaitRefusal("BUSY ")
	return func() error {
		if err := n.command("SCRIPT", "KILL"); err != nil {
			return err
		}
		if err := <-done; err == nil || !strings.Contains(err.Error(), "SCRIPT KILL") {
			return fmt.Errorf("the script ended with %v", err)
		}
		return nil
	}, err
}

// awaitRefusal waits until a write is refused with a word.
func (n *Node) awaitRefusal(word string) error {
	return eventually(func(ctx context.Context) error {
		if err := n.Do(ctx, "SET", "rig-trouble", "begun").Err(); err == nil || !strings.HasPrefix(err.Error(), word) {
			return fmt.Errorf("a write got %v, not %s", err, word)
		}
		return nil
	})
}

// exhaustClients lets nobody else in, and closes all connections but its own.
func exhaustClients(n *Node) (func() error, error) {
	c := redis.NewClient(&redis.Options{Addr: n.Addr, MaxRetries: -1, PoolSize: 1})
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	before, err := c.ConfigGet(ctx, "maxclients").Result()
	if err == nil {
		err = c.ConfigSet(ctx, "maxclients", "1").Err()
	}
	for _, kind := range []string{"normal", "pubsub"} {
		if err == nil {
			err = c.Do(ctx, "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes").Err()
		}
	}
	return func() error {
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		return c.ConfigSet(ctx, "maxclients", before["maxclients"]).Err()
	}, err
}

// demoteToReplica makes the server a replica of nobody who is there.
func demoteToReplica(n *Node) (func() error, error) {
	return func() error { return n.command("REPLICAOF", "NO", "ONE") }, n.command("REPLICAOF", "127.0.0.1", "1")
}
