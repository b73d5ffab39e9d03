package toolproxy_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/eventlog"
	"github.com/picket-dev/picket/toolproxy"
)

// engineEnv is a proxy before a real engine.
type engineEnv struct {
	*orchestrator.Engine
	*proxyEnv
	t       *testing.T
	ctx     context.Context
	raw     redis.UniversalClient // looks into the store and moves its clock
	virtual bool
}

// onBothStores runs a test on the virtual clock with an in-process store, and on a
// real redis-server.
func onBothStores(t *testing.T, test func(t *testing.T, h *engineEnv)) {
	t.Helper()
	t.Run("Virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			onVirtualStore(t, func(h *engineEnv) { test(t, h) })
		})
	})
	t.Run("Real", func(t *testing.T) {
		h, leave := newEngineEnv(t, rig.Real(t))
		defer leave()
		test(t, h)
	})
}

// onVirtualStore runs a test on the clock of the bubble it is called in.
func onVirtualStore(t *testing.T, test func(h *engineEnv)) {
	t.Helper()
	store, stop := rig.Memory()
	defer stop()
	h, leave := newEngineEnv(t, store)
	defer leave()
	h.virtual = true
	test(h)
}

func newEngineEnv(t *testing.T, s rig.Store) (h *engineEnv, leave func()) {
	t.Helper()
	sealer := rig.Sealer()
	store, err := orchestrator.Open(t.Context(),
		orchestrator.Config{
			Redis:   s.Redis,
			Memory:  s.Memory,
			Sealer:  sealer,
			Witness: t.TempDir(),
			Found:   true,
			Log:     slog.New(slog.DiscardHandler),
		})
	if err != nil {
		t.Fatal(err)
	}
	f := newProxyEnvOf(t, sealer, func(ns string) toolproxy.Backend {
		if e := store.Engine(ns); e != nil {
			return e
		}
		return nil
	})
	h = &engineEnv{
		Engine:   store.Engine("default"),
		proxyEnv: f,
		t:        t,
		ctx:      t.Context(),
		raw:      rig.Hashes(redis.NewUniversalClient(&s.Redis)),
	}
	return h, func() {
		_ = h.raw.Close()
		_ = store.Close()
	}
}

var operator = picket.Caller{Actor: "key_test"}

// ok ends the test when a step that only prepares it fails.
func (h *engineEnv) ok(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// submit makes a task that nobody reviews into failure by accident: every way
// its run may end puts it back into the queue.
func (h *engineEnv) submit() picket.Task {
	h.t.Helper()
	attempts := 100
	task, err := h.Submit(h.ctx, operator,
		picket.TaskSpec{Title: "a task", Retry: &picket.Retry{MaxAttempts: &attempts, On: picket.RetryClasses}})
	h.ok(err)
	return task
}

// lease takes the next lease and confirms it.
func (h *engineEnv) lease() picket.Lease {
	h.t.Helper()
	leases, err := h.Acquire(h.ctx, operator, picket.AcquireRequest{AgentID: "agent-1"})
	h.ok(err)
	if len(leases) != 1 {
		h.t.Fatalf("%d leases were granted, want 1", len(leases))
	}
	_, err = h.Renew(h.ctx, h.held(leases[0]))
	h.ok(err)
	return leases[0]
}

func (h *engineEnv) held(l picket.Lease) picket.LeaseCredential {
	h.t.Helper()
	held, err := h.sealer.OpenLeaseToken(l.LeaseToken.Reveal())
	h.ok(err)
	return held
}

const prefix = "pk:{default}:"

// advance moves store time by d, as if reapers had ticked all the while.
func (h *engineEnv) advance(d time.Duration) {
	h.t.Helper()
	h.ok(h.raw.HIncrBy(h.ctx, prefix+"meta", "now", d.Milliseconds()).Err())
}

// expire lets every live lease run out and be swept.
func (h *engineEnv) expire() {
	h.t.Helper()
	h.advance(time.Hour)
	_, err := h.ExpireDue(h.ctx, 100)
	h.ok(err)
}

// state is everything in the store but clocks, the count of events and the
// record of refused writes.
func (h *engineEnv) state() map[string]string {
	h.t.Helper()
	keys, err := h.raw.Keys(h.ctx, prefix+"*").Result()
	h.ok(err)
	all := map[string]string{}
	for _, key := range keys {
		if name := strings.TrimPrefix(key, prefix); !strings.HasPrefix(name, "refused:") && name != "pulse" {
			all[name] = h.dump(key)
		}
	}
	return all
}

func (h *engineEnv) dump(key string) string {
	h.t.Helper()
	kind, err := h.raw.Type(h.ctx, key).Result()
	h.ok(err)
	switch kind {
	case "hash":
		fields, err := h.raw.HGetAll(h.ctx, key).Result()
		h.ok(err)
		if key == prefix+"meta" {
			for _, clock := range []string{"now", "raw", "seq", "tick"} {
				delete(fields, clock)
			}
		}
		return show(fields)
	case "stream":
		entries, err := h.raw.XRange(h.ctx, key, "-", "+").Result()
		h.ok(err)
		var kept []any
		for _, e := range entries {
			if _, packed := e.Values["1"]; !packed {
				if e.Values["type"] != picket.EventWriteRefused {
					kept = append(kept, e)
				}
				continue
			}
			records, err := eventlog.Records(e)
			h.ok(err)
			for _, r := range records {
				if r.Value("type") != picket.EventWriteRefused {
					kept = append(kept, r)
				}
			}
		}
		return show(kept)
	case "zset":
		members, err := h.raw.ZRangeWithScores(h.ctx, key, 0, -1).Result()
		h.ok(err)
		return show(members)
	case "list":
		items, err := h.raw.LRange(h.ctx, key, 0, -1).Result()
		h.ok(err)
		return show(items)
	case "set":
		items, err := h.raw.SMembersMap(h.ctx, key).Result()
		h.ok(err)
		return show(items)
	case "string":
		value, err := h.raw.Get(h.ctx, key).Result()
		h.ok(err)
		return value
	}
	h.t.Fatalf("%s is a %s: the test cannot look into it", key, kind)
	return ""
}
