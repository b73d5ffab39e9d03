package orchestrator_test

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// What happens after the first ask of an acquire was answered with nothing, and before the acquire waits for messages,
// is not missed: the acquire gets the task, or is refused, at once and not at the end of its wait.
func TestNoWakeIsLostBeforeAWaitBegins(t *testing.T) {
	for name, c := range map[string]struct {
		req  picket.AcquireRequest
		task picket.TaskSpec
	}{
		"role": {picket.AcquireRequest{Role: "coder"}, picket.TaskSpec{Title: "x", Role: "coder"}},
		"needs": {picket.AcquireRequest{Capabilities: []string{"a", "b"}},
			picket.TaskSpec{Title: "x", Needs: []string{"b"}}},
		"agent": {picket.AcquireRequest{AgentID: "a1"}, picket.TaskSpec{Title: "x", Agent: "a1"}},
		"only pinned": {picket.AcquireRequest{AgentID: "a1", PinnedOnly: true},
			picket.TaskSpec{Title: "x", Agent: "a1"}},
	} {
		t.Run(name, func(t *testing.T) {
			afterTheFirstAsk(t, func(t *testing.T, e *orchestrator.Engine) {
				_, err := e.Submit(t.Context(), kit.Operator, c.task)
				kit.OK(t, err)
			}, func(t *testing.T, e *orchestrator.Engine) {
				c.req.WaitSeconds = kit.Ptr(50)
				leases, err := e.Acquire(t.Context(), kit.Operator, c.req)
				if err != nil || len(leases) != 1 {
					t.Errorf("%d leases, %v", len(leases), err)
				}
			})
		})
	}
	t.Run("revoked key", func(t *testing.T) {
		afterTheFirstAsk(t, func(t *testing.T, e *orchestrator.Engine) {
			keys, err := e.Keys(t.Context())
			kit.OK(t, err)
			for _, k := range keys {
				_, err := e.RevokeKey(t.Context(), kit.Operator, k.KeyID)
				kit.OK(t, err)
			}
		}, func(t *testing.T, e *orchestrator.Engine) {
			made, err := e.CreateKey(t.Context(), kit.Operator,
				picket.KeyRequest{Name: "k", Scopes: []picket.Scope{picket.ScopeAgent}})
			kit.OK(t, err)
			_, err = e.Acquire(t.Context(), picket.Caller{Actor: made.KeyID, Key: made.KeyID},
				picket.AcquireRequest{WaitSeconds: kit.Ptr(50)})
			kit.Refused(t, err, picket.CodeUnauthenticated)
		})
	})
}

// afterTheFirstAsk runs do between the answer to the first grant of an acquire and all that the acquire does with it.
// The message that do causes has reached the process by then.
func afterTheFirstAsk(t *testing.T, do, acquire func(*testing.T, *orchestrator.Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		where, stop := rig.Memory()
		defer stop()
		var e *orchestrator.Engine
		var asks atomic.Int64
		store, err := orchestrator.Open(t.Context(), orchestrator.Config{Redis: where.Redis, Memory: true,
			Sealer: rig.Sealer(), Witness: t.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler),
			Fault: func(point string) error {
				if point == "redis.grant.after" && asks.Add(1) == 1 {
					do(t, e)
					synctest.Wait() // for the message
				}
				return nil
			}})
		kit.OK(t, err)
		defer store.Close()
		e = store.Engine("default")
		began := time.Now()
		acquire(t, e)
		if took := time.Since(began); took > time.Second || asks.Load() != 2 {
			t.Errorf("the acquire took %v and asked %d times", took, asks.Load())
		}
	})
}

// An acquire that finds a task asks once, however long it would have waited. One that finds none asks once as well, and
// again when it is woken.
func TestAnAcquireAsksOnceUntilItIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		where, stop := rig.Memory()
		defer stop()
		var asks atomic.Int64
		store, err := orchestrator.Open(t.Context(), orchestrator.Config{Redis: where.Redis, Memory: true,
			Sealer: rig.Sealer(), Witness: t.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler),
			Fault: func(point string) error {
				if point == "redis.grant.before" {
					asks.Add(1)
				}
				return nil
			}})
		kit.OK(t, err)
		defer store.Close()
		e := store.Engine("default")
		acquire := func() error {
			leases, err := e.Acquire(t.Context(), kit.Operator, picket.AcquireRequest{WaitSeconds: kit.Ptr(50)})
			if err == nil && len(leases) != 1 {
				err = errors.New("no lease")
			}
			return err
		}
		submit := func() {
			_, err := e.Submit(t.Context(), kit.Operator, picket.TaskSpec{Title: "x"})
			kit.OK(t, err)
		}
		submit()
		kit.OK(t, acquire())
		if n := asks.Swap(0); n != 1 {
			t.Errorf("%d asks for a task that waited", n)
		}
		got := make(chan error, 1)
		go func() { got <- acquire() }()
		synctest.Wait()
		time.Sleep(20 * time.Second)
		if n := asks.Load(); n != 1 {
			t.Errorf("%d asks while there was nothing", n)
		}
		submit()
		kit.OK(t, <-got)
		if n := asks.Load(); n != 2 {
			t.Errorf("%d asks for a task that came later", n)
		}
	})
}
