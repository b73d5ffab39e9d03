package adapter

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/client"
)

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

// collectWorkspaces deletes workspaces and copies of branches that are due, at once and then now and then
// until ctx ends.
func (a *Adapter) collectWorkspaces(ctx context.Context) {
	kept := workspace.KeptWorkspaces{
		StateDir:      a.cfg.StateDir,
		WorkspaceRoot: a.cfg.WorkspaceRoot,
		Keep:          a.cfg.KeepWorkspaces,
		RunsOfTask:    RunsOfTask(a.client),
	}
	for {
		done, err := kept.Collect(ctx, false)
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
		err = workspace.CleanBareRepositories(ctx, a.cfg.StateDir, a.cfg.gitContainment(), time.Now())
		if err != nil && ctx.Err() == nil {
			a.cfg.Log.Warn("the copies of branches that nobody needs cannot be deleted", "err", err)
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

// RunsOfTask returns a function that reads the runs of a task and the server's time, for
// workspace.KeptWorkspaces.
func RunsOfTask(c *client.Client) func(ctx context.Context, taskID string) ([]picket.Run, time.Time, error) {
	return func(ctx context.Context, taskID string) ([]picket.Run, time.Time, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		var header http.Header
		task, err := c.Tasks.Get(ctx, taskID, client.WithResponseHeader(&header))
		now, bad := http.ParseTime(header.Get("Date"))
		if bad != nil {
			now = time.Now()
		}
		return task.Runs, now, err
	}
}
