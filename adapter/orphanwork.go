package adapter

import (
	"context"
	"errors"

	"github.com/picket-dev/picket"
)

// commitOrphanWork does for a run whose adapter died what that has not done any more:
// what is in its worktree is committed, and handed in with the run's own
// credential.
func (a *Adapter) commitOrphanWork(ctx context.Context, lost picket.Lease) {
	log := a.cfg.Log.With("task", lost.TaskID, "run", lost.RunID)
	all, err := listWorkspaces(a.cfg.StateDir)
	if err != nil {
		log.Warn("the kept workspaces cannot be listed", "err", err)
		return
	}
	for _, w := range all {
		if w.RunID != lost.RunID || w.Source != WorkspaceWorktree || w.Stage != stageReady {
			continue
		}
		if err := a.commitOrphanWorkspace(ctx, w, lost); err != nil {
			log.Warn("the work of a dead adapter is not on its branch yet; it is in the workspace", "workspace", w.Path,
				"err", err)
		}
	}
}

func (a *Adapter) commitOrphanWorkspace(ctx context.Context, w KeptWorkspace, lost picket.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	k, err := lockWorkspace(ctx, w, a.cfg.StateDir, a.cfg.WorkspaceRoot, 0)
	if errors.Is(err, errInUse) {
		return nil // somebody is at it
	}
	if err != nil {
		return err
	}
	defer k.unlock()
	shop := &workspaceStore{cfg: &a.cfg}
	if err := shop.repair(ctx, k); err != nil {
		return err
	}
	ev, err := shop.evidence(ctx, k, shop.git(k).resolveCommit(ctx, "refs/heads/"+k.Branch), lost.AgentCredential())
	if err != nil {
		return err
	}
	try, stop := context.WithTimeout(ctx, reportTimeout)
	defer stop()
	return NewProxy(lost, a.cfg.BaseURL, a.cfg.HTTP).Evidence(try, ev)
}
