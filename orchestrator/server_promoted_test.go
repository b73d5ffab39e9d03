package orchestrator_test

import (
	"context"
	"maps"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// A server that nobody has adopted yet may have forgotten what was acknowledged:
// no script does anything on it, whichever way it was reached.
func TestEveryScriptAsksWhichServerItIsOn(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{})
		h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		ok(t, f.raw.HSet(f.ctx, meta, "identity", "another server").Err())
		was := metaAndEvents(t, f.raw)
		for name, source := range orchestrator.Sources(f.store) {
			if name == "identify" || name == "adopt" {
				continue
			}
			err := f.raw.Eval(f.ctx, source, []string{meta}, h.TaskID, h.RunID,
				f.sealer.Fingerprint("default", h.RunID)).Err()
			if err == nil || !strings.HasPrefix(err.Error(), "store_changed ") {
				t.Errorf("%s on a server that was not adopted: %v", name, err)
			}
		}
		if is := metaAndEvents(t, f.raw); !maps.Equal(was, is) {
			t.Errorf("before %v, after %v", was, is)
		}
	})
}

func metaAndEvents(t *testing.T, raw redis.UniversalClient) map[string]string {
	t.Helper()
	all, err := raw.HGetAll(t.Context(), meta).Result()
	ok(t, err)
	events, err := raw.XRevRangeN(t.Context(), lossPrefix+"events", "+", "-", 1).Result()
	ok(t, err)
	if len(events) > 0 {
		all["last event"] = events[0].ID
	}
	return all
}

// A replica that lagged is promoted. It has been a primary before, so it knows
// every script. The first call of a process that makes its connection for this
// very call is refused, too: the lease it shows was ended and given to somebody
// else in what the replica never heard of.
func TestTheFirstCallToAPromotedServerReal(t *testing.T) {
	pair := rig.StartReplicaPair(t)
	f := openFixture(t, newStoreRoute(t, pair).store())
	t.Cleanup(f.close)
	task := f.mustSubmit(t, picket.TaskSpec{})
	first := f.acquireOne(t, picket.AcquireRequest{})
	h := f.openLease(t, first)
	proxies, doors := map[string]*orchestrator.Engine{}, map[string]*storeRoute{}
	for name := range fencedCalls(f.ctx, nil, h) {
		doors[name] = newStoreRoute(t, pair)
		proxies[name] = f.openProcess(t, doors[name].store(), orchestrator.Config{}).Engine("default")
		_, err := proxies[name].Renew(f.ctx, h)
		ok(t, err)
	}
	pair.WaitInSync()
	for _, source := range orchestrator.Sources(f.store) {
		ok(t, pair.Replica().Do(f.ctx, "SCRIPT", "LOAD", source).Err())
	}
	pair.CutLink()
	_, err := f.Release(f.ctx, h, picket.Exit{Class: picket.ExitReleased})
	ok(t, err)
	second := f.acquireOne(t, picket.AcquireRequest{})
	if second.TaskID != task.TaskID || second.FencingToken <= first.FencingToken {
		t.Fatalf("the second lease is %+v", second)
	}

	_, now := pair.Promote()
	raw := now.Client()
	defer raw.Close()
	was := metaAndEvents(t, raw)
	for name, proxy := range proxies {
		doors[name].switchTo(now)
		if err := fencedCalls(f.ctx, proxy, h)[name](); picket.CodeOf(err) != picket.CodeUnavailable {
			t.Errorf("%s under a superseded token on a server nobody has adopted: %v", name, err)
		}
	}
	if is := metaAndEvents(t, raw); !maps.Equal(was, is) {
		t.Errorf("before %v, after %v", was, is)
	}
}

// A server can become another one while connections to it stay open, as on a
// Cluster: it is a replica for a while and is promoted again.
func TestAServerThatChangesUnderAnOpenConnectionReal(t *testing.T) {
	node := rig.StartNode(t)
	dials := atomic.Int64{}
	s := node.Store()
	s.Redis.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	f := openFixture(t, s)
	defer f.close()
	proxy := f.openProcess(t, s, orchestrator.Config{}).Engine("default")
	f.mustSubmit(t, picket.TaskSpec{})
	h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
	for _, e := range []*orchestrator.Engine{f.Engine, proxy} { // both lines of both are open
		_, err := e.Renew(f.ctx, h)
		ok(t, err)
		_, err = e.Report(f.ctx, h, "", picket.Progress{Summary: "at work"})
		ok(t, err)
	}
	ok(t, node.Do(f.ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	ok(t, node.Do(f.ctx, "REPLICAOF", "NO", "ONE").Err())

	was, open := metaAndEvents(t, f.raw), dials.Load()
	for name, call := range fencedCalls(f.ctx, proxy, h) {
		if err := call(); picket.CodeOf(err) != picket.CodeUnavailable {
			t.Errorf("%s on a server nobody has adopted: %v", name, err)
		}
	}
	if is := metaAndEvents(t, f.raw); !maps.Equal(was, is) {
		t.Errorf("before %v, after %v", was, is)
	}
	if is := dials.Load(); is != open {
		t.Errorf("%d connections were made, so nothing is shown", is-open)
	}
	_, err := f.Report(f.ctx, h, "", picket.Progress{Summary: "the orchestrator adopts and reclaims"})
	ok(t, err)
	_, err = proxy.Renew(f.ctx, h)
	ok(t, err)
}

// fencedCalls is every way to write under a lease.
func fencedCalls(ctx context.Context, e *orchestrator.Engine, h picket.LeaseCredential) map[string]func() error {
	return map[string]func() error{
		"renew":    func() error { _, err := e.Renew(ctx, h); return err },
		"report":   func() error { _, err := e.Report(ctx, h, "", picket.Progress{Summary: "late"}); return err },
		"release":  func() error { _, err := e.Release(ctx, h, picket.Exit{Class: picket.ExitReleased}); return err },
		"fail":     func() error { _, err := e.Fail(ctx, h, "late", true); return err },
		"reclaim":  func() error { _, err := e.Reclaim(ctx, h); return err },
		"complete": func() error { _, err := e.Complete(ctx, h, picket.Completion{Summary: "late"}); return err },
		"help": func() error {
			_, err := e.RequestHelp(ctx, h, picket.HelpRequest{Question: "which?"})
			return err
		},
	}
}
