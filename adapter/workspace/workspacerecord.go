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
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
)

// KeptWorkspace is a directory that runs of one task have worked in and that
// outlives them. Its name is the id of the first of them.
type KeptWorkspace struct {
	Name   string   `json:"name"`
	Path   string   `json:"path"`
	Source Kind     `json:"source"`
	TaskID string   `json:"taskId"`
	RunID  string   `json:"runId"` // has it now, or had it last
	Runs   []string `json:"runs"`  // all that had it, oldest first
	// Attempt is the number of that run, which orders the workspaces of a task.
	Attempt int    `json:"attempt"`
	Title   string `json:"title"`
	// Stage is making, ready or settled; what is making was never used.
	Stage     string         `json:"stage"`
	CreatedAt picket.Instant `json:"createdAt"`
	EndedAt   picket.Instant `json:"endedAt"`   // of the last run; null while it has not ended here
	KeepUntil picket.Instant `json:"keepUntil"` // as the server last said; null while undecided
	Pinned    bool           `json:"pinned"`
	InUse     bool           `json:"inUse"` // a process has it now

	// Of a worktree: the checkout it was made from, the directory that all
	// worktrees share, its own part of that, branch and the commit it began at.
	Repository string `json:"repository,omitempty"`
	Common     string `json:"common,omitempty"`
	Admin      string `json:"admin,omitempty"`
	Branch     string `json:"branch,omitempty"`
	Base       string `json:"base,omitempty"`

	// Identity is that of the directory that the adapter made at Path.
	Identity *dirIdentity `json:"identity,omitempty"`
}

const (
	stageMaking  = "making"
	StageReady   = "ready"
	StageSettled = "settled"

	recordFile = "workspace.json"
	pinFile    = "pinned"
)

// Locked is a workspace in the hands of this process.
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

// Save writes the record so that anyone who reads it finds the old or the new one.
func (k *Locked) Save() error {
	w := k.KeptWorkspace
	w.Pinned, w.InUse = false, false // said by a file and by the lock
	return files.ReplaceJSON(filepath.Join(k.recordDir, recordFile), w)
}

// Unlock gives the workspace back.
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

// Lock locks a workspace in root and reads its record again; files.ErrLocked when
// another process has it.
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
	if err := readJSONFile(filepath.Join(dir, recordFile), &w); err != nil {
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

// List reads all records, oldest first. One that cannot be read is left
// out: its directory stays.
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
	for _, name := range []string{pinFile, recordFile + ".new", recordFile} {
		if err := os.Remove(filepath.Join(k.recordDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Remove(k.recordDir)
}

func readJSONFile(file string, v any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// PrivateDir makes root/name with mode 0700; it may exist from an earlier try.
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
