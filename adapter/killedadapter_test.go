package adapter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// killedAdapter is an adapter, in a process of its own, that is killed at a step.
type killedAdapter struct {
	Point  string
	Script string
	Lease  picket.Lease
	URL    string
	Repo   string
	State  string
	Resume workspace.Resume
	Remote string
}

func init() {
	proctest.Scripts["doomed"] = func() int {
		var d killedAdapter
		if err := json.Unmarshal([]byte(os.Getenv("DOOMED")), &d); err != nil {
			return proctest.Failed(err)
		}
		a, err := adapter.New(adapter.Config{
			BaseURL:     d.URL,
			Key:         adaptertest.Key,
			Command:     []string{"sh", "-c", d.Script},
			ReportRetry: time.Second,
			Workspace:   workspace.Worktree,
			Dir:         d.Repo,
			StateDir:    d.State,
			Resume:      d.Resume,

			WorkspaceRemote: d.Remote,
		})
		if err != nil {
			return proctest.Failed(err)
		}
		adapter.SetPushInterval(a, 50*time.Millisecond)
		adapter.SetStepHook(a, func(point string) {
			if point == d.Point {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		})
		d.Lease.Task.OnExit = picket.OnExitComplete
		_, err = a.RunLease(context.Background(), d.Lease)
		return proctest.Failed(err)
	}
}

func (w *worktreeFixture) killedAdapterCommand(lease picket.Lease, resume workspace.Resume,
	point, script string) *exec.Cmd {
	w.t.Helper()
	text, err := json.Marshal(killedAdapter{point, script, lease, w.s.URL, w.repo, w.state, resume, w.remote})
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(proctest.Agent("doomed")[0], proctest.Agent("doomed")[1:]...)
	cmd.Env = append(os.Environ(), "DOOMED="+string(text))
	return cmd
}

// runAndKill runs a lease in a process that is killed at a point, and reports whether
// it came there.
func (w *worktreeFixture) runAndKill(lease picket.Lease, resume workspace.Resume, point, script string) bool {
	w.t.Helper()
	out, err := w.killedAdapterCommand(lease, resume, point, script).CombinedOutput()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		w.t.Fatalf("at %s: %v\n%s", point, err, out)
	}
	return false
}

// The steps at which an adapter is killed: of making a worktree, of committing
// it, and of putting it away for a new one.
var making = []string{"recorded", "made", "adding", "based", "added", "filled"}
var committing = []string{"indexed", "committed", "referenced"}

// leaveStaleLocks leaves what a git that was killed at the same moment would have left.
func (w *worktreeFixture) leaveStaleLocks(taskID string) {
	admins, _ := filepath.Glob(filepath.Join(w.repo, ".git", "worktrees", "*"))
	for _, dir := range admins {
		write(w.t, filepath.Join(dir, "index.lock"), "")
		write(w.t, filepath.Join(dir, "HEAD.lock"), "")
	}
	write(w.t, filepath.Join(w.repo, ".git", "refs", "heads", "picket", taskID+".lock"), "")
}

// checkConsistent checks that nothing is left half made, and that the repository is good.
func (w *worktreeFixture) checkConsistent(what string) {
	w.t.Helper()
	runGit(w.t, w.repo, "fsck", "--no-progress")
	if got := runGit(w.t, w.repo, "status", "--porcelain"); got != "" {
		w.t.Errorf("%s: the checkout has changed: %s", what, got)
	}
	all, err := (workspace.KeptWorkspaces{StateDir: w.state}).List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, k := range all {
		if k.Stage != "settled" || k.InUse {
			w.t.Errorf("%s: workspace %s is %s, in use: %t", what, k.Name, k.Stage, k.InUse)
		}
	}
	trees := strings.Count(runGit(w.t, w.repo, "worktree", "list", "--porcelain"), "worktree ") - 1
	dirs, _ := filepath.Glob(filepath.Join(w.state, "workspaces", "run_*"))
	if len(dirs) != len(all) || trees != len(all) {
		w.t.Errorf("%s: %d workspaces are noted, %d directories and %d worktrees are there", what, len(all), len(dirs),
			trees)
	}
}

const firstWork = `echo one > first.txt; git add first.txt; git -c user.name=a -c user.email=a@b commit -qm own; echo two >> first.txt`

// Killed at any step of making or committing, the next run repairs what is
// left, and has everything that was in the directory or committed.
func TestKilledAtAStep(t *testing.T) {
	rig.SkipShort(t)
	for _, point := range append(append([]string{}, making...), committing...) {
		t.Run(point, func(t *testing.T) {
			w := newWorktreeFixture(t)
			first := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
			if !w.runAndKill(first, workspace.ResumeReuse, point, firstWork) {
				t.Fatalf("the adapter never came to %s", point)
			}
			worked := !contains(making, point)
			if worked {
				w.leaveStaleLocks(first.TaskID)
			}
			second := w.s.Supersede(first.TaskID)
			w.run(second,
				`echo "was $(cat first.txt 2>/dev/null | tr '\n' ' ')" > second.txt; grep -o '"resumed": "[a-z]*"' .picket/task.json >> second.txt`)
			show := func(file string) string { return runGit(t, w.repo, "show", "picket/"+first.TaskID+":"+file) }
			want := "was \n"
			if worked {
				want = "was one two \n\"resumed\": \"reuse\""
				if got := show("first.txt"); got != "one\ntwo" {
					t.Errorf("first.txt is %q", got)
				}
			}
			if got := show("second.txt"); !strings.HasPrefix(got, want) {
				t.Errorf("second.txt is %q, want %q", got, want)
			}
			if ev := w.changes(second); !strings.Contains(ev.Diff, "second.txt") ||
				worked != strings.Contains(ev.Diff, "+two") {
				t.Errorf("the diff is\n%s", ev.Diff)
			}
			w.checkConsistent(point)
			if locks, _ := filepath.Glob(filepath.Join(w.repo, ".git", "worktrees", "*", "*.lock")); len(locks) > 0 {
				t.Errorf("locks are left: %v", locks)
			}
		})
	}
}

func contains(list []string, one string) bool {
	return strings.Contains(" "+strings.Join(list, " ")+" ", " "+one+" ")
}

// One task, whose adapters are killed again and again at random steps under
// random policies: each line that an agent has ever written is in the history.
func TestKilledAgainAndAgain(t *testing.T) {
	rig.SkipShort(t)
	random, rounds := rig.Random(t), rig.SoakRounds(t, "workspaces", 8, 200)
	w := newWorktreeFixture(t)
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	points := append(append([]string{"retired"}, making...), committing...)
	policies := []workspace.Resume{workspace.ResumeReuse, workspace.ResumeCopy, workspace.ResumeFresh}
	ran, kills := 0, 0
	marks := filepath.Join(t.TempDir(), "marks")
	for i := range rounds {
		script := fmt.Sprintf(`echo line %d > line-%d.txt; echo %d >> %s`, i, i, i, marks)
		if w.runAndKill(lease, policies[random.IntN(3)], points[random.IntN(len(points))], script) {
			kills++
			if random.IntN(2) == 0 {
				w.leaveStaleLocks(lease.TaskID)
			}
		}
		lease = w.s.Supersede(lease.TaskID)
	}
	w.run(lease, "true")
	text, _ := os.ReadFile(marks)
	history := runGit(t, w.repo, "log", "--all", "--name-only", "--format=")
	for _, i := range strings.Fields(string(text)) {
		ran++
		if !strings.Contains("\n"+history+"\n", "\nline-"+i+".txt\n") {
			t.Errorf("what round %s wrote is in no commit", i)
		}
	}
	w.checkConsistent("in the end")
	t.Logf("workspaces: %d rounds, %d kills, %d agents wrote something", rounds, kills, ran)
}
