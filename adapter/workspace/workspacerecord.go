package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
)

// KeptWorkspace is the record of a directory that runs of one task have worked in and
// that outlives them.
type KeptWorkspace struct {
	// Name is the id of the first run.
	Name string `json:"name"`
	// Path is the directory, an absolute path that ends with Name.
	Path   string `json:"path"`
	Source Kind   `json:"source"`
	TaskID string `json:"taskId"`
	// RunID is the run that has the directory now, or had it last.
	RunID string `json:"runId"`
	// Runs are all runs that had it, oldest first.
	Runs []string `json:"runs"`
	// Attempt is the number of the run RunID. It orders the workspaces of a task.
	Attempt int `json:"attempt"`
	// Title is the title of the task, untrusted text.
	Title string `json:"title"`
	// Stage is StageReady or StageSettled, or "making" before the first use.
	Stage     string         `json:"stage"`
	CreatedAt picket.Instant `json:"createdAt"`
	// EndedAt is the end of the last run. It is zero while that has not ended here.
	EndedAt picket.Instant `json:"endedAt"`
	// KeepUntil is what the server said last. It is zero while the task is not decided.
	KeepUntil picket.Instant `json:"keepUntil"`
	Pinned    bool           `json:"pinned"`
	// InUse reports that a process has it now.
	InUse bool `json:"inUse"`

	// Repository is the checkout that a worktree was made from. It is empty for other
	// kinds, as are the members below.
	Repository string `json:"repository,omitempty"`
	// Common is the git directory that all worktrees of the repository share, and Admin
	// is the part of this worktree in it.
	Common string `json:"common,omitempty"`
	Admin  string `json:"admin,omitempty"`
	// Branch is the branch of the task, and Base is the id of the commit at which it began.
	Branch string `json:"branch,omitempty"`
	Base   string `json:"base,omitempty"`

	// Identity identifies the directory that the adapter made at Path.
	Identity *dirIdentity `json:"identity,omitempty"`
}

const (
	stageMaking = "making"
	// StageReady is the stage of a workspace that a run may use.
	StageReady = "ready"
	// StageSettled is that of a workspace whose last run has ended and whose work is on
	// its branch.
	StageSettled = "settled"

	recordFile = "workspace.json"
	pinFile    = "pinned"
)

// Locked is a workspace that this process has locked. Its methods are not safe for
// concurrent use. Changes of the record take effect with Save.
type Locked struct {
	KeptWorkspace
	recordDir   string // the directory that holds its record
	root        string // the directory that workspaces are in, without links
	lock        *os.File
	dir         *os.File // the workspace itself; nil until hold
	uncommitted string   // why git could not take everything at the last commit
}

// recordsDir is the directory with one directory for each kept workspace.
func recordsDir(stateDir string) string { return filepath.Join(stateDir, "kept") }

// createWorkspaceRecord begins the record of a workspace, before anything is made.
func createWorkspaceRecord(ctx context.Context, stateDir, root string, lease picket.Lease,
	source Kind) (*Locked, error) {
	name := lease.RunID
	record, err := PrivateDir(recordsDir(stateDir), name)
	if err != nil {
		return nil, err
	}
	lock, err := files.LockDir(ctx, record, 0)
	if err != nil {
		return nil, err
	}
	k := &Locked{recordDir: record, root: root, lock: lock, KeptWorkspace: KeptWorkspace{
		Name: name, Path: filepath.Join(root, name), Source: source,
		TaskID: lease.TaskID, RunID: lease.RunID, Runs: []string{lease.RunID}, Attempt: lease.Attempt,
		Title: lease.Task.Title, Stage: stageMaking, CreatedAt: picket.InstantOf(time.Now()),
	}}
	if err := k.Save(); err != nil {
		lock.Close()
		return nil, err
	}
	return k, nil
}

// Save writes the record. A reader finds the old or the new one whole.
func (k *Locked) Save() error {
	w := k.KeptWorkspace
	w.Pinned, w.InUse = false, false // said by a file and by the lock
	return files.WriteJSON(filepath.Join(k.recordDir, recordFile), w)
}

// Unlock gives the workspace back. The directory and its record stay.
func (k *Locked) Unlock() {
	k.closeDir()
	k.lock.Close()
}

// closeDir lets go of the directory, and keeps the lock.
func (k *Locked) closeDir() {
	if k.dir != nil {
		k.dir.Close()
		k.dir = nil
	}
}

// Lock locks a workspace in root and reads its record again. It waits at most so long for
// another process that has it; then the error is files.ErrLocked.
func Lock(ctx context.Context, w KeptWorkspace, stateDir, root string,
	atMost time.Duration) (*Locked, error) {
	record := filepath.Join(recordsDir(stateDir), w.Name)
	lock, err := files.LockDir(ctx, record, atMost)
	if err != nil {
		return nil, err
	}
	now, err := readWorkspaceRecord(stateDir, w.Name)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &Locked{KeptWorkspace: now, recordDir: record, root: root, lock: lock}, nil
}

func readWorkspaceRecord(stateDir, name string) (w KeptWorkspace, err error) {
	if err := picket.CheckID("workspace", "run", name); err != nil {
		return w, err
	}
	dir := filepath.Join(recordsDir(stateDir), name)
	if err := files.ReadJSON(filepath.Join(dir, recordFile), &w); err != nil {
		return w, err
	}
	if w.Name != name || filepath.Base(w.Path) != name || !filepath.IsAbs(w.Path) {
		return w, fmt.Errorf("the record of workspace %s is about another one", name)
	}
	if err := w.checkGit(); err != nil {
		return w, err
	}
	w.Pinned = isPinned(dir)
	return w, nil
}

// checkGit refuses a record whose git parts the adapter cannot have written.
func (w KeptWorkspace) checkGit() error {
	switch {
	case w.Branch != "" && w.Branch != picket.WorkBranch(w.TaskID):
		return fmt.Errorf("the record of workspace %s names the branch %q, which is not that of its task", w.Name,
			w.Branch)
	case w.Admin != "" && filepath.Dir(w.Admin) != filepath.Join(w.Common, "worktrees"):
		return fmt.Errorf("the record of workspace %s names the git directory %q, which is not in %q", w.Name, w.Admin,
			w.Common)
	}
	return nil
}

func isPinned(record string) bool {
	_, err := os.Lstat(filepath.Join(record, pinFile))
	return err == nil
}

// List reads all records in a state directory, oldest first. A record that cannot be read
// is left out, and its directory stays.
func List(stateDir string) ([]KeptWorkspace, error) {
	entries, err := os.ReadDir(recordsDir(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []KeptWorkspace
	for _, e := range entries {
		if w, err := readWorkspaceRecord(stateDir, e.Name()); err == nil {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b KeptWorkspace) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Name, b.Name))
	})
	return all, err
}

// deleteUnwrittenRecords deletes the places of records that were never written: their
// adapters died between the two.
func deleteUnwrittenRecords(stateDir string, now time.Time) {
	entries, _ := os.ReadDir(recordsDir(stateDir))
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && now.Sub(info.ModTime()) > time.Hour && picket.CheckID("workspace", "run", e.Name()) == nil {
			_ = os.Remove(filepath.Join(recordsDir(stateDir), e.Name())) // only what is empty goes
		}
	}
}

// deleteRecord deletes the record; the directory is gone already.
func (k *Locked) deleteRecord() error {
	names := []string{pinFile}
	entries, err := os.ReadDir(k.recordDir)
	for _, e := range slices.Backward(entries) { // what a failed Save has left, then the record
		if strings.HasPrefix(e.Name(), recordFile) {
			names = append(names, e.Name())
		}
	}
	for _, name := range names {
		if err := os.Remove(filepath.Join(k.recordDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err != nil {
		return err
	}
	return os.Remove(k.recordDir)
}

// PrivateDir makes the directory root/name with mode 0700, unless it exists, and returns
// its path.
func PrivateDir(root, name string) (string, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", err
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return "", err
	}
	defer r.Close()
	if err := r.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return filepath.Join(root, name), nil
}
