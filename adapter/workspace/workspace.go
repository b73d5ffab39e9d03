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
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
)

// Kind is a way to give an agent a directory.
type Kind string

const (
	// Empty is a new directory of mode 0700.
	Empty Kind = "empty"
	// Here is Store.Dir itself. All runs share it, and nothing is deleted or committed.
	Here Kind = "here"
	// Copy is a copy of Store.Dir: at most 200,000 files, of 4 GiB together. Links stay
	// links. What is neither a file, a directory nor a link is left out.
	Copy Kind = "copy"
	// Worktree is a git worktree at HEAD of the repository that Store.Dir is in, on the
	// branch picket/{task}. What a run leaves is committed there and handed in as
	// evidence.
	Worktree Kind = "worktree"
)

// Resume says what the next run of a task does with the task's directory. If the directory is not
// on this machine, the run gets a new one, and TaskWorkspace.Note says why.
type Resume string

const (
	ResumeReuse Resume = "reuse" // the next run goes on in it
	ResumeCopy  Resume = "copy"  // the next run gets a copy of it
	ResumeFresh Resume = "fresh" // the next run begins as the first did
)

// TaskWorkspace tells an agent about the directory that it works in. It is the member
// "workspace" of the task file.
type TaskWorkspace struct {
	Source Kind `json:"source"`
	// Path is where the agent starts, an absolute path.
	Path string `json:"path"`
	// Branch is the branch of a Worktree, such as "picket/task_…". Empty for other kinds.
	Branch string `json:"branch,omitempty"`
	// Base is the id of the commit at which the branch began. Empty for other kinds.
	Base string `json:"base,omitempty"`
	// Resumed is what a later run of a task begins with: "reuse" or "copy" of the
	// directory of the run before, its "branch", or "fresh". Empty in a first run.
	Resumed string `json:"resumed"`
	// Note says why Resumed is not what Store.Resume asks for. Empty if it is.
	Note string `json:"note,omitempty"`
}

const resumedBranch = "branch" // a new directory, with all that was committed

// AgentFilesDir is the directory in a workspace for the files that the agent reads, such
// as task.json. It is written again when a run begins, and git does not see it.
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

// Store makes the workspaces of runs, commits what is in them, and deletes them. It has
// no defaults. Several adapters may use stores with the same directories at once: each
// workspace is locked while one of them works with it.
type Store struct {
	// StateDir holds the records of workspaces, an absolute path.
	StateDir string
	// Root holds the workspaces, an absolute path without links. See RealPath.
	Root string
	// Dir is the user's directory: the workspace Here, and what a Copy or a Worktree is
	// made of.
	Dir string
	// Kind is the kind of new workspaces.
	Kind Kind
	// Resume is what happens to the workspace of the last run.
	Resume Resume
	// Repo is the repository that Dir is in. It is needed for a Worktree only.
	Repo Repository
	// Git contains the git commands.
	Git GitContainment
	// Log gets warnings.
	Log *slog.Logger
	// Sources bring the branch of a task to this machine if the repository does not have it. They are
	// asked in this order. Only a Worktree needs them.
	Sources []BranchSource
	// OnStep is told the name of every step, for tests that stop there. It may be nil.
	OnStep func(point string)

	previousLocked bool   // the run before still holds its workspace
	notBrought     string // why no source had the branch
	newer          string // what a later run has added to the branch on another machine
}

// BranchSource brings the branch of a task from elsewhere.
type BranchSource struct {
	// Name is what people call it, such as "workspace.remote".
	Name string
	// Fetch puts the branch of a task into the bare repository, for the run of a lease. The task is
	// that of the lease, or one that it fixes or repeats. The error says why there is none.
	Fetch func(ctx context.Context, into *BareRepository, repo Repository, lease picket.Lease, taskID string) error
}

// step names a step, for tests that stop there.
func (w *Store) step(point string) {
	if w.OnStep != nil {
		w.OnStep(point)
	}
}

// Open gives the run of a lease its directory, and describes it for the agent. The
// directory stays locked until Locked.Unlock; it is nil for Here. Ids in the lease must
// have been checked. Open waits up to 5 s for the directory of the run before, while
// another process has it. An error means that the run has no directory.
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
	w.newer = w.newerElsewhere(ctx, before, lease)
	switch {
	case before != nil && w.newer == "" && (w.Resume == ResumeReuse || before.RunID == lease.RunID):
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
	if w.notBrought != "" {
		told.Note = strings.TrimPrefix(told.Note+"; "+w.notBrought, "; ")
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

// ErrNotUsable reports that a run cannot go on in a kept directory, which stays as it is.
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

// Delete deletes a workspace and its record. Links in the workspace are deleted, but not
// what they lead to. The error is ErrNotUsable if another directory stands in its place;
// then nothing is deleted. k must still be unlocked.
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

// BranchTip returns the commit of a workspace's branch, and "" if there is none.
func (w *Store) BranchTip(ctx context.Context, k *Locked) string {
	return w.git(k).resolveCommit(ctx, "refs/heads/"+k.Branch)
}
