package orchestrator_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// However many processes export the same events, one of them moves the position on, and it never
// goes back.
func TestTracePositionMovesOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		at, err := f.TracePosition(f.Ctx)
		kit.OK(t, err)
		if newest := f.mustStats(t).LastSeq; at != newest {
			t.Fatalf("it begins at %d, the newest event is %d", at, newest)
		}
		var moved atomic.Int64
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				won, err := f.AdvanceTraces(f.Ctx, at, at+5)
				if err != nil {
					t.Error(err)
				} else if won {
					moved.Add(1)
				}
			})
		}
		all.Wait()
		if moved.Load() != 1 {
			t.Errorf("%d have moved it", moved.Load())
		}
		if won, err := f.AdvanceTraces(f.Ctx, at+5, at); err != nil || won {
			t.Errorf("it went back: %v %v", won, err)
		}
		if now, err := f.TracePosition(f.Ctx); err != nil || now != at+5 {
			t.Errorf("it is at %d, want %d: %v", now, at+5, err)
		}
	})
}
