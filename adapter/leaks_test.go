//go:build linux

package adapter_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// footprint is what a process holds while it waits for work.
type footprint struct {
	goroutines int
	files      int
	children   int
	cgroups    int
	runs       int
	stored     int
}

func (f footprint) String() string {
	return fmt.Sprintf("%d goroutines, %d file descriptors, %d children, %d control groups, %d processes of agents, the state of %d runs",
		f.goroutines, f.files, f.children, f.cgroups, f.runs, f.stored)
}

// A resident adapter that has had fifty short runs holds what it holds
// after many more. Of a run that is over only its state is kept, until KeepRuns
// has passed.
func TestShortRunsLeaveNothing(t *testing.T) {
	rig.SkipShort(t)
	const early = 50
	total := 200
	if rig.Soaking() {
		total = 2_000
	}
	s := adaptertest.Start(t)
	var dir string
	a := newAdapter(t, s, []string{"sh", "-c", `(sleep 1000 &); echo "run $PICKET_FENCING_TOKEN"; exit 0`},
		func(c *adapter.Config) {
			c.KeepRuns = time.Millisecond
			dir = c.StateDir
		})
	ctx, drain := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(drain)
	var before, after footprint
	began := time.Now()
	for n := 1; n <= total; n++ {
		id := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete})
		_, err := s.Await(proctest.Patience(t), id, func(v adaptertest.View) bool {
			return v.State == picket.TaskReview && v.Runs[0].ExitReport != nil
		})
		if err != nil {
			t.Fatalf("run %d: %v", n, err)
		}
		switch n {
		case early:
			before = awaitSettled(dir, footprint{})
		case total:
			after = awaitSettled(dir, before)
		}
	}
	if after.stored < total {
		t.Errorf("the state of %d runs is kept, there were %d", after.stored, total)
	}
	drain()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	again, stop := context.WithCancel(t.Context())
	stop() // it looks, and takes no work
	if err := a.Run(again); err != nil {
		t.Fatal(err)
	}
	if swept := measureFootprint(dir); swept.stored > 0 {
		t.Errorf("the state of %d runs is still kept", swept.stored)
	}
	t.Logf("%d runs in %s; after %d: %s; after %d: %s", total, time.Since(began).Round(time.Millisecond), early, before,
		total, after)
	if after.exceeds(before) {
		t.Errorf("after %d runs there are %s; after %d there were %s", total, after, early, before)
	}
}

// exceeds allows for what comes and goes: a connection, a timer.
func (f footprint) exceeds(g footprint) bool {
	return f.goroutines > g.goroutines+3 || f.files > g.files+3 || f.children > g.children || f.cgroups > g.cgroups ||
		f.runs > g.runs
}

// awaitSettled looks until nothing is left to go away: what a run's end leaves to
// its goroutines takes a moment.
func awaitSettled(dir string, at footprint) footprint {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		now := measureFootprint(dir)
		if !now.exceeds(at) || time.Now().After(end) {
			return now
		}
		if at == (footprint{}) && now.runs == 0 && now.children == 0 {
			return now
		}
	}
}

func measureFootprint(dir string) (f footprint) {
	f.goroutines = runtime.NumGoroutine()
	open, _ := os.ReadDir("/proc/self/fd")
	f.files = len(open)
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range tasks {
		b, _ := os.ReadFile(file)
		f.children += len(strings.Fields(string(b)))
	}
	for _, mount := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		_ = filepath.WalkDir(mount, func(path string, e fs.DirEntry, err error) error {
			_, name, ok := strings.Cut(filepath.Base(path), "run_")
			if run, _, _ := strings.Cut("run_"+name, "-"); ok && err == nil && e.IsDir() &&
				isThere(filepath.Join(dir, run)) {
				f.cgroups++ // of this adapter, not of another on the machine
			}
			return nil
		})
	}
	kept, _ := filepath.Glob(filepath.Join(dir, "run_*"))
	f.stored = len(kept)
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range environs {
		if b, _ := os.ReadFile(file); strings.Contains(string(b), dir) {
			f.runs++
		}
	}
	return f
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
