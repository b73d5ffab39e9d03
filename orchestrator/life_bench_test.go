package orchestrator_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// BenchmarkLife lets tasks live: 16 goroutines submit them, and 16 workers wait for a lease and complete it. The
// metric cpu-ns/op is the processor time of this process alone, without that of Redis.
//
//	go test ./orchestrator -run '^$' -bench '^BenchmarkLife$' -benchtime 20000x
func BenchmarkLife(b *testing.B) {
	for name, waiting := range map[string]int{"alone": 0, "others=500": 500} {
		b.Run(name, func(b *testing.B) { benchmarkLife(b, waiting) })
	}
}

// benchmarkLife has other agents wait for a lease that never comes.
func benchmarkLife(b *testing.B, waiting int) {
	s := rig.Real(b).Patient()
	sealer := rig.Sealer()
	store, err := orchestrator.Open(b.Context(), orchestrator.Config{Redis: s.Redis, Sealer: sealer,
		Witness: b.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	e := store.Engine("default")
	var others sync.WaitGroup
	defer others.Wait()
	defer store.Close()
	wait := 50
	for range waiting {
		others.Go(func() {
			_, _ = e.Acquire(b.Context(), kit.Operator, picket.AcquireRequest{Role: "other", WaitSeconds: &wait})
		})
	}
	input := picket.RawJSON(`"` + strings.Repeat("x", 1000) + `"`)
	one := func() error {
		_, err := e.Submit(b.Context(), kit.Operator, picket.TaskSpec{Title: "life", Role: "builder", Input: input,
			Review: picket.ReviewByNone})
		return err
	}
	end := func() error {
		leases, err := e.Acquire(b.Context(), kit.Operator, picket.AcquireRequest{Role: "builder", WaitSeconds: &wait})
		if err != nil || len(leases) != 1 {
			return fmt.Errorf("%d leases: %w", len(leases), err)
		}
		held, err := sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
		if err != nil {
			return err
		}
		_, err = e.Complete(b.Context(), held, picket.Completion{Output: picket.RawJSON(`"done"`)})
		return err
	}
	b.ReportAllocs()
	before := processTime(b)
	b.ResetTimer()
	var submits, ends atomic.Int64
	var group sync.WaitGroup
	for range 16 {
		for count, do := range map[*atomic.Int64]func() error{&submits: one, &ends: end} {
			group.Go(func() {
				for count.Add(1) <= int64(b.N) {
					if err := do(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
	}
	group.Wait()
	b.ReportMetric(float64(processTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// processTime returns the processor time of this process in nanoseconds.
func processTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
