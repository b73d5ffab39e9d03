package adapter_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig"
)

// A kept workspace whose place was taken by a link or by another directory is
// left alone: nothing is written, committed or deleted there.
func TestAReplacedWorkspaceIsLeftAlone(t *testing.T) {
	rig.SkipShort(t)
	for name, replace := range map[string]func(path, target string) error{
		"link":              func(path, target string) error { return os.Symlink(target, path) },
		"another directory": func(path, target string) error { return os.Rename(target, path) },
		"parent": func(path, target string) error {
			root := filepath.Dir(path)
			if err := os.Rename(root, root+".old"); err != nil {
				return err
			}
			if err := os.Mkdir(root+".evil", 0o700); err != nil {
				return err
			}
			if err := os.Rename(target, filepath.Join(root+".evil", filepath.Base(path))); err != nil {
				return err
			}
			return os.Symlink(root+".evil", root)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorktreeFixture(t)
			lease := w.s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
			first := w.run(lease, "echo one > one.txt")
			link, err := os.ReadFile(filepath.Join(first.Workspace, ".git"))
			if err != nil {
				t.Fatal(err)
			}
			target := filepath.Join(t.TempDir(), "target")
			write(t, filepath.Join(target, "private.txt"), "private\n")
			write(t, filepath.Join(target, ".git"), string(link))
			if err := os.Rename(first.Workspace, first.Workspace+".moved"); err != nil {
				t.Fatal(err)
			}
			if err := replace(first.Workspace, target); err != nil {
				t.Fatal(err)
			}
			w.runMayFail(w.s.Supersede(lease.TaskID), "echo two > two.txt")
			entries, err := os.ReadDir(first.Workspace)
			if err != nil || len(entries) != 2 {
				t.Errorf("the adapter wrote into the directory: %v, %v", entries, err)
			}
			if files := runGit(t, w.repo, "ls-tree", "-r", "--name-only",
				"picket/"+lease.TaskID); strings.Contains(files, "private.txt") {
				t.Errorf("the adapter committed %s", files)
			}
		})
	}
}
