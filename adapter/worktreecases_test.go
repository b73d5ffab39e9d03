package adapter_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/rig"
)

// Whatever an agent does to its worktree, what it leaves and what it has
// committed is on the branch of the task, and the next run can work.
func TestAgentMayDoAnythingToItsWorktree(t *testing.T) {
	rig.SkipShort(t)
	for name, script := range map[string]string{
		"commits":            `echo new > new.txt; git add new.txt; git commit -qm own`,
		"another branch":     `git checkout -q -b elsewhere; echo new > new.txt; git add new.txt; git commit -qm own; echo late > late.txt`,
		"a detached head":    `git checkout -q --detach; echo new > new.txt; git add new.txt; git commit -qm own`,
		"an older commit":    `echo new > new.txt; git add new.txt; git commit -qm own; git reset -q --hard HEAD~1; echo new > new.txt`,
		"an older place":     `echo own > own.txt; git add own.txt; git commit -qm own; git checkout -q --detach HEAD~1; echo new > new.txt`,
		"no link to git":     `rm .git; echo new > new.txt`,
		"a new repository":   `rm .git; git init -q; echo new > new.txt`,
		"a merge in work":    `git checkout -q -b b; echo b > a.txt; git commit -qam b; git checkout -q -; echo c > a.txt; git commit -qam c; git merge -q b; echo new > new.txt`,
		"a broken index":     `printf junk > "$(git rev-parse --git-dir)/index"; echo new > new.txt`,
		"a stale lock":       `touch "$(git rev-parse --git-dir)/HEAD.lock"; echo new > new.txt`,
		"a hostile config":   `git config core.fsmonitor "touch $PWD/../ran"; git config diff.external "touch $PWD/../ran"; echo new > new.txt`,
		"a repository in it": `git init -q inner; echo x > inner/x; echo new > new.txt`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorktreeFixture(t)
			lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitFail})
			w.run(lease, script+"; exit 0")
			branch := "picket/" + lease.TaskID
			if name != "a stale lock" { // the next run removes it
				if got := runGit(t, w.repo, "show", branch+":new.txt"); got != "new" {
					t.Errorf("new.txt is %q", got)
				}
				ev := w.changes(lease)
				if !strings.Contains(ev.Diff, "new.txt") {
					t.Errorf("the diff is\n%s", ev.Diff)
				}
				if strings.Contains(ev.Diffstat, "not everything") != (name == "a repository in it") {
					t.Errorf("the diffstat is\n%s", ev.Diffstat)
				}
			}
			if log := runGit(t, w.repo, "log", "--format=%s",
				branch); strings.Contains(script, "own") != strings.Contains(log, "own") && name != "an older commit" {
				t.Errorf("the history is\n%s", log)
			}
			second := w.s.Supersede(lease.TaskID)
			w.run(second, `cat new.txt > again.txt`)
			if got := runGit(t, w.repo, "show", branch+":again.txt"); got != "new" {
				t.Errorf("again.txt is %q", got)
			}
			if exists(filepath.Join(w.state, "workspaces", "ran")) {
				t.Error("a program that the configuration names has run")
			}
			runGit(t, w.repo, "fsck", "--no-progress")
		})
	}
}

// A reviewer sees that some work could not be committed.
func TestWorkThatCannotBeCommittedIsReported(t *testing.T) {
	rig.SkipShort(t)
	w := newWorktreeFixture(t)
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	res := w.run(lease, `touch "$(git rev-parse --git-common-dir)/$(git symbolic-ref HEAD).lock"; echo new > new.txt`)
	if ev := w.changes(lease); !strings.Contains(ev.Diffstat, res.Workspace+" were not committed to its branch") ||
		ev.Branch != "picket/"+lease.TaskID || len(ev.Files) > 0 {
		t.Errorf("told is %+v", ev)
	}
}

// The policies of resuming, and what the agent learns about them.
func TestHowARunResumes(t *testing.T) {
	rig.SkipShort(t)
	for _, c := range []struct {
		resume   workspace.Resume
		told     string
		tracked  bool // what the first run committed is there
		ignored  bool // what git does not look at is there
		sameTree bool
	}{
		{workspace.ResumeReuse, "reuse", true, true, true},
		{workspace.ResumeCopy, "copy", true, true, false},
		{workspace.ResumeFresh, "fresh", false, false, false},
	} {
		w := newWorktreeFixture(t, func(cfg *adapter.Config) { cfg.Resume = c.resume })
		write(t, filepath.Join(w.repo, ".git", "info", "exclude"), "*.cache") // without a line end
		lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
		first := w.run(lease, `echo one > one.txt; echo big > build.cache`)
		second := w.s.Supersede(lease.TaskID)
		res := w.run(second, `ls -d one.txt build.cache; cat .picket/task.json`)
		var text string
		if err := json.Unmarshal(w.s.View(lease.TaskID).Output, &text); err != nil {
			t.Fatal(err)
		}
		for what, want := range map[string]bool{
			"one.txt\n":                   c.tracked,
			"build.cache\n":               c.ignored,
			`"resumed": "` + c.told + `"`: true,
		} {
			if strings.Contains(text, what) != want {
				t.Errorf("%s: %q is there: %t\n%s", c.resume, what, !want, text)
			}
		}
		if (first.Workspace == res.Workspace) != c.sameTree {
			t.Errorf("%s: worked in %s, then in %s", c.resume, first.Workspace, res.Workspace)
		}
		if exclude, _ := os.ReadFile(filepath.Join(w.repo, ".git", "info",
			"exclude")); string(exclude) != "*.cache\n.picket/\n" {
			t.Errorf("git's own list is %q", exclude)
		}
	}
}

// A repair starts where the refused work stopped and is shown against where
// that began; without the branch it starts afresh.
func TestARepairStartsFromTheBranch(t *testing.T) {
	rig.SkipShort(t)
	w := newWorktreeFixture(t)
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	w.run(lease, `echo wrong > one.txt`)
	write(t, filepath.Join(w.repo, "a.txt"), "the user goes on\n")
	runGit(t, w.repo, "commit", "--quiet", "--all", "--message", "later")
	repair := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete, Fixes: lease.TaskID})
	w.run(repair, `test "$(cat one.txt)" = wrong && echo right > one.txt`)
	ev := w.changes(repair)
	if ev.Base != runGit(t, w.repo, "rev-parse", "main~1") || !strings.Contains(ev.Diff, "+right") ||
		strings.Contains(ev.Diff, "wrong") || strings.Contains(ev.Diff, "goes on") {
		t.Errorf("%+v", ev)
	}
	stray := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete, Fixes: "task_01ARZ3NDEKTSV4RRFFQ69G5FAV"})
	w.run(stray, `cat a.txt; test ! -e one.txt`)
	if v := w.s.View(stray.TaskID); string(v.Output) != `"the user goes on\n"` {
		t.Errorf("without a branch it began with %s", v.Output)
	}
}

// Evidence is bounded, whatever is in the diff, and says when it was cut.
func TestEvidenceIsBounded(t *testing.T) {
	rig.SkipShort(t)
	w := newWorktreeFixture(t)
	for name, script := range map[string]string{
		"long":     `yes line | head -c 3000000 > long.txt`,
		"controls": `head -c 200000 /dev/zero | tr '\0' '\001' | fold -w 100 > controls.txt`,
		"no text":  `head -c 300000 /dev/urandom | tr -d '\0' > noise.txt; printf 'noise.txt diff\n' > .gitattributes`,
		"many":     `for i in $(seq 1500); do echo $i > f$i; done`,
	} {
		lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
		w.run(lease, script)
		ev := w.changes(lease)
		if !ev.Truncated || name != "many" && !strings.HasSuffix(ev.Diff, "git diff "+ev.Base+" "+ev.Branch+"]\n") ||
			len(ev.Files) == 0 {
			t.Errorf("%s: %d bytes, truncated %t, %d files, ends with %q", name, len(ev.Diff), ev.Truncated,
				len(ev.Files), ev.Diff[max(0, len(ev.Diff)-200):])
		}
	}
}

// Where git knows no name, picket is the author; hands that commit at once do
// not get in each other's way; and an answer that is lost is not evidence lost.
func TestManyWorktreesAtOnce(t *testing.T) {
	rig.SkipShort(t)
	w := newWorktreeFixture(t)
	runGit(t, w.repo, "config", "--unset", "user.name")
	runGit(t, w.repo, "config", "--unset", "user.email")
	w.s.Fail("/v1/run/evidence", adaptertest.DropReply, 3)
	var group sync.WaitGroup
	var leases []picket.Lease
	for range 6 {
		leases = append(leases, w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete}))
	}
	for i, lease := range leases {
		group.Go(func() { w.run(lease, fmt.Sprintf("echo %d > n.txt", i)) })
	}
	group.Wait()
	for i, lease := range leases {
		if got := runGit(t, w.repo, "log", "-1", "--format=%an <%ae> %cn",
			"picket/"+lease.TaskID); got != "picket <picket@localhost> picket" {
			t.Errorf("committed by %s", got)
		}
		if ev := w.changes(lease); !strings.Contains(ev.Diff, fmt.Sprintf("+%d\n", i)) {
			t.Errorf("run %d handed in\n%s", i, ev.Diff)
		}
	}
}
