package adapter_test

import (
	"fmt"
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

// newRemoteFixture has a bare repository that both machines may push to.
func newRemoteFixture(t *testing.T) *worktreeFixture {
	w := newWorktreeFixture(t)
	w.remote = filepath.Join(t.TempDir(), "remote.git")
	runGit(t, w.repo, "init", "--quiet", "--bare", w.remote)
	return w
}

// otherMachine has its own state and its own clone of the repository, without any branch of a task.
func (w *worktreeFixture) otherMachine() *worktreeFixture {
	w.t.Helper()
	clone := filepath.Join(w.t.TempDir(), "clone")
	runGit(w.t, w.repo, "clone", "--quiet", "--single-branch", "--branch", "main", w.repo, clone)
	runGit(w.t, clone, "remote", "remove", "origin")
	other := *w
	other.repo, other.state = clone, w.t.TempDir()
	return &other
}

// resumedFrom is what the agent of a run was told, and what it found.
func (w *worktreeFixture) resumedFrom(lease picket.Lease) (told string, found string) {
	w.t.Helper()
	res := w.run(lease, "cp .picket/task.json told; ls > found; true")
	t, err := os.ReadFile(filepath.Join(res.Workspace, "told"))
	f, bad := os.ReadFile(filepath.Join(res.Workspace, "found"))
	if err != nil || bad != nil {
		w.t.Fatal(err, bad)
	}
	return string(t), string(f)
}

// A machine that is killed at any step of its pushes, while its agent works, loses at most what
// was not pushed yet: another machine goes on with the branch.
func TestAKilledMachineLeavesItsBranchOnTheRemote(t *testing.T) {
	rig.SkipShort(t)
	for _, c := range []struct{ at, resumed string }{
		{"pushed", "branch"}, {"pushing", "fresh"}, {"moved", "fresh"}, {"checked", "fresh"}, {"initialized", "fresh"},
	} {
		t.Run(c.at, func(t *testing.T) {
			w := newRemoteFixture(t)
			lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
			script := "echo one > one.txt; git add one.txt; git commit -qm one; exec sleep 1000"
			if !w.runAndKill(lease, workspace.ResumeReuse, c.at, script) {
				t.Fatalf("it was not killed at %s", c.at)
			}
			told, found := w.otherMachine().resumedFrom(w.s.Supersede(lease.TaskID))
			if !strings.Contains(told, `"resumed": "`+c.resumed+`"`) ||
				strings.Contains(found, "one.txt") != (c.resumed == "branch") {
				t.Errorf("it was told %s and found\n%s", told, found)
			}
			if c.resumed == "fresh" && !strings.Contains(told, "workspace.remote: ") {
				t.Errorf("it was not told why: %s", told)
			}
			// The first machine is back, and goes on as well.
			third := w.s.Supersede(lease.TaskID)
			w.run(third, "ls")
			want := fmt.Sprintf("refs/picket/%s/%d", lease.TaskID, third.FencingToken)
			if refs := runGit(t, w.remote, "for-each-ref", "--format=%(refname)"); !strings.Contains(refs, want) {
				t.Errorf("the remote has %q, not %s", refs, want)
			}
		})
	}
}

// What a run leaves is on the remote before it is reported ended, and the work of the run before, which
// is part of it, is not there twice.
func TestTheLastCommitIsPushed(t *testing.T) {
	rig.SkipShort(t)
	w := newRemoteFixture(t)
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	w.run(lease, "echo one > one.txt")
	second := w.otherMachine()
	next := w.s.Supersede(lease.TaskID)
	told, found := second.resumedFrom(next)
	if !strings.Contains(told, `"resumed": "branch"`) || !strings.Contains(found, "one.txt") {
		t.Errorf("it was told %s and found\n%s", told, found)
	}
	want := fmt.Sprintf("refs/picket/%s/%d", lease.TaskID, next.FencingToken)
	if refs := runGit(t, w.remote, "for-each-ref", "--format=%(refname)"); refs != want {
		t.Errorf("the remote has %q, not %s", refs, want)
	}
	if note := second.changes(next).Diffstat; strings.Contains(note, "only on this machine") {
		t.Error(note)
	}
	// a task that repeats this one begins with its work
	repeat := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	repeat.Task.Retries = &lease.TaskID
	if _, found := w.otherMachine().resumedFrom(repeat); !strings.Contains(found, "one.txt") {
		t.Errorf("the task that repeats it found\n%s", found)
	}
}

// A machine that has an older run's directory and branch goes on with what a later run has pushed
// from another machine. What only this machine has stays on a branch of its own.
func TestAnOlderBranchHereIsLeftForANewerOneElsewhere(t *testing.T) {
	rig.SkipShort(t)
	w := newRemoteFixture(t)
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	first := w.run(lease, "echo one > one.txt")
	write(t, filepath.Join(first.Workspace, "late.txt"), "late\n")
	w.otherMachine().run(w.s.Supersede(lease.TaskID), "echo two > two.txt")
	told, found := w.resumedFrom(w.s.Supersede(lease.TaskID))
	if !strings.Contains(told, `"resumed": "branch"`) || !strings.Contains(found, "one.txt\n") ||
		!strings.Contains(found, "two.txt\n") {
		t.Errorf("it was told %s and found\n%s", told, found)
	}
	// Nobody else has worked since: the directory is used again, and the remote is not asked.
	if err := os.RemoveAll(w.remote); err != nil {
		t.Fatal(err)
	}
	told, found = w.resumedFrom(w.s.Supersede(lease.TaskID))
	if !strings.Contains(told, `"resumed": "reuse"`) || !strings.Contains(found, "two.txt\n") {
		t.Errorf("it was told %s and found\n%s", told, found)
	}
}

// A run that has lost its lease pushes nothing any more.
func TestALostLeasePushesNothing(t *testing.T) {
	rig.SkipShort(t)
	w := newRemoteFixture(t)
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	w.set = append(w.set, func(c *adapter.Config) {
		c.OnEvent = func(e adapter.Event) {
			if e.Kind == adapter.EventLaunched {
				go w.s.Supersede(lease.TaskID)
			}
		}
	})
	if res := w.run(lease, "echo one > one.txt; exec sleep 1000"); res.Ending != adapter.EndLost {
		t.Errorf("the run ended as %+v", res)
	}
	if refs := runGit(t, w.remote, "for-each-ref"); refs != "" {
		t.Errorf("the remote has %s", refs)
	}
}

// A remote that cannot be used ends no run. Its reviewer, its log and the next run are told why.
func TestARemoteThatFailsEndsNoRun(t *testing.T) {
	rig.SkipShort(t)
	for name, c := range map[string]struct {
		spoil func(t *testing.T, remote string)
		want  string
	}{
		"missing": {func(t *testing.T, remote string) { os.RemoveAll(remote) }, "there is no such repository"},
		"full": {func(t *testing.T, remote string) { runGit(t, remote, "config", "receive.maxInputSize", "1") },
			"has rejected the branch"},
		"declines": {func(t *testing.T, remote string) {
			write(t, filepath.Join(remote, "hooks", "pre-receive"), "#!/bin/sh\necho secret-of-the-remote; exit 1\n")
			if err := os.Chmod(filepath.Join(remote, "hooks", "pre-receive"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, "hooks has declined"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRemoteFixture(t)
			c.spoil(t, w.remote)
			lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
			res := w.run(lease, "echo one > one.txt")
			if res.Ending != adapter.EndCompleted {
				t.Errorf("the run ended as %+v", res)
			}
			note := w.changes(lease).Diffstat
			if !strings.Contains(note, "only on this machine") || !strings.Contains(note, c.want) ||
				strings.Contains(note, "secret") {
				t.Errorf("the reviewer sees\n%s", note)
			}
			told, _ := w.otherMachine().resumedFrom(w.s.Supersede(lease.TaskID))
			if !strings.Contains(told, `"resumed": "fresh"`) || !strings.Contains(told, "workspace.remote: ") {
				t.Errorf("it was told %s", told)
			}
		})
	}
}

// While the agent works, its log tells that the branch cannot be pushed.
func TestTheRunLogTellsOfAPushThatFails(t *testing.T) {
	rig.SkipShort(t)
	w := newRemoteFixture(t)
	if err := os.RemoveAll(w.remote); err != nil {
		t.Fatal(err)
	}
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	log := filepath.Join(w.state, lease.RunID, "stderr.log")
	res := w.run(lease, "echo one > one.txt; git add one.txt; git commit -qm one; "+
		"until grep -q 'not on workspace.remote' "+log+"; do sleep 0.05; done")
	if res.Ending != adapter.EndCompleted {
		t.Errorf("the run ended as %+v", res)
	}
}
