package rig

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func durableClient(t *testing.T, d *DurableServer) *redis.Client {
	s := d.Store()
	c := redis.NewClient(&redis.Options{Dialer: s.Redis.Dialer, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// keys are all keys of a store, after a new connection.
func keys(t *testing.T, d *DurableServer) string {
	t.Helper()
	s := d.Store()
	c := redis.NewClient(&redis.Options{Dialer: s.Redis.Dialer, MaxRetries: -1})
	defer c.Close()
	list, err := c.Sort(context.Background(), "names", &redis.Sort{By: "nosort"}).Result()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, " ")
}

func TestDurableForgets(t *testing.T) {
	d := StartDurableServer(t)
	ctx := context.Background()
	push := func(name string) {
		t.Helper()
		if err := durableClient(t, d).RPush(ctx, "names", name).Err(); err != nil {
			t.Fatal(err)
		}
	}
	want := func(after, names string) {
		t.Helper()
		if got := keys(t, d); got != names {
			t.Fatalf("after %s: %q, want %q", after, got, names)
		}
	}
	push("a")
	old := filepath.Join(t.TempDir(), "old")
	d.Snapshot(old)
	push("b")
	d.Kill()
	d.Start()
	want("a kill", "a b")
	d.Kill()
	if cut := d.CutTail(func(size int64) int64 { return size - 1 }); cut != 1 {
		t.Fatalf("%d bytes are gone, want 1", cut)
	}
	d.Start()
	want("a cut", "a")
	push("c")
	d.Kill()
	d.Restore(old)
	d.Start()
	want("an older state", "a")
	d.Kill()
	d.Empty()
	d.Start()
	want("the loss of all files", "")
}

// The reason for Repair. If a newer redis-server does better, this test fails, and the section of
// the manual can be deleted.
func TestRedisAppliesHalfATransaction(t *testing.T) {
	for _, repair := range []bool{false, true} {
		d := StartDurableServer(t)
		ctx := context.Background()
		both := "redis.call('RPUSH', 'names', ARGV[1]) redis.call('RPUSH', 'names', ARGV[2])"
		eval := func(a, b string) {
			t.Helper()
			if err := durableClient(t, d).Eval(ctx, both, []string{"names"}, a, b).Err(); err != nil &&
				err != redis.Nil {
				t.Fatal(err)
			}
		}
		start := d.StartAsIs
		if repair {
			start = d.Start
		}
		eval("a", "b")
		d.Kill()
		d.CutTail(func(size int64) int64 { return size - 20 }) // EXEC and a part of b
		start()
		if got := keys(t, d); got != "" {
			t.Fatalf("half a transaction was applied at once: %q", got)
		}
		eval("c", "d")
		d.Kill()
		start()
		if got, want := keys(t, d), map[bool]string{false: "a c d", true: "c d"}[repair]; got != want {
			t.Fatalf("repaired %v: after the second start %q, want %q", repair, got, want)
		}
	}
}
