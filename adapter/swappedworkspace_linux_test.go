package adapter_test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// decoyDir is a directory that an attacker puts in the place of a workspace. It
// names the same part of the repository, so that git takes it for the worktree.
type decoyDir struct {
	dir  *os.File
	path string
	was  string
}

func newDecoyDir(t *testing.T, workspace string) *decoyDir {
	t.Helper()
	path := filepath.Join(t.TempDir(), "target")
	write(t, filepath.Join(path, "private.txt"), "private\n")
	write(t, filepath.Join(path, "deep", "private.txt"), "private\n")
	if link, err := os.ReadFile(filepath.Join(workspace, ".git")); err == nil {
		write(t, filepath.Join(path, ".git"), string(link))
	}
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	g := &decoyDir{dir: dir, path: path}
	g.was = g.listing(t)
	return g
}

// listing is all that is in the target, wherever it is now.
func (g *decoyDir) listing(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	root := os.DirFS(fmt.Sprintf("/proc/self/fd/%d", g.dir.Fd()))
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && name != "." {
			fmt.Fprintln(&b, name, info.Mode(), info.Size(), info.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func (g *decoyDir) check(t *testing.T, when string) {
	t.Helper()
	if now := g.listing(t); now != g.was {
		t.Errorf("%s the target holds\n%s\nit held\n%s", when, now, g.was)
	}
}

// swap puts a link to the target in the place of the workspace.
func (g *decoyDir) swap(t *testing.T, workspace string) {
	t.Helper()
	if err := os.Rename(workspace, workspace+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(g.path, workspace); err != nil {
		t.Fatal(err)
	}
}

// collectAsDue collects the workspaces of a state directory as if all were due. A
// child that another test is starting holds our locks until its exec, so one that
// is in use for a moment is collected again.
func (w *worktreeFixture) collectAsDue(runID string) []workspace.CollectResult {
	w.t.Helper()
	past := picket.InstantOf(time.Now().Add(-time.Hour))
	run := picket.Run{RunID: runID, State: picket.RunFailed, EndedAt: past, KeepUntil: past}
	kept := workspace.KeptWorkspaces{StateDir: w.state, RunsOfTask: serverKnowing(run, time.Now())}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got, err := kept.Collect(context.Background(), false)
		if err != nil {
			w.t.Fatal(err)
		}
		inUse := slices.ContainsFunc(got, func(c workspace.CollectResult) bool { return c.Reason == "in use" })
		if !inUse || time.Now().After(end) {
			return got
		}
	}
}

// editRecord changes the record of a workspace.
func (w *worktreeFixture) editRecord(name string, change func(map[string]any)) {
	w.t.Helper()
	file := filepath.Join(w.state, "kept", name, "workspace.json")
	text, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	var record map[string]any
	if err := json.Unmarshal(text, &record); err != nil {
		w.t.Fatal(err)
	}
	change(record)
	if text, err = json.Marshal(record); err != nil {
		w.t.Fatal(err)
	}
	write(w.t, file, string(text))
}

// At each use of a kept workspace a link in its place leads nowhere: the target
// of the link is neither written nor deleted, and none of it is committed.
func TestALinkInPlaceOfAWorkspaceLeadsNowhere(t *testing.T) {
	rig.SkipShort(t)
	gitEnvironment(t)
	uses := map[string]func(w *worktreeFixture, lease picket.Lease, path string, g *decoyDir){
		"resume, commit and evidence": func(w *worktreeFixture, lease picket.Lease, path string, g *decoyDir) {
			g.swap(w.t, path)
			w.checkResumed(lease, path)
		},
		"copy of the run before": func(w *worktreeFixture, lease picket.Lease, path string, g *decoyDir) {
			g.swap(w.t, path)
			w.set = append(w.set, func(c *adapter.Config) { c.Resume = workspace.ResumeCopy })
			res := w.run(w.s.Supersede(lease.TaskID), "echo two > two.txt")
			if exists(filepath.Join(res.Workspace, "private.txt")) {
				w.t.Error("files of the target were copied")
			}
		},
		"commit after a swap by the agent": func(w *worktreeFixture, lease picket.Lease, path string, g *decoyDir) {
			w.runMayFail(w.s.Supersede(lease.TaskID),
				"echo two > two.txt; mv "+path+" "+path+".moved; ln -s "+g.path+" "+path)
		},
		"deletion": func(w *worktreeFixture, lease picket.Lease, path string, g *decoyDir) {
			g.swap(w.t, path)
			if got := w.collectAsDue(lease.RunID); len(got) != 1 || got[0].Deleted || got[0].Err == nil ||
				!strings.Contains(got[0].Err.Error(), path) {
				w.t.Errorf("collected: %+v", got)
			}
			if to, err := os.Readlink(path); err != nil || to != g.path {
				w.t.Errorf("the link is gone: %q, %v", to, err)
			}
		},
		"deletion of git's part": func(w *worktreeFixture, lease picket.Lease, path string, g *decoyDir) {
			// The directory is gone, so only git's part is deleted: by its own rules
			// git would delete what the link leads to.
			if err := os.RemoveAll(path); err != nil {
				w.t.Fatal(err)
			}
			w.editRecord(lease.RunID, func(r map[string]any) { r["stage"] = "making" })
			if err := os.Symlink(g.path, path); err != nil {
				w.t.Fatal(err)
			}
			w.collectAsDue(lease.RunID)
			if err := os.Remove(path); err != nil {
				w.t.Fatal(err)
			}
			if got := w.collectAsDue(lease.RunID); len(got) != 1 || !got[0].Deleted {
				w.t.Errorf("collected: %+v", got)
			}
		},
		"repair of a dead run": func(w *worktreeFixture, lease picket.Lease, path string, g *decoyDir) {
			w.editRecord(lease.RunID, func(r map[string]any) { r["stage"] = "ready" })
			g.swap(w.t, path)
			w.collectAsDue(lease.RunID)
		},
		"take-over from another state directory": func(w *worktreeFixture, lease picket.Lease, path string,
			g *decoyDir) {
			g.swap(w.t, path)
			w.state = w.t.TempDir()
			w.checkResumed(lease, path)
		},
	}
	atOnce(t, maps.Keys(uses), func(t *testing.T, name string) {
		w := newWorktreeFixture(t)
		lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
		path := w.run(lease, "echo one > one.txt").Workspace
		g := newDecoyDir(t, path)
		uses[name](w, lease, path, g)
		g.check(t, "afterwards")
		if files := runGit(t, w.repo, "ls-tree", "-r", "--name-only", "picket/"+lease.TaskID); strings.Contains(files,
			"private.txt") {
			t.Errorf("the adapter committed %s", files)
		}
	})
}

// checkResumed runs the task again. The run gets a workspace of its own.
func (w *worktreeFixture) checkResumed(lease picket.Lease, path string) {
	w.t.Helper()
	second := w.s.Supersede(lease.TaskID)
	if res := w.run(second, "cat one.txt && echo two > two.txt"); res.Workspace == path ||
		res.Ending != adapter.EndCompleted {
		w.t.Errorf("the next run: %+v", res)
	}
	if ev := w.changes(second); !strings.Contains(ev.Diff, "+two") || strings.Contains(ev.Diff, "private") {
		w.t.Errorf("handed in:\n%s", ev.Diff)
	}
}

// A workspace may also be swapped after it was checked. The adapter and its
// agent go on in the directory that was checked.
func TestAWorkspaceThatIsSwappedAtAStep(t *testing.T) {
	rig.SkipShort(t)
	gitEnvironment(t)
	steps := []string{"found link", "opened link", "launching link", "launching directory", "indexed link",
		"committed directory"}
	atOnce(t, slices.Values(steps), func(t *testing.T, step string) {
		point, by, _ := strings.Cut(step, " ")
		w := newWorktreeFixture(t)
		lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
		path := w.run(lease, "echo one > one.txt").Workspace
		g := newDecoyDir(t, path)
		other := g.path
		if by == "link" {
			other = filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(g.path, other); err != nil {
				t.Fatal(err)
			}
		}
		a := newAdapter(t, w.s, []string{"sh", "-c", "echo two > two.txt"}, func(c *adapter.Config) {
			c.Workspace, c.Dir, c.StateDir = workspace.Worktree, w.repo, w.state
		})
		swaps := 0
		adapter.SetStepHook(a, func(at string) {
			if at == point && swaps == 0 {
				swaps++
				if err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); err != nil {
					t.Error(err)
				}
			}
		})
		if _, err := a.RunLease(proctest.Patience(t), w.s.Supersede(lease.TaskID)); err != nil {
			t.Logf("%s, %s: %v", point, by, err)
		}
		if swaps == 0 {
			t.Errorf("the step %s was not reached", point)
		}
		g.check(t, "after a swap by a "+by+" at "+point)
	})
}

// swapper exchanges a workspace with a link to a target, and with the target
// itself, until it is told to stop.
func (g *decoyDir) swapper(t *testing.T, workspace string) (stop func()) {
	t.Helper()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(g.path, link); err != nil {
		t.Fatal(err)
	}
	quit, began := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	swaps := 0
	group.Go(func() {
		for {
			for _, other := range []string{link, link, g.path, g.path} {
				if unix.Renameat2(unix.AT_FDCWD, workspace, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE) == nil {
					swaps++
				}
			}
			if swaps == 4 {
				close(began)
			}
			select {
			case <-quit:
				return
			default:
			}
			if swaps == 0 {
				return // the workspace is gone
			}
		}
	})
	<-began
	return func() {
		close(quit)
		group.Wait()
		t.Logf("%d swaps", swaps)
	}
}

// While a process exchanges a workspace with a link and with another directory,
// the adapter resumes it, has an agent work in it, commits, hands in and deletes.
// Nothing is ever written or deleted at the target.
func TestAWorkspaceThatIsSwappedMeanwhile(t *testing.T) {
	rig.SkipShort(t)
	w := newWorktreeFixture(t)
	for range 3 {
		lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
		path := w.run(lease, "echo one > one.txt").Workspace
		g := newDecoyDir(t, path)
		stop := g.swapper(t, path)
		second := w.s.Supersede(lease.TaskID)
		w.runMayFail(second,
			"for i in 1 2 3 4 5 6 7 8; do echo $i > $i.txt; done; mkdir -p sub/x; echo two > sub/x/two.txt")
		w.collectAsDue(second.RunID)
		w.collectAsDue(lease.RunID)
		stop()
		g.check(t, "after it was swapped")
	}
}
