package adapter_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
)

// An adapter that was killed before it could commit leaves nothing to its
// reviewer; the next adapter of the machine does that for it, with the dead
// run's own credential, before it gives the lease back.
func TestTheNextAdapterHandsInWhatADeadOneLeft(t *testing.T) {
	w := newShift(t)
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	if !w.die(lease, adapter.ResumeReuse, "indexed", firstWork+`; echo "$PICKET_LEASE_TOKEN" >> first.txt`) {
		t.Fatal("the adapter was not killed")
	}
	ctx, stop := context.WithCancel(patience(t))
	defer stop()
	a := newAdapter(t, w.s, []string{"true"}, func(c *adapter.Config) {
		c.Workspace, c.Dir, c.StateDir = adapter.WorkspaceWorktree, w.repo, w.state
	})
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	v, err := w.s.Await(patience(t), lease.TaskID, func(v adaptertest.View) bool { return v.Runs[0].Released != nil })
	stop()
	if err != nil || v.Runs[0].Changes == nil {
		t.Fatalf("given back without its work: %+v, %v", v, err)
	}
	if diff := v.Runs[0].Changes.Diff; !strings.Contains(diff, "+two\n+[redacted]\n") || strings.Contains(diff, lease.LeaseToken.Reveal()) {
		t.Errorf("handed in:\n%s", diff)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	w.whole("afterwards")
}

// A git that outlives its killed adapter is waited for: nobody works in its
// directory before it has ended.
func TestAGitThatOutlivesItsAdapterIsWaitedFor(t *testing.T) {
	w := newShift(t)
	dir := t.TempDir()
	gate, went, passed := filepath.Join(dir, "gate"), filepath.Join(dir, "went"), filepath.Join(dir, "passed")
	if out, err := exec.Command("mkfifo", gate, went).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The first file that is added stops git until the gate is written to.
	runGit(t, w.repo, "config", "filter.slow.clean", fmt.Sprintf("sh -c 'echo here > %s; cat %s >/dev/null; cat; touch %s'", went, gate, passed))
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	doomed := w.doomed(lease, adapter.ResumeReuse, "never", `echo one > first.slow; echo "first.slow filter=slow" > .gitattributes`)
	if err := doomed.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(went); err != nil { // blocks until git is in the filter
		t.Fatal(err)
	}
	if err := doomed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = doomed.Wait()
	runGit(t, w.repo, "config", "--unset", "filter.slow.clean")

	second := w.s.Supersede(lease.TaskID)
	launched, done := make(chan struct{}), make(chan struct{})
	w.set = append(w.set, func(c *adapter.Config) {
		c.OnEvent = func(e adapter.Event) {
			if e.Kind == adapter.EventLaunched {
				close(launched)
			}
		}
	})
	go func() {
		defer close(done)
		w.run(second, "test -e "+passed+" && cat first.slow > second.txt")
	}()
	select { // a run that does not wait is soon launched; one that waits never is
	case <-launched:
	case <-time.After(1500 * time.Millisecond):
	}
	if err := os.WriteFile(gate, nil, 0); err != nil { // opening it lets git go on
		t.Fatal(err)
	}
	<-done
	if got := runGit(t, w.repo, "show", "picket/"+lease.TaskID+":second.txt"); got != "one" {
		t.Errorf("second.txt is %q", got)
	}
	w.whole("afterwards")
}
