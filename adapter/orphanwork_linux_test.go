package adapter_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// An adapter that was killed before it could commit leaves nothing to its
// reviewer; the next adapter of the machine does that for it, with the dead
// run's own credential, before it gives the lease back.
func TestTheNextAdapterHandsInWhatADeadOneLeft(t *testing.T) {
	rig.SkipShort(t)
	w := newWorktreeFixture(t)
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	if !w.runAndKill(lease, workspace.ResumeReuse, "indexed", firstWork+`; echo "$PICKET_LEASE_TOKEN" >> first.txt`) {
		t.Fatal("the adapter was not killed")
	}
	ctx, stop := context.WithCancel(proctest.Patience(t))
	defer stop()
	a := newAdapter(t, w.s, []string{"true"}, func(c *adapter.Config) {
		c.Workspace, c.Dir, c.StateDir = workspace.Worktree, w.repo, w.state
	})
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	v, err := w.s.Await(proctest.Patience(t), lease.TaskID,
		func(v adaptertest.View) bool { return v.Runs[0].Released != nil })
	stop()
	if err != nil || v.Runs[0].Changes == nil {
		t.Fatalf("given back without its work: %+v, %v", v, err)
	}
	if diff := v.Runs[0].Changes.Diff; !strings.Contains(diff, "+two\n+[redacted]\n") ||
		strings.Contains(diff, lease.LeaseToken.Reveal()) {
		t.Errorf("handed in:\n%s", diff)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	w.checkConsistent("afterwards")
}

// A git that is at work when its adapter is killed dies with its filters. The
// next run of the task starts only when they are dead.
func TestAGitDiesWithItsAdapter(t *testing.T) {
	rig.SkipShort(t)
	w := newWorktreeFixture(t)
	went := filepath.Join(t.TempDir(), "went")
	if err := syscall.Mkfifo(went, 0o600); err != nil {
		t.Fatal(err)
	}
	runGit(t, w.repo, "config", "filter.slow.clean",
		fmt.Sprintf("setsid -w sh -c 'echo $$ > %s; exec sleep 1000'", went))
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	doomed := w.killedAdapterCommand(lease, workspace.ResumeReuse, "never",
		`echo one > first.slow; echo "first.slow filter=slow" > .gitattributes`)
	if err := doomed.Start(); err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(went) // blocks until git is in the filter
	if err != nil {
		t.Fatal(err)
	}
	filter := strings.TrimSpace(string(pid))
	if err := doomed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = doomed.Wait()
	runGit(t, w.repo, "config", "--unset", "filter.slow.clean")

	second := w.s.Supersede(lease.TaskID)
	w.set = append(w.set, func(c *adapter.Config) {
		c.OnEvent = func(e adapter.Event) {
			if e.Kind == adapter.EventLaunched && proctest.Alive(filter) {
				t.Error("the filter is alive when the next run starts")
			}
		}
	})
	w.run(second, "cat first.slow > second.txt")
	if got := runGit(t, w.repo, "show", "picket/"+lease.TaskID+":second.txt"); got != "one" {
		t.Errorf("second.txt is %q", got)
	}
	w.checkConsistent("afterwards")
}
