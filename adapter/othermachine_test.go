package adapter_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/rig"
)

// On a machine without the directory of the run before, a run begins with what
// was committed, or afresh, and the agent is told.
func TestRunResumesOnAnotherMachine(t *testing.T) {
	rig.SkipShort(t)
	for source, want := range map[workspace.Kind]string{
		workspace.Worktree: "branch",
		workspace.Empty:    "fresh",
	} {
		w := newWorktreeFixture(t, func(c *adapter.Config) { c.Workspace = source })
		lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
		here := w.state
		first := w.run(lease, "echo one > one.txt")
		if source == workspace.Worktree {
			write(t, filepath.Join(first.Workspace, "late.txt"), "late\n")
		}
		w.state = t.TempDir()
		second := w.s.Supersede(lease.TaskID)
		res := w.run(second, "cat .picket/task.json > told; ls > listed")
		listed, _ := os.ReadFile(filepath.Join(res.Workspace, "listed"))
		if worktree := source == workspace.Worktree; strings.Contains(string(listed),
			"late.txt\nlisted\none.txt\n") != worktree {
			t.Errorf("%s: it began with\n%s", source, listed)
		}
		told, err := os.ReadFile(filepath.Join(res.Workspace, "told"))
		if err != nil || !strings.Contains(string(told), `"resumed": "`+want+`"`) ||
			!strings.Contains(string(told), `"note": "the directory of the run before is not on this machine"`) {
			t.Errorf("%s: told %s, %v", source, told, err)
		}
		// Back on the first machine, its older directory is not gone on in.
		w.state = here
		third := w.s.Supersede(lease.TaskID)
		if res := w.run(third,
			"cat told || true"); (res.Workspace == first.Workspace) != (source == workspace.Empty) {
			t.Errorf("%s: worked in %s, first in %s", source, res.Workspace, first.Workspace)
		}
	}
}

// The checkout of a user stays where it is, whatever state it is in, and a
// worktree of a worktree belongs to the checkout it was made from.
func TestAWorktreeOfAWorktree(t *testing.T) {
	w := newWorktreeFixture(t)
	main := w.repo
	w.repo = filepath.Join(t.TempDir(), "second")
	runGit(t, main, "worktree", "add", "--quiet", "-b", "topic", w.repo)
	write(t, filepath.Join(w.repo, "topic.txt"), "topic\n")
	runGit(t, w.repo, "add", "--all")
	runGit(t, w.repo, "commit", "--quiet", "--message", "topic")
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	w.run(lease, "cat topic.txt && echo more >> topic.txt")
	if ev := w.changes(lease); ev.Repository != w.repo || ev.Base != runGit(t, main, "rev-parse", "topic") {
		t.Errorf("%+v", ev)
	}
	runGit(t, w.repo, "merge", "--quiet", "picket/"+lease.TaskID)
}
