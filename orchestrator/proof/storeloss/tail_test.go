package storeloss

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// A server that dies with the request for a subscription on its way never
// answers it. Nobody may wait for that answer: a stream of events would stand
// still for ever, whatever its context says.
func TestTailOutlivesALostSubscriptionReal(t *testing.T) {
	s, faults := rig.Real(t).Faulty(t)
	var lost atomic.Int64
	faults.Plan(func(command []string) *rig.Fault {
		if !strings.EqualFold(command[0], "SUBSCRIBE") {
			return nil
		}
		lost.Add(1)
		return rig.NewFault(rig.HoldRequest) // and never let go
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		store, err := orchestrator.Open(t.Context(),
			orchestrator.Config{Redis: s.Redis, Sealer: rig.Sealer(), Log: slog.New(slog.DiscardHandler),
				Witness: t.TempDir(), Found: true})
		if err != nil {
			t.Errorf("open: %v", err)
			return
		}
		defer store.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := store.Engine("default").Tail(ctx, 1<<40); err == nil {
			t.Error("there is an event that nobody wrote")
		}
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("after a minute it still waits for the answer to SUBSCRIBE")
	}
	if lost.Load() < 2 {
		t.Fatalf("%d requests were lost, want one for wake-ups and one for events", lost.Load())
	}
}
