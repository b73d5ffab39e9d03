package topology

import (
	"context"
	"log/slog"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// When a replica takes over a node of a Cluster, a running agent goes on with
// what it holds under a higher token, and a namespace on another node is not
// touched by it.
func TestANodeOfAClusterFailsOver(t *testing.T) {
	c := rig.StartCluster(t)
	names := c.Namespaces(t, 2)
	home := c.NodeOf(t, names[0])
	replica := c.AddReplica(t, home)
	withAndWithoutBatches(t, func(t *testing.T, noBatch bool) {
		f := kit.OpenWith(t, c.Store(), noBatch, names...)
		defer f.Close()
		others := f.Store.Engine(names[1])
		f.MustSubmit(t, picket.TaskSpec{})
		l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		held := f.OpenLease(t, l)
		_, err := f.Renew(f.Ctx, held)
		kit.OK(t, err)
		quiet, err := others.LastSeq(f.Ctx)
		kit.OK(t, err)

		c.FailOver(t, home, replica)
		// A grant looks who the server is, and adopts it.
		retryWhileAway(t, func(ctx context.Context) error {
			_, err := f.Acquire(ctx, kit.Operator, picket.AcquireRequest{AgentID: "nobody", PinnedOnly: true})
			return err
		})
		var r picket.Renewal
		retryWhileAway(t, func(ctx context.Context) (err error) { r, err = f.Renew(ctx, held); return err })
		if r.FencingToken <= l.FencingToken {
			t.Errorf("token %d on the new node, %d on the old one", r.FencingToken, l.FencingToken)
		}
		retryWhileAway(t, func(ctx context.Context) error {
			_, err := f.Complete(ctx, held, picket.Completion{Output: picket.RawJSON(`1`), Summary: "done"})
			return err
		})
		// Each connection pool learns automatically where the slot is now.
		retryWhileAway(t, func(ctx context.Context) error { _, err := f.LastSeq(ctx); return err })
		kit.OK(t, kit.RunOneTask(t.Context(), f.Engine, f.Engine, f.Sealer))
		seq, err := others.LastSeq(f.Ctx)
		kit.OK(t, err)
		if seq != quiet {
			t.Errorf("the namespace on another node went from event %d to %d", quiet, seq)
		}
		kit.OK(t, kit.RunOneTask(t.Context(), others, others, f.Sealer))
		home, replica = replica, home // and back again
	})
}

// A namespace whose slot is moved while nobody serves it goes on at its new
// place; anyone who serves it again finds it there.
func TestANamespaceMovesToAnotherNode(t *testing.T) {
	c := rig.StartCluster(t)
	ns := c.Namespaces(t, 1)[0]
	home, witness := c.NodeOf(t, ns), t.TempDir()
	next := c.Nodes[0]
	if next == home {
		next = c.Nodes[1]
	}
	start := func() *kit.Fixture {
		where := c.Store()
		store, err := orchestrator.Open(t.Context(),
			orchestrator.Config{Redis: where.Redis, Namespaces: []string{ns}, Sealer: rig.Sealer(),
				Witness: witness, Found: true, Log: slog.New(slog.DiscardHandler)})
		kit.OK(t, err)
		return &kit.Fixture{
			Engine: store.Engine(ns),
			Store:  store,
			Sealer: rig.Sealer(),
			Ctx:    t.Context(),
			Raw:    rig.Hashes(redis.NewUniversalClient(&where.Redis)),
		}
	}
	f := start()
	task := f.MustSubmit(t, picket.TaskSpec{})
	l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
	_, err := f.Renew(f.Ctx, f.OpenLease(t, l))
	kit.OK(t, err)
	f.Close()
	before := len(keysOf(t, home, "*"))

	c.MoveSlot(t, ns, next)
	if left, there := len(keysOf(t, home, "*")), len(keysOf(t, next, "*")); left != 0 || there != before {
		t.Fatalf("%d keys were moved, %d stayed, %d came", before, left, there)
	}
	f = start()
	defer f.Close()
	r, err := f.Renew(f.Ctx, f.OpenLease(t, l))
	kit.OK(t, err)
	if r.FencingToken <= l.FencingToken {
		t.Errorf("token %d here, %d there", r.FencingToken, l.FencingToken)
	}
	_, err = f.Complete(f.Ctx, f.OpenLease(t, l), picket.Completion{})
	kit.OK(t, err)
	f.WantState(t, task.TaskID, picket.TaskReview)
	kit.OK(t, kit.RunOneTask(t.Context(), f.Engine, f.Engine, f.Sealer))
	kit.CheckInvariants(t, f.Engine)
}
