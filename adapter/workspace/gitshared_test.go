package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An agent can write in the directory that all worktrees share. What it links
// there to places outside is neither written nor deleted.
func TestLinksInTheSharedDirectoryLeadNowhere(t *testing.T) {
	const task, text = "task_01ARZ3NDEKTSV4RRFFQ69G5FAV", "precious\n"
	for name, c := range map[string]struct {
		link    string
		to      string // in the shared directory, and outside
		do      func(g git) error
		refused bool
	}{
		"the new note of a base": {"picket/base/" + task + ".new", "file",
			func(g git) error { return g.saveBase(task, "abc") }, false},
		"the note of a base": {"picket/base/" + task, "file",
			func(g git) error { return g.saveBase(task, "abc") }, false},
		"the directory of the notes":  {"picket/base", "", func(g git) error { return g.saveBase(task, "abc") }, true},
		"the list of what is ignored": {"info/exclude", "file", git.exclude, true},
		"the directory of the list":   {"info", "", git.exclude, true},
		"the directory of branches": {"refs/heads/picket", "",
			func(g git) error { return g.removeBranchLock("picket/file") },
			true},
		"a part of a worktree": {"worktrees/one", "", func(g git) error { return g.removeAdminFile("file.lock") },
			true},
		"the link of a worktree": {"worktrees/one", "", func(g git) error {
			return (&Locked{KeptWorkspace: KeptWorkspace{Common: g.common, Admin: g.admin}}).relink()
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			outside, common := t.TempDir(), t.TempDir()
			for _, f := range []string{"file", "file.lock", "exclude"} {
				if err := os.WriteFile(filepath.Join(outside, f), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			link := filepath.Join(common, c.link)
			if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(outside, c.to), link); err != nil {
				t.Fatal(err)
			}
			g := git{common: common, admin: filepath.Join(common, "worktrees", "one")}
			if err := c.do(g); (err != nil) != c.refused {
				t.Errorf("it ends with %v", err)
			}
			entries, err := os.ReadDir(outside)
			if err != nil || len(entries) != 3 {
				t.Errorf("outside there are %v, %v", entries, err)
			}
			for _, e := range entries {
				if b, err := os.ReadFile(filepath.Join(outside, e.Name())); err != nil || string(b) != text {
					t.Errorf("%s is %q, %v", e.Name(), b, err)
				}
			}
			if strings.Contains(name, "note of") && g.savedBase(task) != "abc" {
				t.Errorf("the base is %q", g.savedBase(task))
			}
		})
	}
}
