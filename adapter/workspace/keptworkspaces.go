package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
)

// CollectResult is what became of one kept workspace in a collection.
type CollectResult struct {
	KeptWorkspace
	// Deleted reports that it was deleted or, in a dry run, that it is due.
	Deleted bool
	// Reason says why it was kept or deleted, for people.
	Reason string
	// Err is why a workspace that is due could not be deleted. Nil otherwise.
	Err error
}

// KeptWorkspaces are the workspaces that the adapters of this machine keep in one state
// directory. The zero value is those of adapters with default settings.
type KeptWorkspaces struct {
	// StateDir is the state directory of the adapters. Defaults to DefaultStateDir.
	StateDir string
	// WorkspaceRoot is the directory of their workspaces. Defaults to "workspaces" in
	// StateDir.
	WorkspaceRoot string
	// Keep is how long a workspace is kept at least after the end of its run.
	// Defaults to 0.
	Keep time.Duration
	// RunsOfTask returns the runs of a task and the server's time. Defaults to none: then
	// every workspace stays until the time that is noted already.
	RunsOfTask func(ctx context.Context, taskID string) ([]picket.Run, time.Time, error)
}

// dirs answers where records and workspaces are.
func (s KeptWorkspaces) dirs() (stateDir, root string, err error) {
	if stateDir = s.StateDir; stateDir == "" {
		if stateDir, err = DefaultStateDir(); err != nil {
			return "", "", err
		}
	}
	if stateDir, err = filepath.Abs(stateDir); err == nil {
		root, err = filepath.Abs(cmp.Or(s.WorkspaceRoot, filepath.Join(stateDir, "workspaces")))
	}
	if err == nil {
		root, err = RealPath(root)
	}
	return stateDir, root, err
}

// List returns all workspaces, oldest first, with what the server says of them now. A
// workspace that another process works with has InUse set and is shown as it was noted.
func (s KeptWorkspaces) List(ctx context.Context) ([]KeptWorkspace, error) {
	dir, root, err := s.dirs()
	if err != nil {
		return nil, err
	}
	all, err := List(dir)
	for i := range all {
		k, err := Lock(ctx, all[i], dir, root, 0)
		all[i].InUse = errors.Is(err, files.ErrLocked)
		if err != nil {
			continue
		}
		_ = s.updateRetention(ctx, k) // what is not known now is shown as it was said last
		all[i] = k.KeptWorkspace
		k.Unlock()
	}
	return all, err
}

// Pin keeps the workspace of a name until it is unpinned, no matter how its task ends.
// An unknown name is an error that is [fs.ErrNotExist].
func (s KeptWorkspaces) Pin(name string, pinned bool) error {
	dir, _, err := s.dirs()
	if err != nil {
		return err
	}
	if _, err := readWorkspaceRecord(dir, name); err != nil {
		return err
	}
	file := filepath.Join(recordsDir(dir), name, pinFile)
	if pinned {
		return os.WriteFile(file, nil, 0o600)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Collect deletes the workspaces that are due and returns what became of each. A dry run
// deletes nothing. Work in a worktree that is not on its branch yet is committed first;
// if that fails, the workspace stays. The error reports that the records could not be
// listed.
func (s KeptWorkspaces) Collect(ctx context.Context, dry bool) ([]CollectResult, error) {
	dir, root, err := s.dirs()
	if err != nil {
		return nil, err
	}
	if !dry {
		deleteUnwrittenRecords(dir, time.Now())
	}
	all, err := List(dir)
	var out []CollectResult
	for _, w := range all {
		if ctx.Err() != nil {
			break
		}
		out = append(out, s.collect(ctx, dir, root, w, dry))
	}
	return out, err
}

func (s KeptWorkspaces) collect(ctx context.Context, dir, root string, w KeptWorkspace, dry bool) CollectResult {
	k, err := Lock(ctx, w, dir, root, 0)
	switch {
	case errors.Is(err, files.ErrLocked):
		w.InUse = true
		return CollectResult{KeptWorkspace: w, Reason: "in use"}
	case err != nil:
		return CollectResult{KeptWorkspace: w, Reason: "its record cannot be read"}
	}
	defer k.Unlock()
	heard := s.updateRetention(ctx, k)
	shop := &Store{StateDir: dir, Root: root, Log: slog.New(slog.DiscardHandler)}
	if !k.EndedAt.IsZero() && !dry {
		// Its adapter died before it could commit; a reviewer waits for the branch.
		_ = shop.commitUnfinished(ctx, k)
	}
	got := CollectResult{KeptWorkspace: k.KeptWorkspace}
	if got.Reason = s.keepReason(k, heard); got.Reason != "" {
		return got
	}
	got.Reason = "it is due"
	if dry {
		got.Deleted = true
		return got
	}
	if got.Err = shop.commitUnfinished(ctx, k); got.Err != nil {
		return got
	}
	if got.Pinned = isPinned(k.recordDir); got.Pinned { // while the server was asked
		got.Reason = "pinned"
		return got
	}
	got.Err = shop.Delete(ctx, k)
	got.Deleted = got.Err == nil
	return got
}

// errUnknownRun says that nothing is known of a workspace beyond its record.
var errUnknownRun = errors.New("the server does not know the run")

// updateRetention asks the server until when the workspace is kept, and notes the answer.
func (s KeptWorkspaces) updateRetention(ctx context.Context, k *Locked) error {
	if s.RunsOfTask == nil || k.Stage == stageMaking {
		return errUnknownRun
	}
	runs, now, err := s.RunsOfTask(ctx, k.TaskID)
	if err != nil {
		return err
	}
	for _, r := range runs {
		if r.RunID != k.RunID {
			continue
		}
		if k.EndedAt == 0 && r.State != picket.RunRunning {
			k.EndedAt = r.EndedAt
		}
		k.KeepUntil = r.KeepUntil
		if err := k.Save(); err != nil {
			return err
		}
		if !r.KeepUntil.IsZero() && now.Before(r.KeepUntil.Time()) {
			return errNotYet
		}
		return nil
	}
	return errUnknownRun
}

// errNotYet says that by the server's clock a workspace is not due.
var errNotYet = errors.New("not yet")

// keepReason says why a workspace is not deleted; empty when it is due. By both
// clocks, that of the server and ours, it must be.
func (s KeptWorkspaces) keepReason(k *Locked, heard error) string {
	now := time.Now()
	switch {
	case k.Stage == stageMaking:
		return "" // its adapter died before the agent saw it
	case k.Pinned:
		return "pinned"
	case k.KeepUntil.IsZero() && heard != nil:
		return "the server did not say until when it is kept"
	case k.KeepUntil.IsZero():
		return "its task is not decided"
	case errors.Is(heard, errNotYet) || now.Before(k.KeepUntil.Time()):
		return "it is kept until " + k.KeepUntil.String()
	case s.Keep > 0 && now.Before(k.EndedAt.Time().Add(s.Keep)):
		return "it is kept until " + picket.InstantOf(k.EndedAt.Time().Add(s.Keep)).String()
	}
	return ""
}

// commitUnfinished brings what is in a worktree onto its branch before it is deleted.
func (w *Store) commitUnfinished(ctx context.Context, k *Locked) error {
	if k.Source != Worktree || k.Stage != StageReady {
		return nil
	}
	if err := k.openDir(); errors.Is(err, fs.ErrNotExist) {
		return nil // there is nothing left to bring there
	}
	if _, err := os.Stat(k.Common); errors.Is(err, fs.ErrNotExist) {
		// It may be on a disk that is not mounted now.
		return fmt.Errorf("its work is not on its branch yet, and the repository %s is not there: bring that back, or delete %s", k.Repository, k.Path)
	}
	if err := w.Repair(ctx, k); err != nil && !errors.Is(err, ErrNotUsable) {
		return err
	}
	return nil
}

// DefaultStateDir returns the state directory of adapters without a setting:
// picket/adapter in $XDG_STATE_HOME, which itself defaults to ~/.local/state.
func DefaultStateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "picket", "adapter"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", picket.Invalid("StateDir", "Set the variable HOME or XDG_STATE_HOME, or StateDir.",
			"there is no place for the state of runs: %v", err)
	}
	return filepath.Join(home, ".local", "state", "picket", "adapter"), nil
}
