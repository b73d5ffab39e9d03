package adapter_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/rig"
)

// serverKnowing is a server that knows one run of every task it is asked for.
func serverKnowing(run picket.Run, now time.Time) func(context.Context, string) ([]picket.Run, time.Time, error) {
	return func(context.Context, string) ([]picket.Run, time.Time, error) { return []picket.Run{run}, now, nil }
}

func collected(t *testing.T, kept workspace.KeptWorkspaces, dry bool) []workspace.CollectResult {
	t.Helper()
	got, err := kept.Collect(t.Context(), dry)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// A workspace is deleted when the server allows it and both clocks agree that it is due. It is
// never deleted while it is pinned, in use, undecided or unknown. What was not committed is on the
// branch by then.
func TestExpiredWorkspacesAreDeleted(t *testing.T) {
	rig.SkipShort(t)
	w := newWorktreeFixture(t)
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	res := w.run(lease,
		`echo new > new.txt; mkdir -p locked/deep; echo x > locked/deep/x; chmod 500 locked/deep locked`)
	outside := filepath.Join(t.TempDir(), "precious")
	write(t, filepath.Join(outside, "file"), "mine\n")
	if err := os.Symlink(outside, filepath.Join(res.Workspace, "link")); err != nil {
		t.Fatal(err)
	}
	ended := picket.InstantOf(time.Now().Add(-time.Hour))
	run := picket.Run{RunID: lease.RunID, State: picket.RunCompleted, EndedAt: ended}
	past, future := picket.InstantOf(time.Now().Add(-time.Minute)), picket.InstantOf(time.Now().Add(time.Minute))
	keep := func(until picket.Instant) picket.Run { r := run; r.KeepUntil = until; return r }
	other := run
	other.RunID = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	kept := workspace.KeptWorkspaces{StateDir: w.state}
	if err := kept.Pin(lease.RunID, true); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why    string
		ask    func(context.Context, string) ([]picket.Run, time.Time, error)
		keep   time.Duration
		pinned bool
	}{
		{"the server did not say", nil, 0, false},
		{"the server did not say", func(context.Context, string) ([]picket.Run, time.Time, error) {
			return nil, time.Time{}, errors.New("away")
		}, 0, false},
		{"the server did not say", serverKnowing(other, time.Now()), 0, false},
		{"is not decided", serverKnowing(keep(0), time.Now()), 0, false},
		{"kept until", serverKnowing(keep(future), time.Now()), 0, false},
		{"kept until", serverKnowing(keep(past), past.Time().Add(-time.Hour)), 0, false}, // our clock jumped
		{"kept until", serverKnowing(keep(past), time.Now()), 24 * time.Hour, false},
		{"pinned", serverKnowing(keep(past), time.Now()), 0, true},
	} {
		if err := kept.Pin(lease.RunID, c.pinned); err != nil {
			t.Fatal(err)
		}
		kept.RunsOfTask, kept.Keep = c.ask, c.keep
		got := collected(t, kept, false)
		if len(got) != 1 || got[0].Deleted || !strings.Contains(got[0].Reason, c.why) || !exists(res.Workspace) {
			t.Errorf("%s: %+v", c.why, got)
		}
	}
	kept = workspace.KeptWorkspaces{
		StateDir: w.state,
		RunsOfTask: func(context.Context, string) ([]picket.Run, time.Time, error) {
			return []picket.Run{keep(past)}, time.Now(),
				workspace.KeptWorkspaces{StateDir: w.state}.Pin(lease.RunID, true)
		},
	}
	if err := kept.Pin(lease.RunID, false); err != nil {
		t.Fatal(err)
	}
	if got := collected(t, kept, false); got[0].Deleted || !got[0].Pinned || !exists(res.Workspace) {
		t.Errorf("pinned while the server was asked: %+v", got)
	}
	kept.RunsOfTask = serverKnowing(keep(past), time.Now())
	if err := kept.Pin(lease.RunID, false); err != nil {
		t.Fatal(err)
	}
	if got := collected(t, kept, true); !got[0].Deleted || !exists(res.Workspace) {
		t.Errorf("a dry run: %+v", got)
	}
	if got := collected(t, kept, false); !got[0].Deleted || got[0].Err != nil || exists(res.Workspace) {
		t.Errorf("%+v", got)
	}
	if got := collected(t, kept, false); len(got) != 0 {
		t.Errorf("its record is left: %+v", got)
	}
	if !exists(filepath.Join(outside, "file")) {
		t.Error("a link was followed")
	}
	if trees := runGit(t, w.repo, "worktree", "list"); strings.Count(trees, "\n") != 0 {
		t.Errorf("git still knows the worktree:\n%s", trees)
	}
	if got := runGit(t, w.repo, "show", "picket/"+lease.TaskID+":new.txt"); got != "new" {
		t.Errorf("the branch has %q", got)
	}
}

// Work whose adapter was killed is on its branch before its directory goes.
func TestWhatWasNotCommittedIsCommittedBeforeItGoes(t *testing.T) {
	w := newWorktreeFixture(t)
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	if !w.runAndKill(lease, workspace.ResumeReuse, "indexed", firstWork) {
		t.Fatal("the adapter was not killed")
	}
	past := picket.InstantOf(time.Now().Add(-time.Minute))
	run := picket.Run{RunID: lease.RunID, State: picket.RunExpired, EndedAt: past, KeepUntil: past}
	kept := workspace.KeptWorkspaces{StateDir: w.state, RunsOfTask: serverKnowing(run, time.Now())}
	away := w.repo + ".away" // on a disk that is not mounted now
	if err := os.Rename(w.repo, away); err != nil {
		t.Fatal(err)
	}
	if got := collected(t, kept, false); len(got) != 1 || got[0].Deleted || got[0].Err == nil || !exists(got[0].Path) {
		t.Errorf("without its repository: %+v", got)
	}
	if err := os.Rename(away, w.repo); err != nil {
		t.Fatal(err)
	}
	if got := collected(t, kept, false); len(got) != 1 || !got[0].Deleted || exists(got[0].Path) {
		t.Errorf("%+v", got)
	}
	if got := runGit(t, w.repo, "show", "picket/"+lease.TaskID+":first.txt"); got != "one\ntwo" {
		t.Errorf("the branch has %q", got)
	}
}

// The place of a record that was never written goes after an hour, and nothing
// else does.
func TestDirectoryWithoutARecordIsDeleted(t *testing.T) {
	state := t.TempDir()
	places := map[string]bool{
		"run_01ARZ3NDEKTSV4RRFFQ69G5FAV": false,
		"run_01ARZ3NDEKTSV4RRFFQ69G5FAW": true,
		"run_01ARZ3NDEKTSV4RRFFQ69G5FAX": true,
		"other":                          true,
	}
	old := time.Now().Add(-2 * time.Hour)
	for name := range places {
		dir := filepath.Join(state, "kept", name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "FAW") {
			write(t, filepath.Join(dir, "pinned"), "")
		}
		if !strings.HasSuffix(name, "FAX") { // that is of this moment
			if err := os.Chtimes(dir, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	collected(t, workspace.KeptWorkspaces{StateDir: state}, false)
	for name, stays := range places {
		if exists(filepath.Join(state, "kept", name)) != stays {
			t.Errorf("%s is there: %t", name, !stays)
		}
	}
}

// A workspace that a run works in now is let be.
func TestAWorkspaceInUseStays(t *testing.T) {
	w := newWorktreeFixture(t)
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	past := picket.InstantOf(time.Now().Add(-time.Minute))
	kept := workspace.KeptWorkspaces{
		StateDir: w.state,
		RunsOfTask: serverKnowing(picket.Run{
			RunID:     lease.RunID,
			State:     picket.RunFailed,
			EndedAt:   past,
			KeepUntil: past,
		},
			time.Now()),
	}
	looked := make(chan []workspace.CollectResult, 1)
	w.set = append(w.set, func(c *adapter.Config) {
		c.OnEvent = func(e adapter.Event) {
			if e.Kind == adapter.EventLaunched {
				got, _ := kept.Collect(context.Background(), false)
				looked <- got
			}
		}
	})
	res := w.run(lease, "echo new > new.txt")
	if got := <-looked; len(got) != 1 || got[0].Deleted || !got[0].InUse || !exists(res.Workspace) {
		t.Errorf("%+v", got)
	}
}

// What only a record names is not deleted: it must be a workspace of ours.
func TestARecordCannotNameAnotherDirectory(t *testing.T) {
	state, outside := t.TempDir(), t.TempDir()
	const name = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	write(t, filepath.Join(outside, "file"), "mine\n")
	for _, record := range []string{
		`{"name":"` + name + `","path":"` + outside + `","stage":"making"}`,
		`{"name":"../` + name + `","path":"` + outside + `","stage":"making"}`,
		`{"name":"` + name + `","path":"x/` + name + `","stage":"making"}`,
		`not JSON`,
	} {
		write(t, filepath.Join(state, "kept", name, "workspace.json"), record)
		if got := collected(t, workspace.KeptWorkspaces{StateDir: state}, false); len(got) != 0 ||
			!exists(filepath.Join(outside, "file")) {
			t.Errorf("%s: %+v", record, got)
		}
	}
}

// An empty workspace that nothing was put into goes with its run; any other
// stays.
func TestAnEmptyWorkspaceGoesWithItsRun(t *testing.T) {
	for script, stays := range map[string]bool{"true": false, "touch .picket/x": false, "touch work": true} {
		_, _, res := outputOf(t, []string{"sh", "-c", script}, adaptertest.Task{})
		if exists(res.Workspace) != stays {
			t.Errorf("after %q the workspace is there: %t", script, !stays)
		}
		if list, err := (workspace.KeptWorkspaces{
			StateDir: filepath.Dir(res.StateDir),
		}).List(t.Context()); err != nil ||
			(len(list) == 1) != stays {
			t.Errorf("after %q: %+v, %v", script, list, err)
		}
	}
}
