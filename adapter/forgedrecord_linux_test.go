package adapter_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig"
)

// A record that names a directory outside the workspaces is refused, and says
// what to do.
func TestAForgedRecordIsRefused(t *testing.T) {
	rig.SkipShort(t)
	for name, forge := range map[string]func(w *worktreeFixture, r map[string]any, outside string){
		"directory": func(w *worktreeFixture, r map[string]any, outside string) {
			r["path"] = outside
			delete(r, "identity")
		},
		"unfinished": func(w *worktreeFixture, r map[string]any, outside string) {
			r["path"], r["stage"] = outside, "making"
			delete(r, "identity")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorktreeFixture(t)
			lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
			path := w.run(lease, "echo one > one.txt").Workspace
			g := newDecoyDir(t, path)
			outside := filepath.Join(t.TempDir(), lease.RunID)
			if err := os.Rename(g.path, outside); err != nil {
				t.Fatal(err)
			}
			w.editRecord(lease.RunID, func(r map[string]any) { forge(w, r, outside) })
			got := w.collectAsDue(lease.RunID)
			if len(got) != 1 || got[0].Deleted || got[0].Err == nil ||
				!strings.Contains(got[0].Err.Error(), "outside") ||
				!strings.Contains(got[0].Err.Error(), outside) ||
				!strings.Contains(got[0].Err.Error(), "workspace.json") {
				t.Errorf("collected: %+v", got)
			}
			var log strings.Builder
			w.set = append(w.set, func(c *adapter.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
			if res := w.run(w.s.Supersede(lease.TaskID), "echo two > two.txt"); res.Workspace == outside ||
				res.Workspace == path {
				t.Errorf("the next run worked in %s", res.Workspace)
			}
			if !strings.Contains(log.String(), "outside") {
				t.Errorf("the log does not say it:\n%s", log.String())
			}
			g.check(t, "afterwards")
		})
	}
}

// A record whose git parts an adapter cannot have written is not used.
func TestARecordCannotNameAnotherGitDirectory(t *testing.T) {
	rig.SkipShort(t)
	for member, value := range map[string]string{"branch": "main", "admin": "/tmp/evil"} {
		w := newWorktreeFixture(t)
		lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
		w.run(lease, "echo one > one.txt")
		w.editRecord(lease.RunID, func(r map[string]any) { r[member], r["stage"] = value, "ready" })
		if got := w.collectAsDue(lease.RunID); len(got) != 0 {
			t.Errorf("%s: collected %+v", member, got)
		}
	}
}

// The directory of workspaces may be a link that the user made. It is resolved
// once, when the adapter begins, and the log reports it.
func TestTheRootOfWorkspacesMayBeALink(t *testing.T) {
	rig.SkipShort(t)
	w := newWorktreeFixture(t)
	real, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	w.set = append(w.set, func(c *adapter.Config) {
		c.WorkspaceRoot, c.Log = filepath.Join(link, "new", "root"), slog.New(slog.NewTextHandler(&log, nil))
	})
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	first := w.run(lease, "echo one > one.txt")
	if first.Workspace != filepath.Join(real, "new", "root", lease.RunID) ||
		!strings.Contains(log.String(), "leads through a link") {
		t.Errorf("worked in %s, and said\n%s", first.Workspace, log.String())
	}
	if second := w.run(w.s.Supersede(lease.TaskID), "cat one.txt"); second.Workspace != first.Workspace {
		t.Errorf("the next run worked in %s", second.Workspace)
	}
}
