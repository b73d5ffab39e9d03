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

	"github.com/picket-dev/picket"
)

// retiredFile in git's part of a worktree says that another adapter has gone
// on with its branch.
const retiredFile = "picket-retired"

// freeBranch takes a branch of ours from a worktree that this adapter cannot
// have, such as one of a frozen adapter, or of one with another state
// directory: its run is over, for we have the lease. What is in it is committed
// and stays.
func (w *workspaceStore) freeBranch(ctx context.Context, repo repository, k *lockedWorkspace) error {
	if head, err := repo.output(ctx, "symbolic-ref", "--quiet", "HEAD"); err == nil && head == "refs/heads/"+k.Branch {
		return branchInUse(k.Branch, strings.TrimSuffix(repo.common, string(filepath.Separator)+".git"))
	}
	listed, err := repo.worktreesOn(ctx, k.Branch)
	if err != nil {
		return err
	}
	for _, tree := range listed {
		if picket.CheckID("run", "run", filepath.Base(tree.path)) != nil {
			return branchInUse(k.Branch, tree.path)
		}
		other := w.foreignWorktree(repo, k, tree)
		err := other.openDir()
		if errors.Is(err, fs.ErrNotExist) || tree.unfinished { // gone, or never used
			err = repo.removeAdmin(other)
		} else {
			err = w.retireForeign(ctx, repo, other, err)
		}
		other.closeDir()
		if err != nil {
			return err
		}
	}
	return nil
}

// foreignWorktree is a worktree that the repository names. Its path and its name are
// words that an agent may have written.
func (w *workspaceStore) foreignWorktree(repo repository, k *lockedWorkspace, tree gitWorktree) *lockedWorkspace {
	id := filepath.Base(tree.path)
	other := &lockedWorkspace{lock: repo.lock, root: filepath.Dir(tree.path), KeptWorkspace: KeptWorkspace{
		Name: id, RunID: id, TaskID: k.TaskID, Title: k.Title, Path: tree.path,
		Common: repo.common, Admin: filepath.Join(repo.common, "worktrees", tree.name), Branch: k.Branch,
	}}
	if known, err := readWorkspaceRecord(w.cfg.StateDir, id); err == nil && known.Path == tree.path {
		other.Identity = known.Identity
	}
	return other
}

// retireForeign commits what is in a worktree and takes the branch from it. A
// directory that is not the worktree, for a reason known already or found here,
// is left alone: only git's part of the worktree changes.
func (w *workspaceStore) retireForeign(ctx context.Context, repo repository, other *lockedWorkspace,
	strange error) error {
	if strange == nil {
		admin, err := repo.adminOf(other)
		if strange = err; err == nil && admin != other.Admin {
			strange = fmt.Errorf("two parts of the repository name the directory %q", other.Path)
		}
	}
	if strange == nil {
		_, strange = w.commit(ctx, other, other.commitMessage("What a run left to another adapter"))
	}
	if strange != nil {
		w.cfg.Log.Warn("what another adapter has left is not committed; it is in its workspace", "workspace",
			other.Path, "err", strange)
	}
	err := repo.withSharedDir(func(root *os.Root) error {
		file := path.Join("worktrees", filepath.Base(other.Admin), retiredFile)
		if err := root.RemoveAll(file); err != nil {
			return err
		}
		return root.WriteFile(file, nil, 0o600)
	})
	if err != nil {
		return err
	}
	g := git{common: repo.common, admin: other.Admin, lock: repo.lock, gitContainment: w.gitContainment()}
	_, err = g.output(ctx, "update-ref", "--no-deref", "HEAD", "HEAD^{commit}")
	return err
}

// branchInUse refuses to take a branch from a directory that is not a workspace.
// An agent may have written its path, so no command that is to be run names it.
func branchInUse(branch, dir string) error {
	where := "another directory, whose name cannot be shown"
	if printable(dir) == dir && !strings.ContainsAny(dir, "\n\t") {
		where = shellQuoted(dir)
	}
	return picket.Refuse(picket.CodeStateConflict,
		"Find it with: git worktree list. If you know it, switch it to another branch, or remove it with git worktree remove",
		"the branch %s is checked out in %s", branch, where)
}

// shellQuoted writes a word so that a shell reads it as one.
func shellQuoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// checkRetired refuses to go on with a branch that was taken from a worktree: an
// adapter that was frozen must not write over the work of the next run.
func (k *lockedWorkspace) checkRetired() error {
	if _, err := os.Lstat(filepath.Join(k.Admin, retiredFile)); err == nil {
		return fmt.Errorf("%w: another adapter has gone on with its branch", errNotUsable)
	}
	return nil
}
