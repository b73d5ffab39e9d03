package orchestrator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator"
)

// withAndWithoutPipeline runs a test with the pipeliner on and off.
func withAndWithoutPipeline(t *testing.T, test func(t *testing.T, noPipeline bool)) {
	t.Run("Pipelined", func(t *testing.T) { test(t, false) })
	t.Run("Plain", func(t *testing.T) { test(t, true) })
}

// On a Cluster the driver would send a command again when its reply is lost.
// That would be a second effect: a script is sent once.
func TestALostReplyOnAClusterIsNotRepeated(t *testing.T) {
	c := rig.StartCluster(t)
	withAndWithoutPipeline(t, func(t *testing.T, noPipeline bool) {
		where := c.Store()
		var lost atomic.Int32
		where.Redis.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &replyDropper{Conn: conn, marker: []byte("reply is lost"), lost: &lost}, err
		}
		f := openWith(t, where, noPipeline)
		defer f.close()
		f.mustSubmit(t, picket.TaskSpec{}) // the server knows the script from here on
		_, err := f.Submit(f.ctx, operator, picket.TaskSpec{Title: "reply is lost"})
		refused(t, err, picket.CodeUnavailable)
		page, err := f.Tasks(f.ctx, picket.TaskQuery{States: []picket.TaskState{picket.TaskQueued}})
		ok(t, err)
		if made := len(page.Tasks) - 1; made != 1 || lost.Load() != 1 {
			t.Fatalf("%d tasks were made, %d replies lost", made, lost.Load())
		}
		f.cancelAll(t)
	})
}

// replyDropper loses the reply to what carries the marker, and the connection.
type replyDropper struct {
	net.Conn
	marker []byte
	armed  atomic.Bool
	lost   *atomic.Int32
}

func (c *replyDropper) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.marker) {
		c.armed.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *replyDropper) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.armed.Load() {
		c.lost.Add(1)
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

// openWith opens a store of the default namespace, and more when named.
func openWith(t *testing.T, where rig.Store, noPipeline bool, namespaces ...string) *fixture {
	t.Helper()
	sealer := rig.Sealer()
	cfg := orchestrator.Config{Redis: where.Redis, Namespaces: namespaces, Sealer: sealer, ProxyURL: "http://proxy",
		NoPipeline: noPipeline, Witness: t.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler)}
	orchestrator.SetClock(&cfg, fastClock())
	store, err := orchestrator.Open(t.Context(), cfg)
	ok(t, err)
	return &fixture{
		Engine: store.Engines()[0],
		store:  store,
		sealer: sealer,
		ctx:    t.Context(),
		raw:    redis.NewUniversalClient(&where.Redis),
	}
}

// Every script runs on a Cluster, on the node that holds its namespace and on
// no other.
func TestEveryScriptOnACluster(t *testing.T) {
	c := rig.StartCluster(t)
	withAndWithoutPipeline(t, func(t *testing.T, noPipeline bool) {
		f := openWith(t, c.Store(), noPipeline)
		defer f.close()
		coverBranches(t, f)
		for _, call := range f.store.ScriptStats() {
			if call.Count == 0 {
				t.Errorf("%s.lua never ran", call.Script)
			}
		}
		home := c.NodeOf(t, "default")
		for _, n := range c.Nodes {
			size, err := n.Do(f.ctx, "DBSIZE").Int()
			ok(t, err)
			if (size > 0) != (n == home) {
				t.Errorf("%s holds %d keys; the namespace lives on %s", n.Addr, size, home.Addr)
			}
			// Elsewhere a new connection asks whether the namespace is there, and
			// is sent on: a rejected call, which runs nothing.
			calls := n.Info(f.ctx, "commandstats", "cmdstat_evalsha")
			if ran := calls != "" && !strings.HasPrefix(calls, "calls=0,"); ran != (n == home) {
				t.Errorf("scripts on %s: %q; the namespace lives on %s", n.Addr, calls, home.Addr)
			}
		}
		ok(t, home.Do(f.ctx, "FLUSHALL").Err())
	})
}

// Two namespaces live side by side on two nodes: a task of each goes through
// its life, a worker that waits is woken by a submit of another process, and
// each namespace tells its own story.
func TestNamespacesSpreadOverACluster(t *testing.T) {
	c := rig.StartCluster(t)
	names := c.Namespaces(t, 2)
	withAndWithoutPipeline(t, func(t *testing.T, noPipeline bool) {
		workers := openWith(t, c.Store(), noPipeline, names...)
		defer workers.close()
		people := openWith(t, c.Store(), noPipeline, names...)
		defer people.close()
		ended := make(chan error)
		for _, ns := range names {
			go func() {
				ended <- oneTaskLife(t.Context(), people.store.Engine(ns), workers.store.Engine(ns), workers.sealer)
			}()
		}
		ok(t, errors.Join(<-ended, <-ended))
		for i, ns := range names {
			keys := keysOf(t, c.NodeOf(t, ns), "*")
			for _, key := range keys {
				if !strings.HasPrefix(key, "pk:{"+ns+"}:") {
					t.Errorf("%s is on the node of %s", key, ns)
				}
			}
			if elsewhere := keysOf(t, c.NodeOf(t, names[1-i]), "pk:{"+ns+"}:*"); len(keys) == 0 || len(elsewhere) > 0 {
				t.Errorf("%s has %d keys on its node and %q on another", ns, len(keys), elsewhere)
			}
		}
		for _, n := range c.Nodes {
			ok(t, n.Do(t.Context(), "FLUSHALL").Err())
		}
	})
}

func keysOf(t *testing.T, n *rig.Node, pattern string) []string {
	t.Helper()
	keys, err := n.Do(t.Context(), "KEYS", pattern).StringSlice()
	ok(t, err)
	return keys
}

// oneTaskLife is the life of one task between two processes. Nobody here looks twice:
// who waits is woken, or the life ends with an error.
func oneTaskLife(ctx context.Context, people, workers *orchestrator.Engine, sealer *seal.Sealer) error {
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
		leases, err := workers.Acquire(ctx, operator, picket.AcquireRequest{AgentID: "a1", WaitSeconds: ptr(50)})
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
	task, err := people.Submit(ctx, operator, picket.TaskSpec{Title: "t", Review: picket.ReviewByHuman})
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
		_, err = people.Approve(ctx, operator, task.TaskID, picket.Decision{Note: "good"})
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
	if got := joinWords(types); got != "task.submitted task.leased task.progress task.review task.approved" {
		return fmt.Errorf("%s told %s", people.Namespace(), got)
	}
	return nil
}
