package adapter

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/files"
)

// TaskFile is what PICKET_TASK_FILE holds: the task as the agent needs it. It
// has no credential in it.
type TaskFile struct {
	TaskID       string `json:"taskId"`
	RunID        string `json:"runId"`
	FencingToken int64  `json:"fencingToken"`
	Attempt      int    `json:"attempt"` // counts runs from 1
	picket.LeaseTask
	Answers      []picket.Answer         `json:"answers"`      // of people, oldest first
	PreviousExit *picket.Exit            `json:"previousExit"` // null in the first run
	Workspace    workspace.TaskWorkspace `json:"workspace"`
}

// The files an agent reads.
const (
	taskFile       = "task.json"
	lastReportFile = "last-report.json"
	budgetFile     = "budget.json" // the envelope of the task, as it was granted
)

// runPaths are the directories and files of one run.
type runPaths struct {
	stateDir   string // the run's own directory
	workspace  string
	taskFile   string
	lastReport string
}

// prepare makes the run's directories and writes what the agent reads. Ids
// come from a server, so they are checked before they become part of a path,
// and the directories are made inside their root.
func (r *run) prepare(ctx context.Context) error {
	if err := picket.CheckID("runId", "run", r.lease.RunID); err != nil {
		return err
	}
	if err := picket.CheckID("taskId", "task", r.lease.TaskID); err != nil {
		return err
	}
	state, err := workspace.PrivateDir(r.cfg.StateDir, r.lease.RunID)
	if err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	r.paths = runPaths{stateDir: state}
	k, told, err := r.workspaceStore().Open(ctx, r.lease)
	if err != nil {
		return err
	}
	r.workspace.locked, r.paths.workspace = k, told.Path
	if told.Resumed != "" {
		r.log.Info("workspace resumed", "how", told.Resumed, "workspace", told.Path, "note", told.Note)
	}
	return r.writeTaskFiles(told)
}

// startDir holds open where the agent starts; nil in a directory of the user's.
func (r *run) startDir() (*os.File, error) {
	k := r.workspace.locked
	if k == nil {
		return nil, nil
	}
	top, err := k.OpenRoot()
	if err != nil {
		return nil, err
	}
	defer top.Close()
	below, err := filepath.Rel(k.Path, r.paths.workspace)
	if err != nil {
		return nil, err
	}
	return top.Open(below)
}

// writeTaskFiles writes what the agent reads: into its own directory, or beside its
// output when it works in a directory of the user's.
func (r *run) writeTaskFiles(told workspace.TaskWorkspace) error {
	contents := map[string]any{
		taskFile: TaskFile{
			TaskID: r.lease.TaskID, RunID: r.lease.RunID, FencingToken: r.lease.FencingToken, Attempt: r.lease.Attempt,
			LeaseTask: r.lease.Task, Answers: r.lease.Answers, PreviousExit: r.lease.PreviousExit, Workspace: told,
		},
		lastReportFile: r.lease.LastReport,
		budgetFile:     r.lease.BudgetEnvelope,
	}
	dir := r.paths.stateDir
	if k := r.workspace.locked; k != nil {
		var err error
		if dir, err = writeAgentFiles(k, told.Path, contents); err != nil {
			return err
		}
	} else {
		for name, v := range contents {
			if err := files.WriteJSON(filepath.Join(dir, name), v); err != nil {
				return fmt.Errorf("write %s: %w", name, err)
			}
		}
	}
	r.paths.taskFile, r.paths.lastReport = filepath.Join(dir, taskFile), filepath.Join(dir, lastReportFile)
	return nil
}

// openLog makes the file of one output stream; nil when it cannot.
func (p runPaths) openLog(stream string) *os.File {
	f, err := os.OpenFile(filepath.Join(p.stateDir, stream+".log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil
	}
	return f
}

// exitFile is written when a run is over, for people and for sweep.
const exitFile = "exit.json"

// deleteOldRuns deletes the state of runs that ended KeepRuns ago, and what an adapter
// that was killed left behind, later. Workspaces have a time of their own.
func (cfg *Config) deleteOldRuns(now time.Time) {
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

// collectWorkspaces deletes what is due, at once and then now and then until ctx ends.
func (a *Adapter) collectWorkspaces(ctx context.Context) {
	shelf := workspace.KeptWorkspaces{
		StateDir:      a.cfg.StateDir,
		WorkspaceRoot: a.cfg.WorkspaceRoot,
		Keep:          a.cfg.KeepWorkspaces,
		RunsOfTask:    a.client.RunsOfTask,
	}
	for {
		done, err := shelf.Collect(ctx, false)
		if err != nil {
			a.cfg.Log.Warn("the kept workspaces cannot be listed", "err", err)
		}
		for _, c := range done {
			switch {
			case c.Err != nil:
				a.cfg.Log.Warn("a workspace that is due cannot be deleted", "workspace", c.Name, "err", c.Err)
			case c.Deleted:
				a.cfg.Log.Info("workspace deleted", "workspace", c.Name, "task", c.TaskID)
			}
		}
		if !sleep(ctx, collectInterval) {
			return
		}
		a.cfg.deleteOldRuns(time.Now())
	}
}

// collectInterval is how often a working adapter looks for workspaces, and for the
// state of runs, that are due.
const collectInterval = time.Hour

// leaseEnv are the variables that carry the lease to the agent.
func leaseEnv(lease picket.Lease, p runPaths, proxyURL string) []string {
	env := []string{
		"PICKET_TASK_ID=" + lease.TaskID,
		"PICKET_RUN_ID=" + lease.RunID,
		"PICKET_FENCING_TOKEN=" + strconv.FormatInt(lease.FencingToken, 10),
		"PICKET_LEASE_TOKEN=" + lease.AgentCredential().Reveal(),
		"PICKET_LEASE_EXPIRES_AT=" + lease.LeaseExpiresAt.String(),
		"PICKET_BUDGET_TOKENS=" + strconv.FormatInt(lease.BudgetEnvelope.Tokens, 10),
		"PICKET_BUDGET_USD=" + lease.BudgetEnvelope.USD.String(),
		"PICKET_WORKSPACE=" + p.workspace,
		"PICKET_PROXY_URL=" + proxyURL,
		"PICKET_TASK_FILE=" + p.taskFile,
		"PICKET_LAST_REPORT=" + p.lastReport,
	}
	if lease.MCPURL != "" {
		env = append(env, "PICKET_MCP_URL="+lease.MCPURL)
	}
	if trace := lease.Task.Trace; trace != nil {
		env = append(env, "TRACEPARENT="+trace.Parent)
		if trace.State != "" {
			env = append(env, "TRACESTATE="+trace.State)
		}
	}
	return env
}
