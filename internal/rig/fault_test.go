package rig

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// onRedisAndMemory runs a test through a proxy to a real redis-server and to an
// in-process one inside a bubble.
func onRedisAndMemory(t *testing.T, test func(t *testing.T, x *proxiedClient)) {
	t.Helper()
	t.Run("Real", func(t *testing.T) {
		store := Real(t)
		defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
		x := newProxiedClient(t, store)
		defer x.close()
		test(t, x)
	})
	t.Run("Virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, stop := Memory()
			defer stop()
			x := newProxiedClient(t, store)
			defer x.close()
			test(t, x)
		})
	})
}

// proxiedClient is a client through a proxy, and one past it.
type proxiedClient struct {
	*FaultProxy
	t      *testing.T
	client *redis.Client
	raw    *redis.Client
}

func newProxiedClient(t *testing.T, store Store) *proxiedClient {
	through, faults := store.Faulty(t)
	client := func(s Store) *redis.Client {
		o := s.Redis.Simple()
		o.MaxRetries, o.DialerRetries = -1, 1
		o.ReadTimeout = time.Minute // only giving up may end a wait
		return redis.NewClient(o)
	}
	return &proxiedClient{FaultProxy: faults, t: t, client: client(through), raw: client(store)}
}

func (x *proxiedClient) close() {
	_ = x.client.Close()
	_ = x.raw.Close()
	x.FaultProxy.Close()
}

// batch sends INCR of k0 to k4 in one write.
func (x *proxiedClient) batch() error {
	_, err := x.client.Pipelined(x.t.Context(), func(pipe redis.Pipeliner) error {
		for i := range 5 {
			pipe.Incr(x.t.Context(), fmt.Sprint("k", i))
		}
		return nil
	})
	return err
}

// values reads k0 to k4 past the proxy.
func (x *proxiedClient) values() string {
	x.t.Helper()
	got, err := x.raw.MGet(x.t.Context(), "k0", "k1", "k2", "k3", "k4").Result()
	if err != nil {
		x.t.Fatal(err)
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(got), "[]"), "<nil>", "-")
}

// answers sends the same batch on a bare connection and returns what arrives
// before the end of it or the fifth answer: a client that reads a batch calls
// all of it lost when a part is.
func (x *proxiedClient) answers() string {
	x.t.Helper()
	conn, err := x.dial(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	defer conn.Close()
	batch := ""
	for i := range 5 {
		batch += fmt.Sprintf("*2\r\n$4\r\nINCR\r\n$2\r\nk%d\r\n", i)
	}
	if _, err := conn.Write([]byte(batch)); err != nil {
		x.t.Fatal(err)
	}
	in, out := bufio.NewReader(conn), ""
	for range 5 {
		reply, err := readValue(in, nil)
		if err != nil {
			return out + "end"
		}
		out += strings.TrimSpace(string(reply))
	}
	return out
}

// A fault hits one command in the middle of a batch: what was before it is
// answered, what comes after it is not done, and it is done as often as its
// kind says.
func TestAFaultHitsOneCommandOfABatch(t *testing.T) {
	for _, c := range []struct {
		kind    FaultKind
		answers string
		values  string
	}{
		{Drop, ":1:1end", "1 1 - - -"},
		{SwallowReply, ":1:1end", "1 1 1 - -"},
		{Duplicate, ":1:1:2:1:1", "1 1 2 1 1"},
	} {
		t.Run(c.kind.String(), func(t *testing.T) {
			onRedisAndMemory(t, func(t *testing.T, x *proxiedClient) {
				hit := x.Next(c.kind, MatchWords("INCR", "k2"))
				if got := x.answers(); got != c.answers {
					t.Errorf("the client got %s, want %s", got, c.answers)
				}
				<-hit.Struck()
				<-hit.Over()
				if got := x.values(); got != c.values {
					t.Errorf("the store has %s, want %s", got, c.values)
				}
				if err := x.batch(); err != nil {
					t.Errorf("the next batch: %v", err)
				}
				n := x.Counts()
				if n.Struck[c.kind] != 1 || n.Requests < 10 || n.Refused != 0 {
					t.Errorf("counted %+v", n)
				}
			})
		})
	}
}

// A held reply arrives when the test tells it to, on time or after the client
// has given up; then nobody gets it, and the command was done once.
func TestHoldReply(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late=%v", late), func(t *testing.T) {
			onRedisAndMemory(t, func(t *testing.T, x *proxiedClient) {
				hit := x.Next(HoldReply, MatchWords("INCR", "k2"))
				done := make(chan error)
				go func() { done <- x.batch() }()
				<-hit.Answered()
				if got := x.raw.Get(t.Context(), "k2").Val(); got != "1" {
					t.Errorf("while its reply is held k2 is %q", got)
				}
				if late {
					hit.GiveUp()
					if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the client gave up and got %v", err)
					}
				}
				hit.Release()
				<-hit.Over()
				if !late {
					if err := <-done; err != nil {
						t.Errorf("the client got %v", err)
					}
				}
				// Nothing is out of step: each reply goes to its own command.
				for i := range 3 {
					if got, err := x.client.Echo(t.Context(), i).Result(); err != nil || got != fmt.Sprint(i) {
						t.Errorf("echo %d: %v %v", i, got, err)
					}
				}
			})
		})
	}
}

// A held request reaches the store when the test tells it to, also after its
// client has gone.
func TestHoldRequest(t *testing.T) {
	onRedisAndMemory(t, func(t *testing.T, x *proxiedClient) {
		hit := x.Next(HoldRequest, MatchWords("incr", "k2"))
		done := make(chan error)
		go func() { done <- x.batch() }()
		hit.GiveUp()
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the client gave up and got %v", err)
		}
		if got := x.values(); got != "1 1 - - -" {
			t.Errorf("before the release the store has %s", got)
		}
		hit.Release()
		<-hit.Answered()
		<-hit.Over()
		if got, err := x.raw.Get(t.Context(), "k2").Result(); got != "1" || err != nil {
			t.Errorf("the late request was not done: k2 is %q, %v", got, err)
		}
	})
}

// Cut ends every connection, subscriptions too, and refuses new ones until
// Heal.
func TestCutAndHeal(t *testing.T) {
	onRedisAndMemory(t, func(t *testing.T, x *proxiedClient) {
		sub := x.client.Subscribe(t.Context(), "news")
		defer sub.Close()
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := x.raw.Publish(t.Context(), "news", "one").Err(); err != nil {
			t.Fatal(err)
		}
		if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != "one" {
			t.Fatalf("heard %v, %v", m, err)
		}
		held := x.Next(HoldReply, MatchWords("GET"))
		waits := make(chan error)
		go func() { waits <- x.client.Get(t.Context(), "k").Err() }()
		<-held.Answered()
		x.Cut()
		if err := <-waits; err == nil || errors.Is(err, redis.Nil) {
			t.Errorf("a reply was held when the link was cut, and the client got %v", err)
		}
		<-held.Over()
		err := x.client.Ping(t.Context()).Err()
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("while cut: %v", err)
		}
		if x.Counts().Refused == 0 {
			t.Error("a refusal was not counted")
		}
		x.Heal()
		if err := x.client.Ping(t.Context()).Err(); err != nil {
			t.Errorf("after the cut: %v", err)
		}
	})
}

// A plan decides about every command on its own; Next comes first.
func TestFaultPlan(t *testing.T) {
	onRedisAndMemory(t, func(t *testing.T, x *proxiedClient) {
		seen := 0
		x.Plan(func(command []string) *Fault {
			if !strings.EqualFold(command[0], "INCR") {
				return nil
			}
			if seen++; seen%2 == 0 {
				return NewFault(Duplicate)
			}
			return nil
		})
		x.Next(Duplicate, MatchWords("INCR", "k0"))
		if err := x.batch(); err != nil {
			t.Fatal(err)
		}
		if got := x.values(); got != "2 1 2 1 2" {
			t.Errorf("the store has %s", got)
		}
		x.Plan(nil)
		if err := x.batch(); err != nil {
			t.Fatal(err)
		}
		if got := x.values(); got != "3 2 3 2 3" {
			t.Errorf("without the plan the store has %s", got)
		}
	})
}
