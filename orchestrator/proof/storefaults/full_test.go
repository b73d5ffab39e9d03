package storefaults

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/devredis"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// TestAServerStartsOnAFullStore fills a real Redis, kills it and starts a
// server on it. The scripts are loaded again, an admin key is registered, leases
// end as before, and people sign in and act.
func TestAServerStartsOnAFullStore(t *testing.T) {
	rig.SkipShort(t)
	const most, less = 96 << 20, 80 << 20 // what was stored is not smaller with less room
	dir, witness := t.TempDir(), t.TempDir()
	start := func(most int64) (*devredis.Server, *orchestrator.Engine, redis.UniversalClient, func()) {
		server, err := devredis.Start(t.Context(), dir, most, nil)
		kit.OK(t, err)
		if server.InMemory() {
			t.Skip("redis-server is not installed")
		}
		where := redis.UniversalOptions{Addrs: []string{server.Addr()}, ReadTimeout: 20 * time.Second}
		store, err := orchestrator.Open(t.Context(),
			orchestrator.Config{Redis: where, Sealer: rig.Sealer(), Witness: witness, Found: true,
				Log: slog.New(slog.DiscardHandler)})
		kit.OK(t, err)
		raw := redis.NewUniversalClient(&where)
		return server, store.Engine("default"), raw, func() { _ = raw.Close(); _ = store.Close() }
	}
	server, e, raw, stop := start(most)
	if got := raw.ConfigGet(t.Context(), "maxmemory").Val()["maxmemory"]; got != fmt.Sprint(int64(most)) {
		t.Fatalf("maxmemory is %s", got)
	}
	var held []picket.LeaseCredential
	for i := range 3 {
		_, err := e.Submit(t.Context(), kit.Operator,
			picket.TaskSpec{Title: "a task", Role: "r", LeaseWindowSeconds: kit.Ptr(3600)})
		kit.OK(t, err)
		leases, err := e.Acquire(t.Context(), kit.Operator, picket.AcquireRequest{AgentID: fmt.Sprint("a", i),
			Role: "r"})
		kit.OK(t, err)
		h, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
		kit.OK(t, err)
		held = append(held, h)
	}
	reviewer, err := e.CreateKey(t.Context(), kit.Operator,
		picket.KeyRequest{Name: "Ada", Scopes: []picket.Scope{picket.ScopeReviewer}})
	kit.OK(t, err)
	_, err = e.Register(t.Context(), kit.AgentOwner, picket.Registration{AgentID: "registered"})
	kit.OK(t, err)
	large := picket.RawJSON(`"` + strings.Repeat("x", 200_000) + `"`)
	fill := func() (n int) {
		for range 1000 {
			_, err := e.Submit(t.Context(), kit.Operator, picket.TaskSpec{Title: "large", Role: "none", Input: large})
			if err != nil {
				kit.Refused(t, err, picket.CodeStoreFull)
				return n
			}
			n++
		}
		t.Fatal("the store is never full")
		return 0
	}
	n := fill()
	used := kit.UsedMemory(t, raw)
	t.Logf("%d tasks were taken; %d of %d MiB are used", n, used>>20, most>>20)
	if used > most-30<<20 || used < most/2 {
		t.Errorf("%d MiB of %d are used: the headroom is 32 MiB", used>>20, most>>20)
	}
	_, err = e.Complete(t.Context(), held[0], picket.Completion{Output: picket.RawJSON(`"done"`)})
	kit.OK(t, err)

	stop()
	kit.OK(t, syscall.Kill(server.PID(), syscall.SIGKILL))
	<-server.Done()
	server, e, raw, stop = start(less)
	defer func() {
		stop()
		kit.OK(t, server.Stop(t.Context()))
	}()
	_, err = e.AdoptKey(t.Context(), kit.Operator, "admin", picket.Secret("pkk_default_"+strings.Repeat("a", 43)),
		[]picket.Scope{picket.ScopeAdmin})
	kit.OK(t, err)
	_, err = e.Submit(t.Context(), kit.Operator, picket.TaskSpec{Title: "large", Input: large})
	kit.Refused(t, err, picket.CodeStoreFull)
	_, err = e.Reclaim(t.Context(), held[1])
	kit.OK(t, err)
	_, err = e.Complete(t.Context(), held[1], picket.Completion{Output: picket.RawJSON(`"done"`)})
	kit.OK(t, err)
	peopleAct(t, e, reviewer.Key, held[0].TaskID, held[2])
	_, err = e.Cancel(t.Context(), kit.Operator, held[2].TaskID, "enough")
	kit.OK(t, err)

	kit.OK(t, raw.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(2*most)).Err())
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, err = e.Submit(t.Context(), kit.Operator, picket.TaskSpec{Title: "large", Input: large})
		if err == nil {
			break
		}
		kit.Refused(t, err, picket.CodeStoreFull)
		if time.Now().After(end) {
			t.Fatal("the store stays full although there is room")
		}
	}
}

// peopleAct signs in and does what people do: it approves a task, gives another
// more money, has it tried again after a crash and commands an agent.
func peopleAct(t *testing.T, e *orchestrator.Engine, key picket.Secret, inReview string,
	crashes picket.LeaseCredential) {
	t.Helper()
	code, _, err := e.BeginLogin(t.Context(), key, kit.LoginHost, "loopback")
	kit.OK(t, err)
	token, _, err := e.OpenLogin(t.Context(), code, kit.LoginHost)
	kit.OK(t, err)
	_, err = e.Login(t.Context(), token, kit.LoginHost)
	kit.OK(t, err)
	_, err = e.Approve(t.Context(), kit.Operator, inReview, picket.Decision{Note: "well done"})
	kit.OK(t, err)
	_, err = e.TopUp(t.Context(), kit.Operator, crashes.TaskID, picket.TopUp{USD: kit.USD("1")})
	kit.OK(t, err)
	_, err = e.Release(t.Context(), crashes, picket.Exit{Class: picket.ExitCrash})
	kit.OK(t, err)
	_, err = e.Retry(t.Context(), kit.Operator, crashes.TaskID, "there is room again")
	kit.OK(t, err)
	_, err = e.CommandAgent(t.Context(), kit.OtherOperator, "registered",
		picket.AgentCommand{Command: picket.CommandPing})
	kit.OK(t, err)
}

// While one request waits for Redis to tell its memory, no other request does.
func TestASlowAnswerAboutMemoryKeepsNobodyWaitingReal(t *testing.T) {
	s := rig.Real(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	watched, dial := s.Redis, s.Redis.Dialer
	watched.ReadTimeout = 20 * time.Second
	watched.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &slowMemory{Conn: c, asked: asked, answer: answer}, err
	}
	store, err := orchestrator.Open(t.Context(),
		orchestrator.Config{Redis: watched, Sealer: rig.Sealer(), Witness: t.TempDir(), Found: true,
			Log: slog.New(slog.DiscardHandler)})
	kit.OK(t, err)
	defer store.Close()
	e := store.Engine("default")
	submit := func() error {
		_, err := e.Submit(t.Context(), kit.Operator, picket.TaskSpec{Title: "a task"})
		return err
	}
	first := make(chan error, 1)
	go func() { first <- submit() }()
	<-asked
	for range 100 { // would wait for the first one
		kit.OK(t, submit())
	}
	select {
	case err := <-first:
		t.Errorf("the first request did not wait for Redis: %v", err)
	default:
	}
	close(answer)
	kit.OK(t, <-first)
}

// slowMemory is a connection on which the first question about memory waits for
// a signal.
type slowMemory struct {
	net.Conn
	asked  chan struct{}
	answer chan struct{}
}

func (c *slowMemory) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("$4\r\ninfo\r\n$6\r\nmemory\r\n")) {
		select {
		case c.asked <- struct{}{}:
			<-c.answer
		case <-c.answer:
		}
	}
	return c.Conn.Write(b)
}
