package workspace

import (
	"context"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// bringTimeout bounds how long the start of a run waits for the sources of a branch.
const bringTimeout = 3 * time.Minute

// bringBranch makes the branch of a task that was on another machine. Nothing that goes wrong ends
// the run: it begins without the branch, and its agent is told why.
func (w *Store) bringBranch(ctx context.Context, repo Repository, lease picket.Lease, taskID string) (tip string) {
	if len(w.Sources) == 0 {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, bringTimeout)
	defer cancel()
	var why []string
	for _, source := range w.Sources {
		tip, err := w.bringFrom(ctx, source, repo, lease, taskID)
		if err == nil {
			w.Log.Info("the branch of the task was brought to this machine", "task", taskID, "from", source.Name,
				"commit", tip)
			w.notBrought = ""
			return tip
		}
		said := text.Head(text.Printable(err.Error()), 512)
		w.Log.Warn("the branch of the task cannot be brought to this machine", "task", taskID, "from", source.Name,
			"err", said)
		why = append(why, source.Name+": "+said)
	}
	w.notBrought = "its branch is not here either (" + strings.Join(why, "; ") + ")"
	return ""
}

func (w *Store) bringFrom(ctx context.Context, source BranchSource, repo Repository, lease picket.Lease,
	taskID string) (tip string, err error) {
	bare, err := w.OpenBare(ctx)
	if err != nil {
		return "", err
	}
	defer bare.Close()
	if err := source.Fetch(ctx, bare, repo, lease, taskID); err != nil {
		return "", err
	}
	w.step("fetched")
	return bare.Bring(ctx, repo, taskID)
}

// newerElsewhere returns the commit of a branch to which another machine has added something since
// this one worked on it. The commit is in the repository then. It returns "" if there is
// none, or if no source can tell: then the run goes on with what is here.
func (w *Store) newerElsewhere(ctx context.Context, before *Locked, lease picket.Lease) string {
	if w.Kind != Worktree || w.Resume == ResumeFresh || lease.Attempt < 2 || len(w.Sources) == 0 ||
		before != nil && before.Attempt >= lease.Attempt-1 {
		return ""
	}
	repo := w.repository()
	here := repo.resolveCommit(ctx, workRef(lease.TaskID))
	if here == "" {
		return "" // see bringBranch
	}
	lock, err := repo.lockShared(ctx)
	if err != nil {
		return ""
	}
	defer lock.Close()
	repo.lock = lock
	ctx, cancel := context.WithTimeout(ctx, bringTimeout)
	defer cancel()
	for _, source := range w.Sources {
		tip, err := w.fetchFrom(ctx, source, repo, lease)
		if err != nil {
			w.Log.Warn("nobody knows whether another machine has gone on with the branch", "task", lease.TaskID, "from",
				source.Name, "err", text.Head(text.Printable(err.Error()), 512))
			continue
		}
		if repo.contains(ctx, here, tip) {
			return ""
		}
		return tip
	}
	return ""
}

// fetchFrom brings the commits of a task's branch into the repository, and no branch.
func (w *Store) fetchFrom(ctx context.Context, source BranchSource, repo Repository,
	lease picket.Lease) (string, error) {
	bare, err := w.OpenBare(ctx)
	if err != nil {
		return "", err
	}
	defer bare.Close()
	if err := source.Fetch(ctx, bare, repo, lease, lease.TaskID); err != nil {
		return "", err
	}
	tip := bare.Tip(ctx, lease.TaskID)
	if tip == "" {
		return "", ErrNoWork
	}
	if repo.resolveCommit(ctx, tip) == tip {
		return tip, nil
	}
	return tip, bare.copyTo(ctx, repo, lease.TaskID)
}

// moveBranch lets the branch of a task go on with the work of another machine.
func (r Repository) moveBranch(ctx context.Context, k *Locked, old, newer string) (string, error) {
	if err := r.keepAside(ctx, k, newer, old); err != nil {
		return "", err
	}
	_, err := r.output(ctx, "update-ref", "--no-deref", "-m", "picket: "+k.RunID, "refs/heads/"+k.Branch, newer,
		old)
	return newer, err
}
