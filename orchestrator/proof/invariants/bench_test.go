package invariants

import (
	"fmt"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// What a look of the reaper costs: flat, however many tasks there are.
//
//	go test ./orchestrator/proof/invariants -run '^$' -bench '^BenchmarkInspect$' -benchtime 200x
func BenchmarkInspect(b *testing.B) {
	s := rig.Real(b)
	for _, tasks := range []int{1_000, 10_000, 100_000} {
		ns := fmt.Sprintf("n%d", tasks)
		store, err := orchestrator.Open(b.Context(),
			orchestrator.Config{Redis: s.Redis, Namespaces: []string{ns}, Sealer: rig.Sealer(),
				Witness: b.TempDir(), Found: true})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = store.Close() })
		e := store.Engine(ns)
		fill(b, e, tasks)
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			for b.Loop() {
				if err := e.InspectNext(b.Context(), 100); err != nil {
					b.Fatal(err)
				}
			}
		})
		if found := e.Violations(); len(found) > 0 {
			b.Fatalf("false alarms: %+v", found)
		}
	}
}

// fill makes tasks, half of them leased.
func fill(b *testing.B, e *orchestrator.Engine, tasks int) {
	b.Helper()
	const hands = 64
	made := make(chan error, hands)
	for h := range hands {
		go func() {
			for i := h; i < tasks; i += hands {
				if _, err := e.Submit(b.Context(), kit.Operator, picket.TaskSpec{Title: "t"}); err != nil {
					made <- err
					return
				}
			}
			made <- nil
		}()
	}
	for range hands {
		if err := <-made; err != nil {
			b.Fatal(err)
		}
	}
	for leased := 0; leased < tasks/2; {
		got, err := e.Acquire(b.Context(), kit.Operator, picket.AcquireRequest{AgentID: "a1", Max: kit.Ptr(100)})
		if err != nil || len(got) == 0 {
			b.Fatalf("acquired %d: %v", len(got), err)
		}
		leased += len(got)
	}
}
