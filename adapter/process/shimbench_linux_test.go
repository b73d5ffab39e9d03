package process_test

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
)

// BenchmarkLaunch measures a run of `true` from its launch to the word that
// nobody of it is left: a bare fork and exec, and each way of containment, with
// this test program and with the picket binary as the shim. started-ms is the
// time until the agent runs.
func BenchmarkLaunch(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("group", func(b *testing.B) { launches(b, process.CommandLauncher{Containment: picket.ContainmentGroup}) })
	binary := filepath.Join(b.TempDir(), "picket")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/picket-dev/picket/cmd/picket").
		CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	best, _ := process.BestContainment()
	for _, level := range []string{picket.ContainmentSubreaper, picket.ContainmentCgroup} {
		if level == picket.ContainmentCgroup && best != level {
			b.Logf("no %s here", level)
			continue
		}
		b.Run(level, func(b *testing.B) { launches(b, process.CommandLauncher{Containment: level}) })
		b.Run(level+"/picket", func(b *testing.B) {
			launches(b, process.CommandLauncher{Containment: level, Shim: []string{binary}})
		})
	}
}

func launches(b *testing.B, l process.CommandLauncher) {
	l.Command = []string{"true"}
	job := process.Job{Dir: b.TempDir(), StateDir: b.TempDir(), Lease: picket.Lease{RunID: "run_bench"}}
	var starting time.Duration
	for b.Loop() {
		start := time.Now()
		p, err := l.Launch(b.Context(), job)
		if err != nil {
			b.Fatal(err)
		}
		starting += time.Since(start)
		<-p.Done()
	}
	b.ReportMetric(float64(starting.Microseconds())/1e3/float64(b.N), "started-ms")
}
