package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/picket-dev/picket/internal/files"
)

// All worktrees of a repository share one directory, and the agents can write in
// it. Files in it are therefore named relative to it and opened through os.Root:
// a link that leads out of it is refused.

// withSharedDir calls do with the directory that all worktrees share.
func (g git) withSharedDir(do func(root *os.Root) error) error {
	root, err := os.OpenRoot(g.common)
	if err != nil {
		return err
	}
	return errors.Join(do(root), root.Close())
}

// baseFilePath notes the commit that the branch of a task began at.
func baseFilePath(taskID string) string { return path.Join("picket/base", taskID) }

func (g git) saveBase(taskID, base string) error {
	return g.withSharedDir(func(root *os.Root) error {
		file := baseFilePath(taskID)
		if err := root.MkdirAll(path.Dir(file), 0o700); err != nil {
			return err
		}
		if err := files.CreateIn(root, file+".new", []byte(base+"\n")); err != nil {
			return err
		}
		return root.Rename(file+".new", file)
	})
}

// savedBase is what saveBase has noted, "" when it cannot be read.
func (g git) savedBase(taskID string) (base string) {
	_ = g.withSharedDir(func(root *os.Root) error {
		text, err := readRegularFile(root, baseFilePath(taskID))
		base = strings.TrimSpace(string(text))
		return err
	})
	return base
}

// maxGitFile bounds the files of git that are read, in bytes.
const maxGitFile = 1 << 20

// readRegularFile reads a regular file; a link, a pipe or a large file is refused.
func readRegularFile(root *os.Root, file string) ([]byte, error) {
	info, err := root.Lstat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file; replace it by one", filepath.Join(root.Name(), file))
	}
	f, err := root.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxGitFile+1))
	if err == nil && len(text) > maxGitFile {
		err = fmt.Errorf("%s is larger than 1 MiB; make it smaller", filepath.Join(root.Name(), file))
	}
	return text, err
}

// exclude keeps our files in a workspace away from git, in the repository's own
// list that belongs to no commit.
func (g git) exclude() error {
	const line, file = AgentFilesDir + "/", "info/exclude"
	return g.withSharedDir(func(root *os.Root) error {
		text, err := readRegularFile(root, file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for have := range strings.Lines(string(text)) {
			if strings.TrimSpace(have) == line {
				return nil
			}
		}
		if err := root.MkdirAll(path.Dir(file), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		more := line + "\n"
		if len(text) > 0 && !strings.HasSuffix(string(text), "\n") {
			more = "\n" + more
		}
		_, err = f.WriteString(more)
		return errors.Join(err, f.Close())
	})
}

// removeBranchLock deletes the lock of a branch of ours that a killed git has left. Only
// one process works for a task at a time.
func (g git) removeBranchLock(branch string) error {
	return g.removeSharedFile("refs/heads/" + branch + ".lock")
}

// removeAdminFile deletes a file in git's administrative directory of the worktree.
func (g git) removeAdminFile(name string) error {
	return g.removeSharedFile(path.Join("worktrees", filepath.Base(g.admin), name))
}

func (g git) removeSharedFile(file string) error {
	return g.withSharedDir(func(root *os.Root) error {
		if err := root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// linkFile in git's part of a worktree leads to the part that all share.
const linkFile, linkText = "commondir", "../..\n"

// relink lets git's part of a worktree belong to its repository again, whatever
// the agent has made of it.
func (k *Locked) relink() error {
	return git{common: k.Common}.withSharedDir(func(root *os.Root) error {
		admin, err := root.OpenRoot(path.Join("worktrees", filepath.Base(k.Admin)))
		if err != nil {
			return err
		}
		defer admin.Close()
		info, err := admin.Lstat(linkFile)
		if err == nil && info.Mode().IsRegular() && info.Size() == int64(len(linkText)) {
			if text, err := admin.ReadFile(linkFile); err == nil && string(text) == linkText {
				return nil
			}
		}
		if err := admin.RemoveAll(linkFile); err != nil {
			return err
		}
		return admin.WriteFile(linkFile, []byte(linkText), 0o644)
	})
}

// What git knows of its worktrees is in files that the agents can write. They
// are read and deleted here, and not by git: it would follow the paths in them.

// gitWorktree is a worktree as its repository knows it.
type gitWorktree struct {
	name       string // of its part of the repository, below "worktrees"
	path       string // of its files, as the repository has it
	unfinished bool   // git was ended while it made it
}

// worktreesOn lists the worktrees that have a branch checked out.
func (g git) worktreesOn(ctx context.Context, branch string) (found []gitWorktree, err error) {
	err = g.withSharedDir(func(root *os.Root) error {
		entries, err := fs.ReadDir(root.FS(), "worktrees")
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, e := range entries {
			dir := path.Join("worktrees", e.Name())
			link, bad := readRegularFile(root, path.Join(dir, "gitdir"))
			if bad != nil || g.branchOf(ctx, root, e.Name()) != "refs/heads/"+branch {
				continue
			}
			lock, _ := readRegularFile(root, path.Join(dir, "locked"))
			found = append(found, gitWorktree{
				name:       e.Name(),
				path:       filepath.Dir(strings.TrimSuffix(string(link), "\n")),
				unfinished: strings.TrimSpace(string(lock)) == "initializing",
			})
		}
		return err
	})
	return found, err
}

// branchOf is the branch of a worktree; empty when it has none.
func (g git) branchOf(ctx context.Context, root *os.Root, name string) string {
	text, err := readRegularFile(root, path.Join("worktrees", name, "HEAD"))
	if err != nil {
		return ""
	}
	ref, _ := strings.CutPrefix(strings.TrimSpace(string(text)), "ref: ")
	if ref != "refs/heads/.invalid" {
		return ref
	}
	// The branches of this repository are not files.
	g.admin = filepath.Join(g.common, "worktrees", name)
	ref, _ = g.output(ctx, "symbolic-ref", "--quiet", "HEAD")
	return ref
}

// adminOf is git's part of the worktree in a directory. Each must name the
// other: an agent may have written either.
func (g git) adminOf(k *Locked) (string, error) {
	refuse := func(why string) (string, error) {
		return "", fmt.Errorf("the directory %q is not a worktree of the repository %q: %s", k.Path, g.common, why)
	}
	top, err := k.OpenRoot()
	if err != nil {
		return "", err
	}
	defer top.Close()
	text, err := readRegularFile(top, ".git")
	target, isLink := strings.CutPrefix(strings.TrimSuffix(string(text), "\n"), "gitdir: ")
	if err != nil || !isLink {
		return refuse("it has no .git file that names this repository")
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(k.Path, target)
	}
	name := filepath.Base(target)
	if !sameDir(filepath.Dir(target), filepath.Join(g.common, "worktrees")) {
		return refuse("its file .git names another repository")
	}
	err = g.withSharedDir(func(root *os.Root) error {
		back, err := readRegularFile(root, path.Join("worktrees", name, "gitdir"))
		if err != nil {
			return err
		}
		info, err := os.Stat(filepath.Dir(strings.TrimSuffix(string(back), "\n")))
		if err != nil {
			return err
		}
		return k.verifySame(info)
	})
	if err != nil {
		return refuse("the repository names another directory")
	}
	return filepath.Join(g.common, "worktrees", name), nil
}

func sameDir(a, b string) bool {
	one, err := os.Stat(a)
	other, bad := os.Stat(b)
	return err == nil && bad == nil && os.SameFile(one, other)
}

// removeAdmin deletes git's part of a worktree, and of no other. The directory
// of its files is not touched: whatever is there may not be ours.
func (g git) removeAdmin(k *Locked) error {
	return g.withSharedDir(func(root *os.Root) error {
		names := map[string]bool{filepath.Base(k.Admin): k.Admin != ""}
		entries, err := fs.ReadDir(root.FS(), "worktrees")
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, e := range entries {
			back, bad := readRegularFile(root, path.Join("worktrees", e.Name(), "gitdir"))
			if bad == nil && strings.TrimSuffix(string(back), "\n") == filepath.Join(k.Path, ".git") {
				names[e.Name()] = true
			}
		}
		for name, ours := range names {
			if ours {
				err = errors.Join(err, root.RemoveAll(path.Join("worktrees", name)))
			}
		}
		return err
	})
}
