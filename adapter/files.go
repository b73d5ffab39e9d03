package adapter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
)

// TaskFile is what PICKET_TASK_FILE holds: the task as the agent needs it. It
// has no credential in it.
type TaskFile struct {
	TaskID       string `json:"taskId"`
	RunID        string `json:"runId"`
	FencingToken int64  `json:"fencingToken"`
	Attempt      int    `json:"attempt"` // counts runs from 1
	picket.LeaseTask
	Answers      []picket.Answer `json:"answers"`      // of people, oldest first
	PreviousExit *picket.Exit    `json:"previousExit"` // null in the first run
}

// places are the directories and files of one run.
type places struct {
	state      string // the run's own directory
	workspace  string
	taskFile   string
	lastReport string
}

// prepare makes the run's directories and writes what the agent reads. Ids
// come from a server, so they are checked before they become part of a path,
// and the directories are made inside their root.
func (cfg *Config) prepare(lease picket.Lease) (places, error) {
	if err := picket.CheckID("runId", "run", lease.RunID); err != nil {
		return places{}, err
	}
	state, err := privateDir(cfg.StateDir, lease.RunID)
	if err != nil {
		return places{}, fmt.Errorf("make state directory: %w", err)
	}
	p := places{state: state, workspace: cfg.Dir, taskFile: filepath.Join(state, "task.json"), lastReport: filepath.Join(state, "last-report.json")}
	if cfg.Workspace == WorkspaceEmpty {
		if p.workspace, err = privateDir(cfg.WorkspaceRoot, lease.RunID); err != nil {
			return places{}, fmt.Errorf("make workspace: %w", err)
		}
	}
	task := TaskFile{
		TaskID: lease.TaskID, RunID: lease.RunID, FencingToken: lease.FencingToken, Attempt: lease.Attempt,
		LeaseTask: lease.Task, Answers: lease.Answers, PreviousExit: lease.PreviousExit,
	}
	if err := writeJSON(p.taskFile, task); err != nil {
		return places{}, fmt.Errorf("write task file: %w", err)
	}
	if err := writeJSON(p.lastReport, lease.LastReport); err != nil {
		return places{}, fmt.Errorf("write last report: %w", err)
	}
	return p, nil
}

// privateDir makes root/name with mode 0700; it may exist from an earlier try.
func privateDir(root, name string) (string, error) {
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

func writeJSON(file string, v any) error {
	b, err := json.Marshal(v, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o600)
}

// openLog makes the file of one output stream; nil when it cannot.
func (p places) openLog(stream string) *os.File {
	f, err := os.OpenFile(filepath.Join(p.state, stream+".log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil
	}
	return f
}

// exitFile is written when a run is over, for people and for sweep.
const exitFile = "exit.json"

// sweep deletes the state of runs that ended KeepRuns ago, and what an adapter
// that was killed left behind, later. Workspaces stay: a review may still want
// them.
func (cfg *Config) sweep(now time.Time) {
	entries, _ := os.ReadDir(cfg.StateDir)
	for _, e := range entries {
		if !e.IsDir() || picket.CheckID("run", "run", e.Name()) != nil {
			continue
		}
		dir, keep := filepath.Join(cfg.StateDir, e.Name()), cfg.KeepRuns
		info, err := os.Stat(filepath.Join(dir, exitFile))
		if err != nil {
			info, err = os.Stat(dir)
			keep *= 4
		}
		if err != nil || now.Sub(info.ModTime()) < keep {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			cfg.Log.Warn("the state of an old run cannot be deleted", "run", e.Name(), "err", err)
		}
	}
}
