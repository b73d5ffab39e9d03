package adapter_test

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// plantedProgram is a program that an agent plants. Each time it runs it writes its
// environment and leaves a process in a session of its own.
type plantedProgram struct {
	dir     string
	program string
	hangs   string
}

const adapterSecret = "pkk_secret_of_the_adapter"

// canaryEnvironment gives the adapter secrets that no program may see.
func canaryEnvironment(t *testing.T) {
	t.Helper()
	gitEnvironment(t)
	t.Setenv("PICKET_API_KEY", adapterSecret)
	t.Setenv("GIT_CONFIG_COUNT", "1") // also a place where people keep credentials
	t.Setenv("GIT_CONFIG_KEY_0", "http.extraHeader")
	t.Setenv("GIT_CONFIG_VALUE_0", adapterSecret)
}

func newPlantedProgram(t *testing.T) plantedProgram {
	t.Helper()
	dir := t.TempDir()
	c := plantedProgram{dir, filepath.Join(dir, "canary"), filepath.Join(dir, "hangs")}
	const begin = "#!/bin/sh\nD=\"${0%/*}\"\nenv > \"$D/$$.env\"\nsetsid sh -c 'echo $$ > \"$0/$$.pid\"; exec sleep 1000' \"$D\" > /dev/null 2>&1 < /dev/null &\n" +
		"while ! [ -s \"$D/$!.pid\" ]; do :; done\n"
	for file, end := range map[string]string{c.program: "cat\n", c.hangs: "exec sleep 1000\n"} {
		if err := os.WriteFile(file, []byte(begin+end), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // nothing is left behind, even if the adapter fails to end it
		for _, pid := range c.pids(t) {
			if n, err := strconv.Atoi(pid); err == nil && proctest.Alive(pid) {
				_ = syscall.Kill(n, syscall.SIGKILL)
			}
		}
	})
	return c
}

func (c plantedProgram) pids(t *testing.T) (pids []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.dir, "*.pid"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		pids = append(pids, strings.TrimSuffix(filepath.Base(file), ".pid"))
	}
	return pids
}

// check reports whether the program has run. It must be dead, and must not have
// seen the secrets of the adapter.
func (c plantedProgram) check(t *testing.T) (ran bool) {
	t.Helper()
	for _, pid := range c.pids(t) {
		if proctest.Alive(pid) {
			t.Errorf("process %s of a program that the agent planted is alive", pid)
		}
	}
	files, err := filepath.Glob(filepath.Join(c.dir, "*.env"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{adapterSecret, "PICKET_API_KEY", "PICKET_LEASE_TOKEN"} {
			if strings.Contains(string(env), secret) {
				t.Errorf("a program that the agent planted was given %s", secret)
			}
		}
	}
	return len(files) > 0
}

// plantedConfigs are the ways in which an agent configures a program. $C is the
// program, $G the directory that all worktrees share. Programs that run do so
// in a containment of their own.
var plantedConfigs = map[string]struct {
	script string
	runs   bool
}{
	"filter.clean":   {script: `git config filter.x.clean $C; echo '*.txt filter=x' > .gitattributes`, runs: true},
	"filter.smudge":  {script: `git config filter.x.smudge $C; echo '*.txt filter=x' > $G/info/attributes`, runs: true},
	"filter.process": {script: `git config filter.x.process $C; echo '*.txt filter=x' > .gitattributes`, runs: true},
	".gitattributes in the index": {
		runs:   true,
		script: `echo '*.txt filter=x' > .gitattributes; git add .gitattributes; git update-index --skip-worktree .gitattributes; rm .gitattributes; git config filter.x.clean $C; git config filter.x.smudge $C`,
	},
	"include.path": {
		runs:   true,
		script: `printf '[filter "x"]\n\tclean = %s\n[core]\n\tfsmonitor = %s\n' $C $C > $G/more; git config include.path $G/more; echo '*.txt filter=x' > .gitattributes`,
	},
	"config.worktree": {
		runs:   true,
		script: `git config extensions.worktreeConfig true; git config --worktree filter.x.clean $C; git config --worktree core.fsmonitor $C; echo '*.txt filter=x' > .gitattributes`,
	},
	"core.fsmonitor": {script: `git config core.fsmonitor $C`},
	"diff.external":  {script: `git config diff.external $C`},
	"diff.command":   {script: `git config diff.x.command $C; echo '*.txt diff=x' > .gitattributes`},
	"diff.textconv":  {script: `git config diff.x.textconv $C; echo '*.txt diff=x' > .gitattributes`},
	"core.hooksPath": {
		script: `mkdir $G/h; for h in ` + everyHook + `; do cp $C $G/h/$h; done; git config core.hooksPath $G/h`,
	},
	"hooks": {script: `mkdir -p $G/hooks; for h in ` + everyHook + `; do ln -s $C $G/hooks/$h; done`},
	"alias": {script: `for a in add diff update-ref worktree write-tree; do git config alias.$a "!$C"; done`},
	"gpg.program": {
		script: `git config gpg.program $C; git config commit.gpgSign true; git config gpg.ssh.program $C; git config log.showSignature true`,
	},
	"core.pager": {
		script: `git config core.pager $C; git config core.editor $C; git config pager.diff $C; git config sequence.editor $C`,
	},
	"credential.helper": {
		script: `git config credential.helper $C; git config core.askPass $C; ` + promisor("https://127.0.0.1:1/x")},
	"core.sshCommand": {
		script: `git config core.sshCommand $C; git config protocol.allow always; git config protocol.ssh.allow always; ` + promisor("ssh://nobody@127.0.0.1/x"),
	},
	"ext:: remote": {script: `git config protocol.ext.allow always; ` + promisor("ext::$C")},
	"remote.uploadpack": {
		script: `git config protocol.file.allow always; git config remote.origin.uploadpack $C; ` + promisor("$G"),
	},
	"merge driver": {
		script: `git config merge.x.driver $C; git config merge.default x; echo '*.txt merge=x' > .gitattributes`},
	"submodule": {
		script: `git init -q sub; cd sub; echo x > s.txt; git add s.txt; git commit -qm s; cd ..; git add sub 2> /dev/null; git commit -qm sub;
		cd sub; git config core.fsmonitor $C; git config filter.x.clean $C; git config core.hooksPath ${C%/*}; echo '*.txt filter=x' > .gitattributes; sleep 0.01; echo y > s.txt; cd ..`,
	},
	"core.worktree": {
		script: `mkdir ${C%/*}/other; git config extensions.worktreeConfig true; git config --worktree core.worktree ${C%/*}/other`,
	},
	"another gitdir": {
		script: `git init -q ${C%/*}/evil; git -C ${C%/*}/evil config core.fsmonitor $C; git -C ${C%/*}/evil config filter.x.clean $C; git -C ${C%/*}/evil config filter.x.smudge $C;
		echo "gitdir: ${C%/*}/evil/.git" > .git; echo '*.txt filter=x' > .gitattributes`,
	},
	"another common directory": {
		script: `git init -q ${C%/*}/evil; git -C ${C%/*}/evil config core.fsmonitor $C; git -C ${C%/*}/evil config filter.x.clean $C; 
		echo '*.txt filter=x' > .gitattributes; A=$(git rev-parse --absolute-git-dir); echo ${C%/*}/evil/.git > $A/commondir`,
	},
}

const everyHook = "pre-commit post-commit post-checkout post-index-change reference-transaction pre-merge-commit prepare-commit-msg commit-msg pre-auto-gc fsmonitor-watchman"

// promisor says that missing objects come from a remote, and deletes one.
func promisor(url string) string {
	return `O=$(git rev-parse HEAD:a.txt); git config core.repositoryFormatVersion 1; git config extensions.partialClone origin;
		git config remote.origin.promisor true; git config remote.origin.url "` + url +
		`"; rm -f $G/objects/$(echo $O | cut -c1-2)/$(echo $O | cut -c3-)`
}

// Whatever programs an agent configures in git, the git commands of the adapter
// run none of them, or run them in a containment without the secrets of the
// adapter, where they are dead when the run is over. That holds at the commit
// after the run, at the repair of a workspace and for the next worktree.
func TestProgramsThatAnAgentConfiguresInGit(t *testing.T) {
	rig.SkipShort(t)
	canaryEnvironment(t)
	atOnce(t, maps.Keys(plantedConfigs), func(t *testing.T, name string) {
		plant := plantedConfigs[name]
		c := newPlantedProgram(t)
		w := newWorktreeFixture(t)
		lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
		head := `G=$(cd "$(git rev-parse --git-common-dir)" && pwd); C=` + c.program + "\n"
		w.run(lease, head+plant.script+"\nrm -f ${C%/*}/*.env; echo new > new.txt; exit 0")
		ran := c.check(t)
		if !strings.Contains(plant.script, "promisor") { // there it cannot be shown
			if ev := w.changes(lease); !strings.Contains(ev.Diff, "new.txt") {
				t.Errorf("the diff is\n%s\n%s", ev.Diffstat, ev.Diff)
			}
		}
		// The next run of the task repairs the workspace; the next task gets a
		// worktree of its own.
		second := w.s.Supersede(lease.TaskID)
		w.runMayFail(second, `echo more >> new.txt`)
		ran = c.check(t) || ran
		w.runMayFail(w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete, Fixes: lease.TaskID}), "true")
		if ran = c.check(t) || ran; ran != plant.runs {
			t.Errorf("a planted program has run: %t, want %t", ran, plant.runs)
		}
		if entries, _ := os.ReadDir(filepath.Join(c.dir, "other")); len(entries) > 0 {
			t.Errorf("git wrote into another directory: %v", entries)
		}
		if refs, _ := filepath.Glob(filepath.Join(c.dir, "evil", ".git", "refs", "heads", "picket",
			"*")); len(refs) > 0 {
			t.Errorf("git wrote into another repository: %v", refs)
		}
	})
}

// runMayFail is run for an agent whose worktree may not be made.
func (w *worktreeFixture) runMayFail(lease picket.Lease, script string) {
	w.t.Helper()
	a := newAdapter(w.t, w.s, []string{"sh", "-c", script}, func(c *adapter.Config) {
		c.Workspace, c.Dir, c.StateDir = workspace.Worktree, w.repo, w.state
	})
	if _, err := a.RunLease(proctest.Patience(w.t), lease); err != nil {
		w.t.Log(err)
	}
}

// A filter that does not end is dead ten seconds after the end of its agent,
// and ten seconds after a worktree is begun.
func TestAFilterThatHangsIsEnded(t *testing.T) {
	rig.SkipShort(t)
	canaryEnvironment(t)
	hanging := map[string]string{
		"clean":       `git config filter.x.clean $C; echo '*.txt filter=x' > .gitattributes`,
		"process":     `git config filter.x.process $C; git config filter.x.required true; echo '*.txt filter=x' > .gitattributes`,
		"smudge":      `git config filter.x.smudge $C; echo '*.txt filter=x' > $G/info/attributes`,
		"ending tool": `git config filter.x.clean $C; echo '*.txt filter=x' > .gitattributes`,
	}
	atOnce(t, maps.Keys(hanging), func(t *testing.T, name string) {
		plant := hanging[name]
		c := newPlantedProgram(t)
		post := proctest.NewFIFO(t)
		w := newWorktreeFixture(t, func(c *adapter.Config) { c.Linger = -1 })
		lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
		script := `G=$(cd "$(git rev-parse --git-common-dir)" && pwd); C=` + c.hangs + "\n" + plant +
			"\necho new > new.txt; echo up > " + post.Path
		ended := make(chan time.Time, 2)
		go func() {
			post.Read(t)
			if name == "ending tool" {
				w.s.Complete(lease.TaskID, picket.RawJSON(`1`))
			}
			ended <- time.Now()
		}()
		if name == "ending tool" {
			script += "; exec sleep 1000"
		}
		w.run(lease, script)
		c.check(t)
		told := ""
		if name == "smudge" {
			<-ended
			ended <- time.Now()
			next := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
			w.runMayFail(next, "true")
			told = w.s.View(next.TaskID).Runs[0].Released.Detail
		} else if name != "ending tool" {
			told = w.changes(lease).Diffstat
		}
		if name != "ending tool" && !strings.Contains(told, "Large repositories") {
			t.Errorf("nobody is told what to do: %q", told)
		}
		if took := time.Since(<-ended); took > 20*time.Second {
			t.Errorf("the run ended %s after its agent", took)
		}
		if !c.check(t) {
			t.Error("the filter has not run")
		}
	})
}
