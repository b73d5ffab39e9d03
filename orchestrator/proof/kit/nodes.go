package kit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
)

// OpenWith opens a store of the default namespace, and more when named.
func OpenWith(t *testing.T, where rig.Store, noBatch bool, namespaces ...string) *Fixture {
	t.Helper()
	sealer := rig.Sealer()
	cfg := orchestrator.Config{Redis: where.Redis, Namespaces: namespaces, Sealer: sealer, ProxyURL: "http://proxy",
		NoBatch: noBatch, Witness: t.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler)}
	cfg.Now = FastClock()
	store, err := orchestrator.Open(t.Context(), cfg)
	OK(t, err)
	return &Fixture{
		Engine: store.Engines()[0],
		Store:  store,
		Sealer: sealer,
		Ctx:    t.Context(),
		Raw:    rig.Hashes(redis.NewUniversalClient(&where.Redis)),
	}
}

// RunOneTask is the life of one task between two processes. Nobody here looks twice: a waiter is
// woken, or the test ends with an error.
func RunOneTask(ctx context.Context, people, workers *orchestrator.Engine, sealer *seal.Sealer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	told := make(chan error, 1)
	last, err := people.LastSeq(ctx)
	if err != nil {
		return err
	}
	go func() { told <- people.Tail(ctx, last) }()
	got := make(chan []picket.Lease, 1)
	failed := make(chan error, 1)
	go func() {
		leases, err := workers.Acquire(ctx, Operator, picket.AcquireRequest{AgentID: "a1", WaitSeconds: Ptr(50)})
		failed <- err
		got <- leases
	}()
	for waits := int64(0); waits == 0; {
		select {
		case err := <-failed:
			return fmt.Errorf("the worker does not wait: %w", err)
		default:
		}
		s, err := people.Stats(ctx)
		if err != nil {
			return err
		}
		waits = s.Waiters
	}
	task, err := people.Submit(ctx, Operator, picket.TaskSpec{Title: "t", Review: picket.ReviewByHuman})
	if err != nil {
		return err
	}
	if err := errors.Join(<-failed, <-told); err != nil {
		return err
	}
	leases := <-got
	if len(leases) != 1 || leases[0].TaskID != task.TaskID {
		return fmt.Errorf("the worker that waited got %v", leases)
	}
	held, err := sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
	if err != nil {
		return err
	}
	_, err = workers.Renew(ctx, held)
	if err == nil {
		_, err = workers.Report(ctx, held, "r1", picket.Progress{Summary: "half"})
	}
	if err == nil {
		_, err = workers.Complete(ctx, held, picket.Completion{Output: picket.RawJSON(`1`), Summary: "done"})
	}
	if err == nil {
		_, err = people.Approve(ctx, Operator, task.TaskID, picket.Decision{Note: "good"})
	}
	if err != nil {
		return err
	}
	page, err := people.Events(ctx, picket.EventQuery{After: last})
	if err != nil {
		return err
	}
	var types []string
	for _, ev := range page.Events {
		types = append(types, ev.Type)
	}
	if got := JoinWords(types); got != "task.submitted task.leased task.progress task.review task.approved" {
		return fmt.Errorf("%s told %s", people.Namespace(), got)
	}
	return nil
}

// DurableSettings are the settings that satisfy every check.
var DurableSettings = []string{"--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"}

// WaitFor waits for something that tells nobody when it happens.
func WaitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	late := time.After(time.Minute)
	for !is() {
		select {
		case <-late:
			t.Fatalf("after a minute: not yet: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func UsedMemory(t *testing.T, raw redis.UniversalClient) (n int64) {
	t.Helper()
	text, err := raw.Info(t.Context(), "memory").Result()
	OK(t, err)
	_, rest, _ := strings.Cut(text, "\nused_memory:")
	_, err = fmt.Sscan(rest, &n)
	OK(t, err)
	return n
}
