package topology

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/branches"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// withAndWithoutBatches runs a test with and without batches.
func withAndWithoutBatches(t *testing.T, test func(t *testing.T, noBatch bool)) {
	t.Run("Batches", func(t *testing.T) { test(t, false) })
	t.Run("Plain", func(t *testing.T) { test(t, true) })
}

// On a Cluster the driver would send a command again when its reply is lost.
// That would be a second effect: a script is sent once.
func TestALostReplyOnAClusterIsNotRepeated(t *testing.T) {
	c := rig.StartCluster(t)
	withAndWithoutBatches(t, func(t *testing.T, noBatch bool) {
		where := c.Store()
		var lost atomic.Int32
		where.Redis.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &replyDropper{Conn: conn, marker: []byte("reply is lost"), lost: &lost}, err
		}
		f := kit.OpenWith(t, where, noBatch)
		defer f.Close()
		f.MustSubmit(t, picket.TaskSpec{}) // the server knows the script from here on
		_, err := f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "reply is lost"})
		kit.Refused(t, err, picket.CodeUnavailable)
		page, err := f.Tasks(f.Ctx, picket.TaskQuery{States: []picket.TaskState{picket.TaskQueued}})
		kit.OK(t, err)
		if made := len(page.Tasks) - 1; made != 1 || lost.Load() != 1 {
			t.Fatalf("%d tasks were made, %d replies lost", made, lost.Load())
		}
		f.CancelAll(t)
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

// Every script runs on a Cluster, on the node that holds its namespace and on
// no other.
func TestEveryScriptOnACluster(t *testing.T) {
	c := rig.StartCluster(t)
	withAndWithoutBatches(t, func(t *testing.T, noBatch bool) {
		f := kit.OpenWith(t, c.Store().Patient(), noBatch)
		defer f.Close()
		branches.Cover(t, f)
		for _, call := range f.Store.ScriptStats() {
			if call.Count == 0 {
				t.Errorf("%s.lua never ran", call.Script)
			}
		}
		home := c.NodeOf(t, "default")
		for _, n := range c.Nodes {
			size, err := n.Do(f.Ctx, "DBSIZE").Int()
			kit.OK(t, err)
			if (size > 0) != (n == home) {
				t.Errorf("%s holds %d keys; the namespace lives on %s", n.Addr, size, home.Addr)
			}
			// Elsewhere a new connection asks whether the namespace is there, and
			// is sent on: a rejected call, which runs nothing.
			calls := n.Info(f.Ctx, "commandstats", "cmdstat_fcall")
			if ran := calls != "" && !strings.HasPrefix(calls, "calls=0,"); ran != (n == home) {
				t.Errorf("functions on %s: %q; the namespace lives on %s", n.Addr, calls, home.Addr)
			}
		}
		kit.OK(t, home.Do(f.Ctx, "FLUSHALL").Err())
	})
}

// Two namespaces live side by side on two nodes: a task of each goes through
// its life, a worker that waits is woken by a submit of another process, and
// each namespace tells its own story.
func TestNamespacesSpreadOverACluster(t *testing.T) {
	c := rig.StartCluster(t)
	names := c.Namespaces(t, 2)
	withAndWithoutBatches(t, func(t *testing.T, noBatch bool) {
		workers := kit.OpenWith(t, c.Store(), noBatch, names...)
		defer workers.Close()
		people := kit.OpenWith(t, c.Store(), noBatch, names...)
		defer people.Close()
		ended := make(chan error)
		for _, ns := range names {
			go func() {
				ended <- kit.RunOneTask(t.Context(), people.Store.Engine(ns), workers.Store.Engine(ns), workers.Sealer)
			}()
		}
		kit.OK(t, errors.Join(<-ended, <-ended))
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
			kit.OK(t, n.Do(t.Context(), "FLUSHALL").Err())
		}
	})
}

func keysOf(t *testing.T, n *rig.Node, pattern string) []string {
	t.Helper()
	keys, err := n.Do(t.Context(), "KEYS", pattern).StringSlice()
	kit.OK(t, err)
	return keys
}
