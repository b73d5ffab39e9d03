package adapter_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/rig"
)

// An adapter that is frozen while it has a worktree does not hold the next run
// up, and does not write over its work when it wakes.
func TestAFrozenAdapterDoesNotWriteOverTheNextRun(t *testing.T) {
	rig.SkipShort(t)
	w := newWorktreeFixture(t)
	dir := t.TempDir()
	up := filepath.Join(dir, "up")
	if err := syscall.Mkfifo(up, 0o600); err != nil {
		t.Fatal(err)
	}
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	frozen := w.killedAdapterCommand(lease, workspace.ResumeReuse, "never",
		`echo zombie > a.txt; echo half > half.txt; echo up > `+up+`; exec sleep 1000`)
	if err := frozen.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(up); err != nil { // blocks until the agent has worked
		t.Fatal(err)
	}
	if err := frozen.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	second := w.s.Supersede(lease.TaskID)
	w.run(second, `cat half.txt > second.txt; echo right > a.txt`)
	// it finds its lease gone, kills its agent and settles
	if err := frozen.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_ = frozen.Wait()
	branch := "picket/" + lease.TaskID
	if got := runGit(t, w.repo, "show", branch+":a.txt") + " " +
		runGit(t, w.repo, "show", branch+":second.txt"); got != "right half" {
		t.Errorf("the branch has %q", got)
	}
	if ev := w.changes(second); !strings.Contains(ev.Diff, "+right") || strings.Contains(ev.Diff, "zombie") {
		t.Errorf("handed in:\n%s", ev.Diff)
	}
}
