package storeloss

import (
	"context"
	"maps"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
		for _, name := range kit.ScriptNames() {
			if name == "identify" || name == "adopt" || name == "migrate" { // they come before an adoption
				continue
			}
			refusal := "store_changed "
			if name == "take_mark" { // it asks for the mark of a stop instead
				refusal = "adopt_lost "
			}
			err := kit.CallRaw(f.Ctx, f.Raw, f.Store, f.RigStore, name, h.TaskID, h.RunID,
				f.Sealer.Fingerprint("default", h.RunID))
			if err == nil || !strings.HasPrefix(err.Error(), refusal) {
				t.Errorf("%s on a server that was not adopted: %v", name, err)
			}
		}
		if is := metaAndEvents(t, f.Raw); !maps.Equal(was, is) {
			t.Errorf("before %v, after %v", was, is)
		}
	})
}

// An adoption that comes too late changes nothing, also on a store that was emptied after it was looked at.
func TestAnAdoptionThatIsTooLateChangesNothing(t *testing.T) {
	for _, empty := range []bool{false, true} {
		kit.OnBothStores(t, func(t *testing.T, f *kit.Fixture) {
			f.MustSubmit(t, picket.TaskSpec{})
			if empty {
				kit.OK(t, f.Raw.FlushDB(f.Ctx).Err())
			}
			was, meta := dumpAll(t, f)
			err := kit.CallRaw(f.Ctx, f.Raw, f.Store, f.RigStore, "adopt", "another server", "", "", "", "store_new",
				7, 9)
			if err == nil || !strings.HasPrefix(err.Error(), "adopt_lost") {
				t.Errorf("the adoption is answered with %v", err)
			}
			is, metaIs := dumpAll(t, f)
			if is != was || !maps.Equal(meta, metaIs) {
				t.Errorf("before %v\n%s\nafter %v\n%s", meta, was, metaIs, is)
			}
		})
	}
}

// dumpAll is all that the store has: what [kit.Dump] says, and the record of the namespace.
func dumpAll(t *testing.T, f *kit.Fixture) (text string, meta map[string]string) {
	t.Helper()
	text, err := kit.Dump(f.Ctx, f.Raw, nil)
	kit.OK(t, err)
	return text, metaAndEvents(t, f.Raw)
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

// A replica that lagged is promoted. It has been a primary before, so it knows every function. The
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

// afterTrust returns when no server trusts any more what it was told before. An adoption takes
// longer than that.
func afterTrust(t *testing.T, node *rig.Node) {
	t.Helper()
	c := node.Client()
	defer c.Close()
	start, err := c.Time(t.Context()).Result()
	kit.OK(t, err)
	kit.WaitFor(t, "6 ms of the server's clock", func() bool {
		now, err := c.Time(t.Context()).Result()
		return err == nil && now.Sub(start) >= 6*time.Millisecond
	})
}

// A server can become another one while connections to it stay open, as on a
// Cluster: it is a replica for a while and is promoted again.
func TestAServerThatChangesUnderAnOpenConnectionReal(t *testing.T) {
	c := newChangingServer(t, func(*orchestrator.Store) {})
	for _, name := range c.change(t) {
		t.Errorf("%s on a server nobody has adopted was not refused", name)
	}
	_, err := c.f.Report(c.f.Ctx, c.held, "", picket.Progress{Summary: "the orchestrator adopts and reclaims"})
	kit.OK(t, err)
	_, err = c.proxy.Renew(c.f.Ctx, c.held)
	kit.OK(t, err)
}

// A store that trusts for good what the server was once shows in that test.
func TestAServerIsNotTrustedForGoodReal(t *testing.T) {
	c := newChangingServer(t, plantMarked(t,
		kit.MarkedLine{"trusts-verified", "if known and known == verified then return true end"}))
	if len(c.change(t)) == 0 {
		t.Error("every call was refused, although the server was trusted for good")
	}
}

// changingServer is a server to which two processes keep their connections open.
type changingServer struct {
	node  *rig.Node
	dials atomic.Int64
	f     *kit.Fixture
	proxy *orchestrator.Engine // it adopts nothing
	held  picket.LeaseCredential
}

func newChangingServer(t *testing.T, plant func(*orchestrator.Store)) *changingServer {
	t.Helper()
	c := &changingServer{node: rig.StartNode(t)}
	s := c.node.Store()
	s.Redis.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		c.dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	c.f = kit.OpenFixture(t, s)
	t.Cleanup(c.f.Close)
	other := c.f.OpenProcess(t, s, orchestrator.Config{})
	plant(c.f.Store)
	plant(other)
	c.proxy = other.Engine("default")
	c.f.MustSubmit(t, picket.TaskSpec{})
	c.held = c.f.OpenLease(t, c.f.AcquireOne(t, picket.AcquireRequest{}))
	for _, e := range []*orchestrator.Engine{c.f.Engine, c.proxy} { // both lines of both are open
		_, err := e.Renew(c.f.Ctx, c.held)
		kit.OK(t, err)
		_, err = e.Report(c.f.Ctx, c.held, "", picket.Progress{Summary: "at work"})
		kit.OK(t, err)
	}
	return c
}

// change makes the server another one, and returns which fenced calls it did not refuse.
func (c *changingServer) change(t *testing.T) (accepted []string) {
	t.Helper()
	kit.OK(t, c.node.Do(c.f.Ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	kit.OK(t, c.node.Do(c.f.Ctx, "REPLICAOF", "NO", "ONE").Err())
	afterTrust(t, c.node)
	was, open := metaAndEvents(t, c.f.Raw), c.dials.Load()
	for name, call := range fencedCalls(c.f.Ctx, c.proxy, c.held) {
		if err := call(); picket.CodeOf(err) != picket.CodeUnavailable {
			accepted = append(accepted, name)
		}
	}
	if is := metaAndEvents(t, c.f.Raw); len(accepted) == 0 && !maps.Equal(was, is) {
		t.Errorf("before %v, after %v", was, is)
	}
	if is := c.dials.Load(); is != open {
		t.Errorf("%d connections were made, so nothing is shown", is-open)
	}
	return accepted
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
