package adapter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

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
func (g git) adminOf(k *lockedWorkspace) (string, error) {
	refuse := func(why string) (string, error) {
		return "", fmt.Errorf("the directory %q is not a worktree of the repository %q: %s", k.Path, g.common, why)
	}
	top, err := k.openRoot()
	if err != nil {
		return "", err
	}
	defer top.Close()
	text, err := readRegularFile(top, ".git")
	target, isLink := strings.CutPrefix(strings.TrimSuffix(string(text), "\n"), "gitdir: ")
	if err != nil || !isLink {
		return refuse("it has no file .git that says so")
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
func (g git) removeAdmin(k *lockedWorkspace) error {
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
