package adapter_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// twoMachines are two adapters, each with its own state and its own clone of one repository.
func twoMachines(t *testing.T) (one, two *worktreeFixture) {
	t.Helper()
	one = newWorktreeFixture(t)
	clone := filepath.Join(t.TempDir(), "clone")
	runGit(t, ".", "clone", "--quiet", one.repo, clone)
	runGit(t, clone, "remote", "remove", "origin")
	runGit(t, clone, "config", "user.name", "Grace")
	runGit(t, clone, "config", "user.email", "grace@example.com")
	return one, &worktreeFixture{t: t, s: one.s, repo: clone, state: t.TempDir()}
}

// lookAround is an agent that shows what it began with.
const lookAround = `cp .picket/task.json told; ls > listed; git log --format=%s > history`

func fileIn(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// An adapter is killed with SIGKILL while its agent works. What the agent had committed is in the
// bundle, and the next run, on another machine, goes on from there.
func TestAnotherMachineContinuesAfterAKill(t *testing.T) {
	rig.SkipShort(t)
	one, two := twoMachines(t)
	lease := one.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	doomed := one.killedAdapterCommand(lease, workspace.ResumeReuse, "never",
		firstWork+`; while :; do sleep 0.1; done`)
	var said bytes.Buffer
	doomed.Stdout, doomed.Stderr = &said, &said
	if err := doomed.Start(); err != nil {
		t.Fatal(err)
	}
	v, err := one.s.Await(proctest.Patience(t), lease.TaskID,
		func(v adaptertest.View) bool { return v.Bundle != nil })
	_ = doomed.Process.Kill()
	_ = doomed.Wait()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	tip := runGit(t, one.repo, "rev-parse", "picket/"+lease.TaskID)
	if b := v.Bundle; b.Tip != tip || b.RunID != lease.RunID || b.Branch != "picket/"+lease.TaskID ||
		b.Base != runGit(t, one.repo, "rev-parse", "main") {
		t.Errorf("handed in: %+v", b.Bundle)
	}
	if err := os.RemoveAll(one.repo); err != nil { // the machine is gone
		t.Fatal(err)
	}
	next := two.s.Supersede(lease.TaskID)
	res := two.run(next, lookAround+"; cat first.txt > second.txt")
	if told := fileIn(t, res.Workspace, "told"); !strings.Contains(told, `"resumed": "branch"`) {
		t.Errorf("the agent was told %s", told)
	}
	if history := fileIn(t, res.Workspace, "history"); history != "own\nstart\n" {
		t.Errorf("it began with the history\n%s", history)
	}
	branch := "picket/" + lease.TaskID
	if got := runGit(t, two.repo, "show", branch+":second.txt"); got != "one" {
		t.Errorf("second.txt is %q", got)
	}
	runGit(t, two.repo, "merge-base", "--is-ancestor", tip, branch)
	runGit(t, two.repo, "fsck", "--strict", "--no-progress")
	if diff := two.changes(next).Diff; !strings.Contains(diff, "first.txt") || !strings.Contains(diff, "second.txt") {
		t.Errorf("the diff is\n%s", diff)
	}
	// The second machine has handed in all of it.
	tip = runGit(t, two.repo, "rev-parse", branch)
	if b := two.s.View(lease.TaskID).Bundle; b.RunID != next.RunID || b.Tip != tip {
		t.Errorf("the bundle is now %+v", b.Bundle)
	}
}

// What is committed at the end of a run is handed in before the run is reported ended, over
// lost requests and lost answers of each step.
func TestABundleIsHandedInAtTheEnd(t *testing.T) {
	for _, path := range []string{"/v1/run/bundle/", "/v1/run/bundle"} {
		for name, fault := range map[string]adaptertest.Fault{"request": adaptertest.DropRequest,
			"reply": adaptertest.DropReply, "unavailable": adaptertest.Unavailable} {
			t.Run(name+path, func(t *testing.T) {
				w := newWorktreeFixture(t)
				lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
				defer w.s.Fail(path, fault, 2)()
				w.run(lease, "head -c 400000 /dev/urandom > large") // two pieces
				b := w.s.View(lease.TaskID).Bundle
				if b == nil || b.Pieces != 2 || b.Tip != runGit(t, w.repo, "rev-parse", "picket/"+lease.TaskID) {
					t.Fatalf("kept: %+v", b)
				}
				if stat := w.changes(lease).Diffstat; strings.Contains(stat, "[picket") {
					t.Errorf("the reviewer is told %s", stat)
				}
			})
		}
	}
}

// bundleCalls are the requests with which bundles are handed in.
func bundleCalls(s *adaptertest.Server) []adaptertest.Call {
	return slices.DeleteFunc(s.Calls(""), func(c adaptertest.Call) bool {
		return !strings.HasPrefix(c.Path, "/v1/run/bundle")
	})
}

// The evidence of a run is handed in before its bundle, which may take long: the machine can die
// meanwhile.
func TestEvidenceComesBeforeTheBundle(t *testing.T) {
	w := newWorktreeFixture(t)
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	w.run(lease, "echo own > own.txt")
	var order []string
	for _, c := range w.s.Calls("") {
		if c.Path == "/v1/run/evidence" || strings.HasPrefix(c.Path, "/v1/run/bundle") {
			order = append(order, c.Path)
		}
	}
	if len(order) != 3 || order[0] != "/v1/run/evidence" || order[2] != "/v1/run/bundle" {
		t.Errorf("handed in: %v", order)
	}
}

// A run that has changed nothing hands in no bundle, and neither does one without a branch.
func TestNoBundleOfNothing(t *testing.T) {
	for _, kind := range []workspace.Kind{workspace.Worktree, workspace.Empty} {
		w := newWorktreeFixture(t, func(c *adapter.Config) { c.Workspace = kind })
		lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
		w.run(lease, "true")
		if calls := bundleCalls(w.s); len(calls) > 0 {
			t.Errorf("%s: sent %+v", kind, calls)
		}
	}
}

// A bundle that is too large is not handed in, and the reviewer is told; the run is not
// affected.
func TestATooLargeBundleIsNotHandedIn(t *testing.T) {
	rig.SkipShort(t)
	w := newWorktreeFixture(t)
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	res := w.run(lease, "head -c 17000000 /dev/urandom > large")
	if res.Ending != adapter.EndCompleted || w.s.View(lease.TaskID).Bundle != nil {
		t.Errorf("%+v", res)
	}
	if stat := w.changes(lease).Diffstat; !strings.Contains(stat, "only on the machine of the worker") ||
		!strings.Contains(stat, "16777216 bytes") {
		t.Errorf("the reviewer is told %s", stat)
	}
}

// An adapter that is killed between two pieces leaves nothing that anybody reads.
func TestAnAdapterIsKilledBetweenTwoPieces(t *testing.T) {
	rig.SkipShort(t)
	one, two := twoMachines(t)
	lease := one.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	restore := one.s.Fail("/v1/run/bundle/", adaptertest.HangReply, -1) // the first piece is stored, no answer comes
	doomed := one.killedAdapterCommand(lease, workspace.ResumeReuse, "never",
		`head -c 400000 /dev/urandom > large; `+firstWork+`; git add large; `+
			`git -c user.name=a -c user.email=a@b commit -qm large; while :; do sleep 0.1; done`)
	if err := doomed.Start(); err != nil {
		t.Fatal(err)
	}
	_, err := one.s.Await(proctest.Patience(t), lease.TaskID,
		func(adaptertest.View) bool { return len(bundleCalls(one.s)) > 0 })
	_ = doomed.Process.Kill()
	_ = doomed.Wait()
	restore()
	if err != nil {
		t.Fatal(err)
	}
	if b := one.s.View(lease.TaskID).Bundle; b != nil {
		t.Fatalf("half an upload is kept: %+v", b.Bundle)
	}
	res := two.run(two.s.Supersede(lease.TaskID), lookAround)
	if told := fileIn(t, res.Workspace, "told"); !strings.Contains(told, `"resumed": "fresh"`) ||
		!strings.Contains(told, "the server keeps no bundle of it") {
		t.Errorf("the agent was told %s", told)
	}
}

// badBundle is a bundle that no adapter makes, or that was made elsewhere.
type badBundle struct {
	make func(t *testing.T, repo, branch string) (about picket.Bundle, data []byte)
	want string // in what the agent and the output of the run are told
}

// bundleOf is what git makes of refs, with the base of main.
func bundleOf(t *testing.T, repo string, refs ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "git", append([]string{"-C", repo, "bundle", "create", "--quiet",
		"-", "^main"}, refs...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// commitTree makes a branch with a commit of a tree that git mktree is given.
func commitTree(t *testing.T, repo, branch, tree string) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "git", "-C", repo, "mktree", "--missing")
	cmd.Stdin = strings.NewReader(tree)
	id, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	tip := runGit(t, repo, "commit-tree", strings.TrimSpace(string(id)), "-p", "main", "-m", "made")
	runGit(t, repo, "update-ref", "refs/heads/"+branch, tip)
}

// good makes a branch with one commit, and its bundle.
func good(t *testing.T, repo, branch string) (picket.Bundle, []byte) {
	t.Helper()
	runGit(t, repo, "checkout", "--quiet", "-b", branch)
	write(t, filepath.Join(repo, "own.txt"), "own\n")
	runGit(t, repo, "add", "--all")
	runGit(t, repo, "commit", "--quiet", "--message", "own")
	runGit(t, repo, "checkout", "--quiet", "main")
	return picket.Bundle{Branch: branch, Base: runGit(t, repo, "rev-parse", "main"),
		Tip: runGit(t, repo, "rev-parse", branch)}, bundleOf(t, repo, branch)
}

var badBundles = map[string]badBundle{
	"other digest": {func(t *testing.T, repo, branch string) (picket.Bundle, []byte) {
		about, data := good(t, repo, branch)
		about.SHA256 = strings.Repeat("0", 64)
		return about, data
	}, "SHA-256"},
	"huge": {func(t *testing.T, repo, branch string) (picket.Bundle, []byte) {
		about, data := good(t, repo, branch)
		about.Size = 1 << 50
		return about, data
	}, "at most 16777216 bytes are read"},
	"not a bundle": {func(t *testing.T, repo, branch string) (picket.Bundle, []byte) {
		about, _ := good(t, repo, branch)
		return about, []byte("PACK")
	}, "not a bundle"},
	"corrupt pack": {func(t *testing.T, repo, branch string) (picket.Bundle, []byte) {
		about, data := good(t, repo, branch)
		data[len(data)-30] ^= 0xff
		return about, data
	}, "unpack the bundle"},
	"cut off": {func(t *testing.T, repo, branch string) (picket.Bundle, []byte) {
		about, data := good(t, repo, branch)
		return about, data[:len(data)-40]
	}, "unpack the bundle"},
	"another ref": {func(t *testing.T, repo, branch string) (picket.Bundle, []byte) {
		about, _ := good(t, repo, branch)
		runGit(t, repo, "branch", "other", branch)
		return about, bundleOf(t, repo, "other")
	}, "has the ref"},
	"more refs": {func(t *testing.T, repo, branch string) (picket.Bundle, []byte) {
		about, _ := good(t, repo, branch)
		runGit(t, repo, "branch", "other", branch)
		return about, bundleOf(t, repo, branch, "other")
	}, "more than one ref"},
	"unknown base": {func(t *testing.T, repo, branch string) (picket.Bundle, []byte) {
		about, data := good(t, repo, branch)
		about.Base = strings.Repeat("1", 40)
		return about, data
	}, "not in this repository"},
	"unknown prerequisite": {func(t *testing.T, repo, branch string) (picket.Bundle, []byte) {
		about, _ := good(t, repo, branch)
		base := about.Base
		runGit(t, repo, "checkout", "--quiet", "-b", "late")
		write(t, filepath.Join(repo, "late.txt"), "late\n")
		runGit(t, repo, "add", "--all")
		runGit(t, repo, "commit", "--quiet", "--message", "late")
		runGit(t, repo, "branch", "--force", "main")
		runGit(t, repo, "checkout", "--quiet", branch)
		runGit(t, repo, "merge", "--quiet", "--no-ff", "-m", "merge", "late")
		about.Base = base
		return about, bundleOf(t, repo, branch)
	}, "begins at a commit that is not in this repository"},
	"option as base": {func(t *testing.T, repo, branch string) (picket.Bundle, []byte) {
		about, data := good(t, repo, branch)
		about.Base = "--upload-pack=touch /tmp/x"
		return about, data
	}, "not a commit"},
	"tree with a way out": {func(t *testing.T, repo, branch string) (picket.Bundle, []byte) {
		blob := runGit(t, repo, "hash-object", "-w", "a.txt")
		id, err := hex.DecodeString(blob)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(context.Background(), "git", "-C", repo, "hash-object", "-w", "-t", "tree",
			"--literally", "--stdin")
		cmd.Stdin = bytes.NewReader(append([]byte("100644 ..\x00"), id...))
		tree, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		tip := runGit(t, repo, "commit-tree", strings.TrimSpace(string(tree)), "-p", "main", "-m", "out")
		runGit(t, repo, "update-ref", "refs/heads/"+branch, tip)
		return picket.Bundle{Branch: branch, Base: runGit(t, repo, "rev-parse", "main"), Tip: tip},
			bundleOf(t, repo, branch)
	}, "hasDotdot"},
	"link for git's own files": {func(t *testing.T, repo, branch string) (picket.Bundle, []byte) {
		write(t, filepath.Join(repo, "away"), "/etc/passwd")
		blob := runGit(t, repo, "hash-object", "-w", "away")
		if err := os.Remove(filepath.Join(repo, "away")); err != nil {
			t.Fatal(err)
		}
		commitTree(t, repo, branch, "120000 blob "+blob+"\t.gitmodules\n")
		return picket.Bundle{Branch: branch, Base: runGit(t, repo, "rev-parse", "main"),
			Tip: runGit(t, repo, "rev-parse", branch)}, bundleOf(t, repo, branch)
	}, "gitmodulesSymlink"},
}

// A bundle that is not good changes nothing here: the run begins as if there were none, and its
// agent and its output are told why.
func TestABadBundleIsNotUsed(t *testing.T) {
	rig.SkipShort(t)
	gitEnvironment(t)
	for name, bad := range badBundles {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			one, two := twoMachines(t)
			lease := one.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
			branch := "picket/" + lease.TaskID
			about, data := bad.make(t, one.repo, branch)
			one.s.SetBundle(lease.TaskID, about, data)
			next := two.s.Supersede(lease.TaskID)
			res := two.run(next, lookAround)
			if res.Ending != adapter.EndCompleted {
				t.Errorf("%+v", res)
			}
			told := fileIn(t, res.Workspace, "told")
			if !strings.Contains(told, `"resumed": "fresh"`) || !strings.Contains(told, bad.want) {
				t.Errorf("the agent was told %s", told)
			}
			for _, run := range two.s.View(lease.TaskID).Runs {
				if run.RunID == next.RunID && !strings.Contains(run.Stderr, bad.want) {
					t.Errorf("the output is %q", run.Stderr)
				}
			}
			if listed := fileIn(t, res.Workspace, "listed"); listed != "a.txt\nlisted\nsub\ntold\n" {
				t.Errorf("it began with\n%s", listed)
			}
			if exec.CommandContext(t.Context(), "git", "-C", two.repo, "cat-file", "-e", about.Tip).Run() == nil {
				t.Error("the repository has the commit of the bundle")
			}
		})
	}
}

// A task that repairs another one begins with the branch of that task, from its bundle.
func TestAFixContinuesFromABundle(t *testing.T) {
	one, two := twoMachines(t)
	lease := one.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	one.run(lease, "echo broken > first.txt")
	fix := two.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete, Fixes: lease.TaskID})
	two.run(fix, "cat first.txt > second.txt")
	if got := runGit(t, two.repo, "show", "picket/"+fix.TaskID+":second.txt"); got != "broken" {
		t.Errorf("second.txt is %q", got)
	}
}
