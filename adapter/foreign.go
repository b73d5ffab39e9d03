package adapter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/picket-dev/picket"
)

// retiredFile in git's part of a worktree says that another adapter has gone
// on with its branch.
const retiredFile = "picket-retired"

// freeBranch takes a branch of ours from a worktree that this adapter cannot
// have, such as one of a frozen adapter, or of one with another state
// directory: its run is over, for we have the lease. What is in it is committed and stays.
func (w *workspaces) freeBranch(ctx context.Context, repo repository, k *kept) error {
	listed, err := repo.say(ctx, "worktree", "list", "--porcelain")
	if err != nil {
		return err
	}
	for block := range strings.SplitSeq(listed, "\n\n") {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		path, ours := strings.CutPrefix(lines[0], "worktree ")
		if !ours || !strings.Contains("\n"+block+"\n", "\nbranch refs/heads/"+k.Branch+"\n") {
			continue
		}
		if picket.CheckID("run", "run", filepath.Base(path)) != nil {
			return picket.Refuse(picket.CodeStateConflict, "Switch to another branch there: git -C "+path+" switch -", "the branch %s is checked out in %s", k.Branch, path)
		}
		_, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) || strings.Contains(block, "\nlocked initializing") {
			_, err = repo.say(ctx, "worktree", "remove", "--force", "--force", path) // never used, or gone
		} else {
			err = w.retireForeign(ctx, repo, k, path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *workspaces) retireForeign(ctx context.Context, repo repository, k *kept, path string) error {
	if err := w.checkForeign(path); err != nil {
		return err
	}
	admin, err := repo.adminOf(ctx, path)
	if err != nil {
		return errors.Join(err, picket.Refuse(picket.CodeStateConflict, "Remove it: git worktree remove "+path, "the branch %s is checked out in %s, which cannot be read", k.Branch, path))
	}
	other := &kept{lock: repo.lock, KeptWorkspace: KeptWorkspace{TaskID: k.TaskID, RunID: filepath.Base(path), Title: k.Title,
		Path: path, Common: repo.common, Admin: admin, Branch: k.Branch}}
	if _, err := w.commit(ctx, other, other.message("What a run left to another adapter")); err != nil {
		w.cfg.Log.Warn("what another adapter has left is not committed; it is in its workspace", "workspace", path, "err", err)
	}
	if err := os.WriteFile(filepath.Join(admin, retiredFile), nil, 0o600); err != nil {
		return err
	}
	_, err = w.git(other).say(ctx, "update-ref", "--no-deref", "HEAD", "HEAD^{commit}")
	return err
}

// retired refuses to go on with a branch that was taken from a worktree: an
// adapter that was frozen must not write over the work of the next run.
func (k *kept) retired() error {
	if _, err := os.Lstat(filepath.Join(k.Admin, retiredFile)); err == nil {
		return fmt.Errorf("%w: another adapter has gone on with its branch", errNotUsable)
	}
	return nil
}
