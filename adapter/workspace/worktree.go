package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/text"
)

// sharedLockTimeout is how long one adapter waits for another that makes or deletes a
// worktree of the same repository.
const sharedLockTimeout = 2 * time.Minute

func (g git) lockShared(ctx context.Context) (*os.File, error) {
	if err := g.withSharedDir(func(root *os.Root) error { return root.MkdirAll("picket", 0o700) }); err != nil {
		return nil, err
	}
	return files.LockDir(ctx, filepath.Join(g.common, "picket"), sharedLockTimeout)
}

// addWorktree makes the worktree of a task in the empty directory of k. It reports
// whether the branch had work on it already.
func (w *Store) addWorktree(ctx context.Context, k *Locked,
	lease picket.Lease) (begun bool, err error) {
	repo := w.repository()
	lock, err := repo.lockShared(ctx)
	if err != nil {
		return false, fmt.Errorf("make worktree: %w", err)
	}
	defer lock.Close()
	repo.lock = lock
	if err := repo.exclude(); err != nil {
		return false, fmt.Errorf("keep %s out of git: %w", AgentFilesDir, err)
	}
	k.Common, k.Repository, k.Branch = repo.common, repo.top, picket.WorkBranch(k.TaskID)
	if err := k.Save(); err != nil {
		return false, err
	}
	w.step("adding")
	if err := errors.Join(repo.removeBranchLock(k.Branch), w.freeBranch(ctx, repo, k)); err != nil {
		return false, fmt.Errorf("make worktree: %w", err)
	}
	tip := repo.resolveCommit(ctx, "refs/heads/"+k.Branch)
	if tip == "" && lease.Attempt > 1 && w.Resume != ResumeFresh {
		tip = w.bringBranch(ctx, repo, lease, k.TaskID)
	}
	if w.newer != "" {
		if tip, err = repo.moveBranch(ctx, k, tip, w.newer); err != nil {
			return false, fmt.Errorf("make worktree: %w", err)
		}
	}
	if tip != "" && w.Resume != ResumeFresh {
		k.Base = repo.baseOf(ctx, k.TaskID, tip)
		begun = tip != k.Base
		_, err = repo.output(ctx, "worktree", "add", "--quiet", k.Path, k.Branch)
	} else {
		err = w.addBranch(ctx, repo, k, lease, tip)
	}
	if err != nil {
		return false, fmt.Errorf("make worktree: %w", err)
	}
	w.step("added")
	if k.Admin, err = repo.adminOf(k); err != nil {
		return false, fmt.Errorf("make worktree: %w", err)
	}
	return begun, nil
}

// addBranch makes the worktree with a new branch. What an earlier one of the
// same name has and the new one has not stays under a name of its own.
func (w *Store) addBranch(ctx context.Context, repo Repository, k *Locked, lease picket.Lease,
	old string) error {
	start, base, err := w.startCommit(ctx, lease)
	if err != nil {
		return err
	}
	if err := repo.keepAside(ctx, k, start, old); err != nil {
		return err
	}
	k.Base = base
	if err := repo.saveBase(k.TaskID, base); err != nil {
		return err
	}
	w.step("based")
	_, err = repo.output(ctx, "worktree", "add", "--quiet", "--no-track", "-B", k.Branch, k.Path, start)
	return err
}

// keepAside keeps what a branch has and its next commit has not, under a name of its own.
func (r Repository) keepAside(ctx context.Context, k *Locked, next, old string) error {
	if old == "" || r.contains(ctx, next, old) {
		return nil
	}
	aside := k.Branch + "." + old[:12]
	if err := r.removeBranchLock(aside); err != nil {
		return err
	}
	_, err := r.output(ctx, "update-ref", "refs/heads/"+aside, old)
	return err
}

// startCommit is the commit at which the first run of a task begins and against which its changes
// are shown. A fix task, or a repeated one, continues where the other task stopped.
func (w *Store) startCommit(ctx context.Context, lease picket.Lease) (start, base string, err error) {
	repo := w.repository()
	from := lease.Task.Fixes
	if from == nil && w.Resume != ResumeFresh {
		from = lease.Task.Retries
	}
	if from != nil && picket.CheckID("task", "task", *from) == nil {
		tip := repo.resolveCommit(ctx, "refs/heads/"+picket.WorkBranch(*from))
		if tip == "" {
			tip = w.bringBranch(ctx, repo, lease, *from)
		}
		if tip != "" {
			return tip, repo.baseOf(ctx, *from, tip), nil
		}
	}
	head, err := repo.head(ctx)
	return head, head, err
}

// baseOf is the commit that the branch of a task began at.
func (r Repository) baseOf(ctx context.Context, taskID, tip string) string {
	if noted := r.savedBase(taskID); noted != "" {
		if base := r.resolveCommit(ctx, noted); base != "" {
			return base
		}
	}
	if head, err := r.head(ctx); err == nil {
		if base, err := r.output(ctx, "merge-base", head, tip); err == nil {
			return base
		}
	}
	return tip
}

// contains reports whether commit is part of the history of another.
func (g git) contains(ctx context.Context, of, commit string) bool {
	_, err := g.output(ctx, "merge-base", "--is-ancestor", commit, of)
	return err == nil
}

// git is for the commands in a worktree.
func (w *Store) git(k *Locked) git {
	return git{
		common:         k.Common,
		admin:          k.Admin,
		tree:           k.Path,
		dir:            k.dir,
		lock:           k.lock,
		GitContainment: w.Git,
	}
}

// repository is the one that worktrees are made of.
func (w *Store) repository() Repository {
	r := w.Repo
	r.GitContainment = w.Git
	return r
}

// Repair makes a worktree usable again after its adapter or a git command was killed, and
// commits what the run before has left. The error is ErrNotUsable if that is impossible,
// for example because git does not know the worktree any more.
func (w *Store) Repair(ctx context.Context, k *Locked) error {
	if info, err := os.Stat(k.Admin); k.Admin == "" || err != nil || !info.IsDir() {
		return fmt.Errorf("%w: git does not know it any more", ErrNotUsable)
	}
	if err := errors.Join(k.verify(), k.checkRetired()); err != nil {
		return err
	}
	g := w.git(k)
	// Nobody else works here: k is locked and its processes are dead.
	stale := []error{k.relink(), g.removeAdminFile("index.lock"), g.removeAdminFile("HEAD.lock"),
		g.removeBranchLock(k.Branch)}
	if err := errors.Join(stale...); err != nil {
		return err
	}
	top, err := k.OpenRoot()
	if err != nil {
		return err
	}
	defer top.Close()
	if _, err := top.Lstat(".git"); errors.Is(err, fs.ErrNotExist) {
		if err := top.WriteFile(".git", []byte("gitdir: "+k.Admin+"\n"), 0o644); err != nil {
			return err
		}
	}
	if g.resolveCommit(ctx, "HEAD") == "" {
		return fmt.Errorf("%w: its HEAD cannot be read", ErrNotUsable)
	}
	if k.Stage == StageSettled {
		if at, _ := g.output(ctx, "symbolic-ref", "--quiet", "HEAD"); at != "refs/heads/"+k.Branch {
			return fmt.Errorf("%w: its branch has gone on elsewhere", ErrNotUsable)
		}
		return nil
	}
	if _, err := w.Commit(ctx, k, k.CommitMessage("What a run left whose adapter died")); err != nil {
		return err
	}
	k.Stage = StageSettled
	return k.Save()
}

// retire frees the branch for another worktree. What is in the directory is
// committed first, and stays there, too.
func (w *Store) retire(ctx context.Context, k *Locked) error {
	err := w.Repair(ctx, k)
	if errors.Is(err, ErrNotUsable) {
		return nil
	}
	if err == nil {
		_, err = w.git(k).output(ctx, "update-ref", "--no-deref", "HEAD", "HEAD^{commit}")
	}
	if err == nil {
		k.Stage = StageSettled
		err = k.Save()
	}
	if err != nil {
		return fmt.Errorf("put the workspace of the run before away: %w", err)
	}
	w.step("retired")
	return nil
}

// removeWorktree takes a worktree whose directory is gone out of the repository;
// its branch stays.
func (w *Store) removeWorktree(ctx context.Context, k *Locked) error {
	g := git{common: k.Common, GitContainment: w.Git}
	if _, err := os.Stat(k.Common); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := g.lockShared(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	return g.removeAdmin(k)
}

// retiredFile in git's part of a worktree says that another adapter has gone
// on with its branch.
const retiredFile = "picket-retired"

// freeBranch takes a branch of the task from a worktree that this adapter cannot use, such as that
// of a frozen adapter or of one with another state directory. The run there is over, because this
// adapter has the lease. What is in it is committed and stays.
func (w *Store) freeBranch(ctx context.Context, repo Repository, k *Locked) error {
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
func (w *Store) foreignWorktree(repo Repository, k *Locked, tree gitWorktree) *Locked {
	id := filepath.Base(tree.path)
	other := &Locked{lock: repo.lock, root: filepath.Dir(tree.path), KeptWorkspace: KeptWorkspace{
		Name: id, RunID: id, TaskID: k.TaskID, Title: k.Title, Path: tree.path,
		Common: repo.common, Admin: filepath.Join(repo.common, "worktrees", tree.name), Branch: k.Branch,
	}}
	if known, err := readWorkspaceRecord(w.StateDir, id); err == nil && known.Path == tree.path {
		other.Identity = known.Identity
	}
	return other
}

// retireForeign commits what is in a worktree and takes the branch from it. A
// directory that is not the worktree, for a reason known already or found here,
// is left alone: only git's part of the worktree changes.
func (w *Store) retireForeign(ctx context.Context, repo Repository, other *Locked,
	strange error) error {
	if strange == nil {
		admin, err := repo.adminOf(other)
		if strange = err; err == nil && admin != other.Admin {
			strange = fmt.Errorf("two parts of the repository name the directory %q", other.Path)
		}
	}
	if strange == nil {
		_, strange = w.Commit(ctx, other, other.CommitMessage("What a run left to another adapter"))
	}
	if strange != nil {
		w.Log.Warn("what another adapter has left is not committed; it is in its workspace", "workspace",
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
	g := git{common: repo.common, admin: other.Admin, lock: repo.lock, GitContainment: w.Git}
	_, err = g.output(ctx, "update-ref", "--no-deref", "HEAD", "HEAD^{commit}")
	return err
}

// branchInUse refuses to take a branch from a directory that is not a workspace. An agent may have
// written its path, so no suggested command names it.
func branchInUse(branch, dir string) error {
	where := "another directory, whose name cannot be shown"
	if text.Printable(dir) == dir && !strings.ContainsAny(dir, "\n\t") {
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
func (k *Locked) checkRetired() error {
	if _, err := os.Lstat(filepath.Join(k.Admin, retiredFile)); err == nil {
		return fmt.Errorf("%w: another adapter has gone on with its branch", ErrNotUsable)
	}
	return nil
}
