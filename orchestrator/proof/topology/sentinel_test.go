package topology

import (
	"context"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Found through Sentinels a task has its life; after a failover a running agent
// goes on with what it holds, and so does everything else.
func TestLifeThroughSentinels(t *testing.T) {
	// With min-replicas-to-write the old primary takes no more writes once its
	// replica has left it, though it does not know yet that it is the old one.
	s := rig.StartSentinels(t, rig.SentinelConfig{Username: "app", Password: "pw",
		Args: append([]string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "10"}, kit.DurableSettings...)})
	withAndWithoutBatches(t, func(t *testing.T, noBatch bool) {
		kit.OK(t, s.WaitInSync())
		workers := kit.OpenWith(t, s.Store(), noBatch)
		defer workers.Close()
		people := kit.OpenWith(t, s.Store(), noBatch)
		defer people.Close()
		kit.OK(t, kit.RunOneTask(t.Context(), people.Engine, workers.Engine, workers.Sealer))
		task := people.MustSubmit(t, picket.TaskSpec{})
		l := workers.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		held := workers.OpenLease(t, l)
		_, err := workers.Renew(t.Context(), held)
		kit.OK(t, err)
		kit.OK(t, s.WaitInSync()) // nothing is lost: the agent's lease is on the replica

		was, now, err := s.FailOver()
		kit.OK(t, err)
		var r picket.Renewal
		retryWhileAway(t, func(ctx context.Context) (err error) { r, err = workers.Renew(ctx, held); return err })
		if r.FencingToken <= l.FencingToken {
			t.Errorf("token %d on the new primary, %d on the old one", r.FencingToken, l.FencingToken)
		}
		retryWhileAway(t, func(ctx context.Context) error {
			_, err := workers.Complete(ctx, held,
				picket.Completion{Output: picket.RawJSON(`1`), Summary: "done on " + now.Addr})
			return err
		})
		retryWhileAway(t, func(ctx context.Context) error {
			_, err := people.Approve(ctx, kit.Operator, task.TaskID, picket.Decision{Note: "good"})
			return err
		})
		people.WantState(t, task.TaskID, picket.TaskCompleted)
		kit.OK(t, s.WaitInSync())
		kit.OK(t, kit.RunOneTask(t.Context(), people.Engine, workers.Engine, workers.Sealer))
		if size, err := was.Do(t.Context(), "DBSIZE").Int(); err != nil || size == 0 {
			t.Errorf("the old primary holds %d keys as a replica (%v)", size, err)
		}
	})
}

// retryWhileAway repeats what a store that is away refused, as every client does.
func retryWhileAway(t *testing.T, act func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := act(ctx)
		if err == nil {
			return
		}
		if picket.CodeOf(err) != picket.CodeUnavailable || ctx.Err() != nil {
			t.Fatal(err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
