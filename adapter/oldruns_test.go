package adapter

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig"
)

// A worker that stays for weeks deletes the state of old runs as one that
// starts does.
func TestLongRunningAdapterDeletesOldRuns(t *testing.T) {
	rig.SkipShort(t)
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runFor(time.Minute))
		ctx, drain := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		id := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete})
		v, err := s.Await(ctx, id,
			func(v adaptertest.View) bool { return len(v.Runs) > 0 && v.Runs[0].ExitReport != nil })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		dir := filepath.Join(a.cfg.StateDir, v.Runs[0].RunID)
		// The times of files are not those of the virtual clock.
		if err := os.Chtimes(filepath.Join(dir, exitFile), time.Time{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(a.cfg.KeepRuns - 2*collectInterval)
		if _, err := os.Stat(dir); err != nil {
			t.Fatalf("deleted too early: %v", err)
		}
		time.Sleep(4 * collectInterval)
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("the state of a run that ended %s ago is still there: %v", a.cfg.KeepRuns+2*collectInterval, err)
		}
		drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// An adapter that works deletes the copies of branches that nobody needs.
func TestAnAdapterCleansBareRepositories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newScriptedAdapter(t, runFor(time.Minute))
		copies := filepath.Join(a.cfg.StateDir, "repositories")
		if err := os.MkdirAll(filepath.Join(copies, "1.deleted", "git"), 0o700); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop() // one round
		a.collectWorkspaces(ctx)
		if left, err := os.ReadDir(copies); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}
