package adapter_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// The branch of a task can be checked out in a directory whose name an agent
// has chosen. What is printed about it holds no command with that name, and the
// name only as one word of a shell, or not at all.
func TestAHostilePathIsPrintedAsOneWord(t *testing.T) {
	rig.SkipShort(t)
	for name, shown := range map[string]bool{
		"with space":                  true,
		`quotes ' and "`:              true,
		"$(touch pwned)":              true,
		"`touch pwned`":               true,
		"a; touch pwned; b":           true,
		"--upload-pack=x":             true,
		"two\nlines":                  false,
		"two\nbranch refs/heads/main": false,
		"escape\x1b[31mred":           false,
		"title\x1b]0;pwned\x07":       false,
		"back\u202eward":              false,
		"tab\tbed":                    false,
	} {
		w := newWorktreeFixture(t)
		lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
		dir := filepath.Join(t.TempDir(), name)
		runGit(t, w.repo, "worktree", "add", "--quiet", "-b", "picket/"+lease.TaskID, "--", dir)
		a := newAdapter(t, w.s, []string{"true"}, func(c *adapter.Config) {
			c.Workspace, c.Dir, c.StateDir = workspace.Worktree, w.repo, w.state
		})
		_, err := a.RunLease(proctest.Patience(t), lease)
		var e *picket.Error
		if !errors.As(err, &e) || !strings.Contains(e.Message, "picket/"+lease.TaskID) {
			t.Errorf("%q: %v", name, err)
			continue
		}
		said := err.Error() + e.Remedy
		if exit := w.s.View(lease.TaskID).Runs[0].Released; exit != nil {
			said += exit.Detail
		}
		if strings.Contains(e.Remedy, filepath.Dir(dir)) {
			t.Errorf("%q: the remedy names it: %s", name, e.Remedy)
		}
		if strings.ContainsFunc(said, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }) {
			t.Errorf("%q: %q could steer a terminal", name, said)
		}
		_, word, _ := strings.Cut(e.Message, "checked out in ")
		if !shown {
			if strings.Contains(said, filepath.Dir(dir)) {
				t.Errorf("%q is shown in %q", name, said)
			}
			continue
		}
		sh := exec.Command("sh", "-c", "printf %s "+word)
		sh.Dir = t.TempDir()
		if out, err := sh.Output(); err != nil || string(out) != dir {
			t.Errorf("a shell reads %s as %q, %v", word, out, err)
		}
		if entries, _ := os.ReadDir(sh.Dir); len(entries) > 0 {
			t.Errorf("%q: the shell ran a command in it", name)
		}
	}
}

// A filter of the agent's cannot steer a terminal by what it writes.
func TestWordsOfAFilterCannotSteerATerminal(t *testing.T) {
	w := newWorktreeFixture(t)
	lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	w.run(lease, `git config filter.x.clean 'printf "\033]0;pwned\007" >&2; exit 1'; git config filter.x.required true
		echo '*.txt filter=x' > .gitattributes; echo new > new.txt`)
	stat := w.changes(lease).Diffstat
	if !strings.Contains(stat, "branch") || strings.Contains(stat, "\x1b") || strings.Contains(stat, "\x07") {
		t.Errorf("told is %q", stat)
	}
}
