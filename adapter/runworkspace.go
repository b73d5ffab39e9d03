package adapter

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"time"

	"github.com/picket-dev/picket"
)

// runWorkspace is a run's hold on its directory.
type runWorkspace struct {
	locked          *lockedWorkspace // nil: the directory is the user's own
	pendingEvidence *picket.Evidence // not handed in yet
}

// commitTimeout bounds what is done with a worktree while its lease is kept.
const commitTimeout = 2 * time.Minute

// commitWorkspace commits what the agent has left in its worktree to the branch of the
// task, and hands it in. It does so while the lease is held, or within gitTimeout
// after a tool call has ended the lease. Nothing of it changes how the run ends:
// what cannot be committed stays in the directory.
func (r *run) commitWorkspace(ctx context.Context, v stopRequest) {
	k := r.workspace.locked
	if k == nil {
		return
	}
	if k.Source == WorkspaceWorktree {
		within := commitTimeout
		if v.ending != "" {
			within = gitTimeout
		}
		doing, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), within, errGitTimeout)
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(reportTimeout, cancel) })()
		err := errLeaseEnded // the next run of the task may be at work
		if v.ending != EndLost {
			err = r.commitAndSubmit(doing, k)
		}
		if err != nil {
			r.log.Warn("the work is not on its branch; it is in the workspace", "workspace", k.Path, "err", err)
			r.submitUncommitted(ctx, k, err)
			return
		}
	}
	k.Stage, k.EndedAt = stageSettled, picket.InstantOf(time.Now())
	if err := k.save(); err != nil {
		r.log.Warn("the record of the workspace cannot be written", "workspace", k.Path, "err", err)
	}
}

func (r *run) commitAndSubmit(ctx context.Context, k *lockedWorkspace) error {
	about := commitSubject(ctx, r)
	w := &workspaceStore{cfg: r.cfg, run: r}
	tip, err := w.commit(ctx, k, k.commitMessage(about))
	if err != nil {
		return err
	}
	ev, err := w.evidence(ctx, k, tip, r.lease.AgentCredential())
	if err != nil {
		return err
	}
	r.workspace.pendingEvidence = &ev
	once, cancel := context.WithTimeout(ctx, reportTimeout/2)
	defer cancel()
	r.submitEvidence(once)
	return nil
}

// submitUncommitted lets the reviewer know that there is work that he does not
// see, but of a run whose branch belongs to the next one by now.
func (r *run) submitUncommitted(ctx context.Context, k *lockedWorkspace, err error) {
	if errors.Is(err, errNotUsable) {
		return
	}
	note := redactText("[picket: the changes of the run in "+k.Path+" were not committed to its branch: "+err.Error()+
		"]\n",
		r.lease.AgentCredential())
	r.workspace.pendingEvidence = &picket.Evidence{
		RunID:      k.RunID,
		Repository: k.Repository,
		Branch:     k.Branch,
		Base:       k.Base,
		Diffstat:   note,
	}
	once, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout/2)
	defer cancel()
	r.submitEvidence(once)
}

// commitSubject is the summary of the last report, else what the task is about.
func commitSubject(ctx context.Context, r *run) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var task picket.Task
	c := &Client{BaseURL: r.cfg.BaseURL, Key: r.cfg.Key, HTTP: r.cfg.HTTP}
	last := r.lease.LastReport
	if err := c.Call(ctx, http.MethodGet, "/api/v1/tasks/"+r.lease.TaskID, nil, &task); err == nil &&
		task.LastReport != nil {
		last = task.LastReport
	}
	about := r.lease.Task.Title
	if last != nil && last.Summary != "" {
		about = last.Summary
	}
	return redactText(about, r.lease.AgentCredential())
}

// submitEvidence posts the evidence, if that is still to be done.
func (r *run) submitEvidence(ctx context.Context) error {
	if r.workspace.pendingEvidence == nil {
		return nil
	}
	err := r.proxy.Evidence(ctx, *r.workspace.pendingEvidence)
	if err == nil || !isRetryable(err) {
		r.workspace.pendingEvidence = nil
	}
	if err != nil {
		r.log.Warn("what the run has changed is not handed in yet", "err", err)
	}
	return err
}

// unlockWorkspace lets go of the directory, for the next run may wait for it, and
// hands in what could not be handed in before.
func (r *run) unlockWorkspace(ctx context.Context) {
	if r.workspace.locked != nil {
		r.deleteIfEmpty(ctx, r.workspace.locked)
	}
	if r.workspace.pendingEvidence != nil {
		_ = r.retryReport(ctx, r.submitEvidence)
	}
}

// deleteIfEmpty deletes a directory that was made empty and was left empty.
func (r *run) deleteIfEmpty(ctx context.Context, k *lockedWorkspace) {
	defer k.unlock()
	if k.Source != WorkspaceEmpty || !k.isEmpty() {
		return
	}
	if err := (&workspaceStore{cfg: r.cfg}).delete(context.WithoutCancel(ctx), k); err != nil {
		r.log.Warn("an empty workspace cannot be deleted", "workspace", k.Path, "err", err)
	}
}

// isEmpty reports whether there is nothing in a directory but our own files.
func (k *lockedWorkspace) isEmpty() bool {
	r, err := k.openRoot()
	if err != nil {
		return false
	}
	defer r.Close()
	entries, err := fs.ReadDir(r.FS(), ".")
	return err == nil && (len(entries) == 0 || len(entries) == 1 && entries[0].Name() == agentFilesDir)
}

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
