package devredis

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A store that was killed at any byte of a transaction comes back with the
// whole of it or with none of it, after any number of further kills.
func TestAHalfTransactionIsNotKept(t *testing.T) {
	needRedis(t)
	dir := t.TempDir()
	ctx := context.Background()
	log := slog.New(slog.DiscardHandler)
	visit := func(do func(c *redis.Client)) {
		s, err := Start(ctx, dir, 0, log)
		if err != nil {
			t.Fatal(err)
		}
		c := redis.NewClient(&redis.Options{Addr: s.Addr()})
		do(c)
		_ = c.Close()
		if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-s.Done()
	}
	write := func(c *redis.Client, what string) {
		script := "for _, k in ipairs({'a', 'b', 'c'}) do redis.call('SET', k .. ARGV[1], ARGV[1]) end return 1"
		if err := c.Eval(ctx, script, nil, what).Err(); err != nil {
			t.Fatal(err)
		}
	}
	visit(func(c *redis.Client) { write(c, "first"); write(c, "second") })
	path, err := newestAppendFile(dir)
	if err != nil || path == "" {
		t.Fatalf("no file: %v", err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	second := strings.LastIndex(string(whole), "MULTI") - len("*1\r\n$5\r\n")
	for cut := second + 1; cut < len(whole); cut += 7 {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		visit(func(c *redis.Client) { write(c, "third") })
		visit(func(c *redis.Client) {
			got, err := c.MGet(ctx, "afirst", "asecond", "bsecond", "csecond", "cthird").Result()
			if want := "[first <nil> <nil> <nil> third]"; err != nil || fmt.Sprint(got) != want {
				t.Fatalf("cut at byte %d of %d: %v, want %s (%v)", cut, len(whole), got, want, err)
			}
		})
	}
}

// What is damaged otherwise is not cut short: the redis-server refuses it.
func TestADamagedFileIsLeftAlone(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for text, want := range map[string]int64{
		"*1\r\n$4\r\nPING\r\n":                      14,
		"*1\r\n$4\r\nPING\r\ngarbage\r\n*1\r\n":     27,
		"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPI":        14,
		"*1\r\n$4\r\nPING\r\n*1\r\n$5\r\nMULTI\r\n": 14,
		"*1\r\n$4\r\nPING\r\n*":                     14,
		"":                                          0,
	} {
		if err := f.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte(text), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
		if got, _, err := completeSize(f); err != nil || got != want {
			t.Errorf("%q is whole until %d, want %d (%v)", text, got, want, err)
		}
	}
}
