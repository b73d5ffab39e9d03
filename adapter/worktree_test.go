package adapter_test

import (
	"context"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// gitRepository makes a repository with one commit, as its owner would.
func gitRepository(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not on PATH: worktrees are not tested")
	}
	gitEnvironment(t)
	dir := t.TempDir()
	runGit(t, dir, "init", "--quiet", "--initial-branch=main")
	runGit(t, dir, "config", "user.name", "Ada")
	runGit(t, dir, "config", "user.email", "ada@example.com")
	write(t, filepath.Join(dir, "a.txt"), "one\n")
	write(t, filepath.Join(dir, "sub", "b.txt"), "two\n")
	runGit(t, dir, "add", "--all")
	runGit(t, dir, "commit", "--quiet", "--message", "start")
	return dir
}

// gitEnvironment keeps the user's own settings out. A test that runs subtests at
// once calls it for all of them.
func gitEnvironment(t *testing.T) {
	t.Helper()
	if os.Getenv("GIT_CONFIG_GLOBAL") != os.DevNull {
		t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
		t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	}
}

// atOnce runs the subtests, some at the same time: they wait more than they work.
func atOnce(t *testing.T, names iter.Seq[string], test func(t *testing.T, name string)) {
	t.Helper()
	var group sync.WaitGroup
	slots := make(chan struct{}, 6)
	for name := range names {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			t.Run(name, func(t *testing.T) { test(t, name) })
		})
	}
	group.Wait()
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func runGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// worktreeFixture runs one lease of a task with a shell command in a worktree of repo.
type worktreeFixture struct {
	t      *testing.T
	s      *adaptertest.Server
	repo   string
	state  string
	remote string
	set    []func(*adapter.Config)
}

func newWorktreeFixture(t *testing.T, set ...func(*adapter.Config)) *worktreeFixture {
	return &worktreeFixture{t: t, repo: gitRepository(t), s: adaptertest.Start(t), state: t.TempDir(), set: set}
}

func (w *worktreeFixture) run(lease picket.Lease, script string) adapter.Result {
	w.t.Helper()
	a := newAdapter(w.t, w.s, []string{"sh", "-c", script}, append([]func(*adapter.Config){func(c *adapter.Config) {
		c.Workspace, c.Dir, c.StateDir, c.WorkspaceRemote = workspace.Worktree, w.repo, w.state, w.remote
	}}, w.set...)...)
	res, err := a.RunLease(proctest.Patience(w.t), lease)
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

func (w *worktreeFixture) changes(lease picket.Lease) picket.Evidence {
	w.t.Helper()
	for _, r := range w.s.View(lease.TaskID).Runs {
		if r.RunID == lease.RunID && r.Changes != nil {
			return *r.Changes
		}
	}
	w.t.Fatalf("nothing was handed in by %s", lease.RunID)
	return picket.Evidence{}
}

// What an agent leaves in its worktree is on the branch of its task, is shown
// with it, and can be merged; the checkout of the user is not touched.
func TestWorktreeIsCommittedAndShown(t *testing.T) {
	w := newWorktreeFixture(t)
	write(t, filepath.Join(w.repo, "mine.txt"), "not committed\n")
	write(t, filepath.Join(w.repo, ".git", "hooks", "post-checkout"), "#!/bin/sh\ntouch "+w.repo+"/hook-ran\n")
	if err := os.Chmod(filepath.Join(w.repo, ".git", "hooks", "post-checkout"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := runGit(t, w.repo, "status", "--porcelain=v1")
	lease := w.s.Grant(adaptertest.Task{
		Title:      "add a line",
		OnExit:     picket.OnExitComplete,
		LastReport: &picket.Report{Progress: picket.Progress{Summary: "a line was added"}},
	})
	res := w.run(lease,
		`echo two >> a.txt; echo "$PICKET_LEASE_TOKEN" > new.txt; rm sub/b.txt; test -e .picket/task.json && test ! -e mine.txt`)
	if res.Ending != adapter.EndCompleted {
		t.Fatalf("%+v", res)
	}
	ev := w.changes(lease)
	branch := "picket/" + lease.TaskID
	if ev.Branch != branch || ev.Repository != w.repo || ev.Base != runGit(t, w.repo, "rev-parse", "main") ||
		ev.Truncated || len(ev.Files) != 3 {
		t.Errorf("%+v", ev)
	}
	for _, want := range []string{"+two\n", "+[redacted]", "-two"} {
		if !strings.Contains(ev.Diff, want) {
			t.Errorf("%q is not in the diff:\n%s", want, ev.Diff)
		}
	}
	if strings.Contains(ev.Diff, lease.LeaseToken.Reveal()) || !strings.Contains(ev.Diffstat, "3 files changed") ||
		strings.Contains(ev.Diffstat, ".picket") {
		t.Errorf("%s\n%s", ev.Diffstat, ev.Diff)
	}
	if after := runGit(t, w.repo, "status", "--porcelain=v1"); after != before {
		t.Errorf("the checkout was\n%s\nand is\n%s", before, after)
	}
	log := runGit(t, w.repo, "log", "-1", "--format=%an %ae|%B", branch)
	for _, want := range []string{"Ada ada@example.com|a line was added\n", "Picket-Task: " + lease.TaskID,
		"Picket-Run: " + lease.RunID} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is not in the message:\n%s", want, log)
		}
	}
	runGit(t, w.repo, "merge", "--quiet", branch)
	if b, _ := os.ReadFile(filepath.Join(w.repo, "a.txt")); string(b) != "one\ntwo\n" {
		t.Errorf("merged a.txt is %q", b)
	}
}
