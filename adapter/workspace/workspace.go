package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
)

const (
	Empty Kind = "empty" // a new directory of mode 0700 for every run
	// Config.Dir itself, shared by all runs	// WorkspaceCopy is a copy of Config.Dir, at most 200,000 files of 4 GiB
	Here Kind = "here"
	// together; links stay links, and what is neither file, directory nor link
	// is left out.
	Copy Kind = "copy"
	// WorkspaceWorktree is a git worktree at HEAD of the repository that
	// Config.Dir is in, on the branch picket/{task}. What a run leaves is
	// committed there and handed in as evidence.
	Worktree Kind = "worktree"
)

// Resume is what becomes of a task's directory in its next run. It needs the
// directory to be on this machine; where it is not, the run begins afresh and
// its task file reports it.
type Resume string

const (
	ResumeReuse Resume = "reuse" // the next run goes on in it
	ResumeCopy  Resume = "copy"  // the next run gets a copy of it
	ResumeFresh Resume = "fresh" // the next run begins as the first did
)

// TaskWorkspace tells an agent about the directory it works in.
type TaskWorkspace struct {
	Source Kind   `json:"source"`
	Path   string `json:"path"`
	Branch string `json:"branch,omitempty"`
	Base   string `json:"base,omitempty"`
	// Resumed says what a later run of a task begins with: reuse or copy of the
	// directory of the run before, its branch, or fresh. Empty in a first run.
	Resumed string `json:"resumed"`
	Note    string `json:"note,omitempty"` // why it is not as the policy has it
}

const resumedBranch = "branch" // a new directory, with all that was committed

// AgentFilesDir is the directory in every workspace for what the agent needs to
// know. It is written again when a run begins.
const AgentFilesDir = ".picket"

// lockTimeout is how long a run waits for a directory that the run before it has
// not let go of yet. An adapter that is frozen never lets go.
const lockTimeout = 5 * time.Second

// previousLockTimeout is how long a run waits for it. Of a run that was never reported
// ended, the adapter is frozen or cut off: nobody knows when it lets go.
func previousLockTimeout(lease picket.Lease) time.Duration {
	if exit := lease.PreviousExit; exit != nil && exit.Class == picket.ExitLeaseExpired {
		return time.Second
	}
	return lockTimeout
}

// Store makes the workspaces of runs, commits what is in them, and
// deletes them.
type Store struct {
	StateDir string         // holds the records
	Root     string         // holds the workspaces, with all links resolved
	Dir      string         // the user's directory, as in the adapter's Config
	Kind     Kind           // of new workspaces
	Resume   Resume         // what becomes of the workspace of the run before
	Repo     Repository     // that Dir is in; of WorkspaceWorktree
	Git      GitContainment // of git commands
	Log      *slog.Logger
	OnStep   func(point string) // told of every step, for tests; may be nil

	previousLocked bool // the run before still holds its workspace
}

// step names a step, for tests that stop there.
func (w *Store) step(point string) {
	if w.OnStep != nil {
		w.OnStep(point)
	}
}

// Open gives a run its directory; nil when it is Config.Dir itself.
func (w *Store) Open(ctx context.Context, lease picket.Lease) (*Locked, TaskWorkspace, error) {
	told := TaskWorkspace{Source: w.Kind, Path: w.Dir}
	if w.Kind == Here {
		return nil, told, nil
	}
	before, err := w.findPrevious(ctx, lease)
	if err != nil {
		return nil, told, err
	}
	var k *Locked
	switch {
	case before != nil && (w.Resume == ResumeReuse || before.RunID == lease.RunID):
		k, err = before, w.reuse(ctx, before, lease)
		told.Resumed = string(ResumeReuse)
		if err == nil || !errors.Is(err, ErrNotUsable) {
			break
		}
		told.Note = err.Error()
		fallthrough
	default:
		k, told.Resumed, err = w.createNew(ctx, lease, before)
	}
	if err != nil {
		if k != nil {
			k.Unlock()
		}
		return nil, told, err
	}
	if told.Note == "" && w.Resume != ResumeFresh && before == nil && lease.Attempt > 1 {
		told.Note = "the directory of the run before is not on this machine"
		if w.previousLocked {
			told.Note = "the directory of the run before is still held by its adapter, which may be frozen"
		}
	}
	told.Path, told.Branch, told.Base = w.startDir(k), k.Branch, k.Base
	w.step("opened")
	return k, told, nil
}

// startDir is where the agent starts: in a worktree of a part of a repository, at
// the same part.
func (w *Store) startDir(k *Locked) string {
	if k.Source != Worktree {
		return k.Path
	}
	return filepath.Join(k.Path, filepath.FromSlash(w.Repo.prefix))
}

// findPrevious finds the directory of the run before, in our hands; nil when there is
// none. Those that were never finished are deleted on the way.
func (w *Store) findPrevious(ctx context.Context, lease picket.Lease) (last *Locked, err error) {
	all, err := List(w.StateDir)
	if err != nil {
		return nil, fmt.Errorf("look for earlier workspaces: %w", err)
	}
	slices.SortStableFunc(all, func(a, b KeptWorkspace) int { return cmp.Compare(b.Attempt, a.Attempt) })
	for _, one := range all {
		if one.TaskID != lease.TaskID {
			continue
		}
		if one.Stage == stageMaking {
			if err := w.deleteUnfinished(ctx, one); err != nil {
				w.Log.Warn("a workspace that was never finished cannot be deleted", "workspace", one.Path, "err",
					err)
			}
			continue
		}
		if last != nil || one.Source != w.Kind || one.Common != w.Repo.common {
			continue
		}
		k, err := Lock(ctx, one, w.StateDir, w.Root, previousLockTimeout(lease))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if errors.Is(err, files.ErrLocked) {
			w.Log.Warn("the directory of the run before is still in use; it is left alone", "task", lease.TaskID,
				"workspace", one.Path)
			w.previousLocked = true
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("take over the workspace of the run before: %w", err)
		}
		if err := k.verify(); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				w.Log.Warn("a workspace is left alone", "task", lease.TaskID, "workspace", k.Name, "err", err)
			}
			k.Unlock()
			continue
		}
		w.step("found")
		last = k
	}
	return last, nil
}

// deleteUnfinished deletes a workspace that no agent has seen.
func (w *Store) deleteUnfinished(ctx context.Context, one KeptWorkspace) error {
	k, err := Lock(ctx, one, w.StateDir, w.Root, lockTimeout)
	if err != nil {
		return err
	}
	defer k.Unlock()
	if k.Stage != stageMaking {
		return nil
	}
	return w.Delete(ctx, k)
}

// ErrNotUsable says that a kept directory cannot be gone on in; it stays.
var ErrNotUsable = errors.New("the directory of the run before cannot be used")

// reuse hands a directory on to the next run of its task.
func (w *Store) reuse(ctx context.Context, k *Locked, lease picket.Lease) error {
	if k.Source == Worktree {
		err := w.Repair(ctx, k)
		switch {
		case errors.Is(err, ErrNotUsable):
			return err
		case err != nil: // it is all in the directory, and the run goes on there
			w.Log.Warn("what the run before has left is not committed", "task", k.TaskID, "run", k.RunID, "err",
				err)
		}
	}
	if k.RunID != lease.RunID {
		k.RunID, k.Runs, k.Attempt = lease.RunID, append(k.Runs, lease.RunID), lease.Attempt
	}
	k.Stage, k.EndedAt, k.KeepUntil = StageReady, 0, 0
	return k.Save()
}

// createNew makes a new directory; before is that of the run before, or nil, and is
// let go of.
func (w *Store) createNew(ctx context.Context, lease picket.Lease,
	before *Locked) (k *Locked, resumed string, err error) {
	if before != nil {
		defer before.Unlock()
		if before.Source == Worktree {
			if err := w.retire(ctx, before); err != nil {
				return nil, "", err
			}
		}
	}
	if k, err = createWorkspaceRecord(ctx, w.StateDir, w.Root, lease, w.Kind); err != nil {
		return nil, "", fmt.Errorf("make workspace: %w", err)
	}
	w.step("recorded")
	if err = k.createDir(); err != nil {
		return k, "", fmt.Errorf("make workspace: %w", err)
	}
	w.step("made")
	if lease.Attempt > 1 || lease.Task.Fixes != nil || lease.Task.Retries != nil {
		resumed = string(ResumeFresh)
	}
	var begun bool
	switch w.Kind {
	case Worktree:
		begun, err = w.addWorktree(ctx, k, lease)
	case Copy:
		if before == nil || w.Resume == ResumeFresh {
			err = w.copyDir(ctx, k)
		}
	}
	if err != nil {
		return k, "", err
	}
	if begun {
		resumed = resumedBranch
	}
	if before != nil && w.Resume == ResumeCopy {
		if err = copyMissingFiles(ctx, before, k); err != nil {
			return k, "", err
		}
		resumed = string(ResumeCopy)
	}
	w.step("filled")
	k.Stage = StageReady
	return k, resumed, k.Save()
}

// Delete deletes a directory and its record. Only its own tree is deleted:
// links in it are deleted as links.
func (w *Store) Delete(ctx context.Context, k *Locked) error {
	if err := k.removeDir(); err != nil {
		return err
	}
	w.step("deleted")
	if k.Common != "" {
		if err := w.removeWorktree(ctx, k); err != nil {
			return err
		}
	}
	return k.deleteRecord()
}

// Workspace is a way to give an agent a directory.
type Kind string

// BranchTip returns the commit of a workspace's branch, and "" if there is none.
func (w *Store) BranchTip(ctx context.Context, k *Locked) string {
	return w.git(k).resolveCommit(ctx, "refs/heads/"+k.Branch)
}
