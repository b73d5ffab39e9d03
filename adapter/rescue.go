package adapter

import (
	"context"
	"errors"

	"github.com/picket-dev/picket"
)

// rescueWork does for a run whose adapter died what that has not done any more:
// what is in its worktree is committed, and handed in with the run's own
// credential.
func (a *Adapter) rescueWork(ctx context.Context, lost picket.Lease) {
	log := a.cfg.Log.With("task", lost.TaskID, "run", lost.RunID)
	all, err := listKept(a.cfg.StateDir)
	if err != nil {
		log.Warn("the kept workspaces cannot be listed", "err", err)
		return
	}
	for _, w := range all {
		if w.RunID != lost.RunID || w.Source != WorkspaceWorktree || w.Stage != stageReady {
			continue
		}
		if err := a.rescue(ctx, w, lost); err != nil {
			log.Warn("the work of a dead adapter is not on its branch yet; it is in the workspace", "workspace", w.Path,
				"err", err)
		}
	}
}

func (a *Adapter) rescue(ctx context.Context, w KeptWorkspace, lost picket.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, committing)
	defer cancel()
	k, err := take(ctx, w, a.cfg.StateDir, a.cfg.WorkspaceRoot, 0)
	if errors.Is(err, errInUse) {
		return nil // somebody is at it
	}
	if err != nil {
		return err
	}
	defer k.release()
	shop := &workspaces{cfg: &a.cfg}
	if err := shop.mend(ctx, k); err != nil {
		return err
	}
	ev, err := shop.evidence(ctx, k, shop.git(k).commit(ctx, "refs/heads/"+k.Branch), lost.AgentBearer())
	if err != nil {
		return err
	}
	try, stop := context.WithTimeout(ctx, hurry)
	defer stop()
	return NewProxy(lost, a.cfg.BaseURL, a.cfg.HTTP).Evidence(try, ev)
}
