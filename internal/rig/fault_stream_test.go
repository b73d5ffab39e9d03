package rig

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// A subscription can be held or lost on its way, as any request.
func TestASubscriptionIsHeldOrDropped(t *testing.T) {
	onRedisAndMemory(t, func(t *testing.T, x *proxiedClient) {
		for _, kind := range []FaultKind{HoldRequest, Drop} {
			// A channel of its own: the server may still be closing the one before.
			news := "news " + kind.String()
			hit := x.Next(kind, MatchWords("SUBSCRIBE", news))
			sub := x.client.Subscribe(t.Context(), news)
			heard := make(chan error)
			go func() { _, err := sub.Receive(t.Context()); heard <- err }()
			<-hit.Struck()
			// After a drop the client may have subscribed again by now.
			if n := x.raw.PubSubNumSub(t.Context(), news).Val()[news]; n != 0 && kind == HoldRequest {
				t.Errorf("%s: %d subscriptions arrived", kind, n)
			}
			hit.Release()
			if err := <-heard; (err != nil) != (kind == Drop) {
				t.Errorf("%s: the subscriber got %v", kind, err)
			}
			_ = sub.Close()
			<-hit.Over()
		}
	})
}

// A client of another process dials the proxy's address.
func TestListen(t *testing.T) {
	store := Real(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	_, faults := store.Faulty(t)
	defer faults.Close()
	c := redis.NewClient(&redis.Options{Addr: faults.Listen(t), MaxRetries: -1})
	defer c.Close()
	hit := faults.Next(SwallowReply, MatchWords("SET"))
	if err := c.Set(context.Background(), "a", "b", 0).Err(); err == nil {
		t.Error("the reply was swallowed, and the client got it")
	}
	<-hit.Over()
	if got, err := c.Get(context.Background(), "a").Result(); got != "b" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	faults.Cut()
	if err := c.Ping(context.Background()).Err(); err == nil {
		t.Error("a cut link answered")
	}
}

// A replica follows its primary through the proxy until the link is cut, and
// again when it is healed.
func TestReplicationPassesThrough(t *testing.T) {
	store, _ := RealServer(t, "--repl-diskless-sync-delay", "0")
	_, faults := store.Faulty(t)
	patient := store.Redis
	patient.ReadTimeout = time.Minute
	primary := redis.NewUniversalClient(&patient)
	defer primary.Close()
	host, port, _ := strings.Cut(faults.Listen(t), ":")
	following, _ := RealServer(t, "--replicaof", host+" "+port, "--repl-timeout", "3600")
	replica := redis.NewUniversalClient(&following.Redis)
	defer replica.Close()
	write := func(key string) {
		t.Helper()
		if err := primary.Set(t.Context(), key, "1", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	arrives := func(key string) {
		t.Helper()
		// WAIT answers when the replica has confirmed what was written.
		if n, err := primary.Do(t.Context(), "WAIT", 1, 30_000).Int(); n != 1 || err != nil {
			t.Fatalf("%d replicas confirmed, %v", n, err)
		}
		if got := replica.Get(t.Context(), key).Val(); got != "1" {
			t.Errorf("%s did not arrive: %q", key, got)
		}
	}
	write("a")
	arrives("a")
	faults.Cut()
	write("b")
	if got := replica.Get(t.Context(), "b").Val(); got != "" {
		t.Errorf("b came through a cut link: %q", got)
	}
	faults.Heal()
	arrives("b")
}
