package storeloss

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
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A server that nobody has adopted yet may have forgotten what was acknowledged:
// no script does anything on it, whichever way it was reached.
func TestEveryScriptAsksWhichServerItIsOn(t *testing.T) {
	kit.OnBothStores(t, func(t *testing.T, f *kit.Fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "identity", "another server").Err())
		was := metaAndEvents(t, f.Raw)
		for name, source := range kit.Sources(f.Store) {
			if name == "identify" || name == "adopt" {
				continue
			}
			refusal := "store_changed "
			if name == "take_mark" { // it asks for the mark of a stop instead
				refusal = "adopt_lost "
			}
			err := f.Raw.Eval(f.Ctx, source, []string{kit.Meta}, h.TaskID, h.RunID,
				f.Sealer.Fingerprint("default", h.RunID)).Err()
			if err == nil || !strings.HasPrefix(err.Error(), refusal) {
				t.Errorf("%s on a server that was not adopted: %v", name, err)
			}
		}
		if is := metaAndEvents(t, f.Raw); !maps.Equal(was, is) {
			t.Errorf("before %v, after %v", was, is)
		}
	})
}

func metaAndEvents(t *testing.T, raw redis.UniversalClient) map[string]string {
	t.Helper()
	all, err := raw.HGetAll(t.Context(), kit.Meta).Result()
	kit.OK(t, err)
	events, err := raw.XRevRangeN(t.Context(), lossPrefix+"events", "+", "-", 1).Result()
	kit.OK(t, err)
	if len(events) > 0 {
		all["last event"] = events[0].ID
	}
	return all
}

// A replica that lagged is promoted. It has been a primary before, so it knows every script. The
// first call of a process that makes its connection for this very call is refused, too. The lease
// that it shows was ended and granted to somebody else in writes that never reached the replica.
func TestTheFirstCallToAPromotedServerReal(t *testing.T) {
	pair := rig.StartReplicaPair(t)
	f := kit.OpenFixture(t, newStoreRoute(t, pair).store())
	t.Cleanup(f.Close)
	task := f.MustSubmit(t, picket.TaskSpec{})
	first := f.AcquireOne(t, picket.AcquireRequest{})
	h := f.OpenLease(t, first)
	proxies, doors := map[string]*orchestrator.Engine{}, map[string]*storeRoute{}
	for name := range fencedCalls(f.Ctx, nil, h) {
		doors[name] = newStoreRoute(t, pair)
		proxies[name] = f.OpenProcess(t, doors[name].store(), orchestrator.Config{}).Engine("default")
		_, err := proxies[name].Renew(f.Ctx, h)
		kit.OK(t, err)
	}
	pair.WaitInSync()
	for _, source := range kit.Sources(f.Store) {
		kit.OK(t, pair.Replica().Do(f.Ctx, "SCRIPT", "LOAD", source).Err())
	}
	pair.CutLink()
	_, err := f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitReleased})
	kit.OK(t, err)
	second := f.AcquireOne(t, picket.AcquireRequest{})
	if second.TaskID != task.TaskID || second.FencingToken <= first.FencingToken {
		t.Fatalf("the second lease is %+v", second)
	}

	_, now := pair.Promote()
	raw := now.Client()
	defer raw.Close()
	was := metaAndEvents(t, raw)
	for name, proxy := range proxies {
		doors[name].switchTo(now)
		if err := fencedCalls(f.Ctx, proxy, h)[name](); picket.CodeOf(err) != picket.CodeUnavailable {
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
	f := kit.OpenFixture(t, s)
	defer f.Close()
	proxy := f.OpenProcess(t, s, orchestrator.Config{}).Engine("default")
	f.MustSubmit(t, picket.TaskSpec{})
	h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
	for _, e := range []*orchestrator.Engine{f.Engine, proxy} { // both lines of both are open
		_, err := e.Renew(f.Ctx, h)
		kit.OK(t, err)
		_, err = e.Report(f.Ctx, h, "", picket.Progress{Summary: "at work"})
		kit.OK(t, err)
	}
	kit.OK(t, node.Do(f.Ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	kit.OK(t, node.Do(f.Ctx, "REPLICAOF", "NO", "ONE").Err())

	was, open := metaAndEvents(t, f.Raw), dials.Load()
	for name, call := range fencedCalls(f.Ctx, proxy, h) {
		if err := call(); picket.CodeOf(err) != picket.CodeUnavailable {
			t.Errorf("%s on a server nobody has adopted: %v", name, err)
		}
	}
	if is := metaAndEvents(t, f.Raw); !maps.Equal(was, is) {
		t.Errorf("before %v, after %v", was, is)
	}
	if is := dials.Load(); is != open {
		t.Errorf("%d connections were made, so nothing is shown", is-open)
	}
	_, err := f.Report(f.Ctx, h, "", picket.Progress{Summary: "the orchestrator adopts and reclaims"})
	kit.OK(t, err)
	_, err = proxy.Renew(f.Ctx, h)
	kit.OK(t, err)
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
