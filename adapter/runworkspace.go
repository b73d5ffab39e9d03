package adapter

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/adapter/workspace"
)

// runWorkspace is a run's hold on its directory.
type runWorkspace struct {
	locked          *workspace.Locked // nil: the directory is the user's own
	pendingEvidence *picket.Evidence  // not handed in yet
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
	if k.Source == workspace.Worktree {
		within := commitTimeout
		if v.ending != "" {
			within = workspace.GitTimeout
		}
		doing, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), within, workspace.ErrGitTimeout)
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(reportTimeout, cancel) })()
		err := workspace.ErrLeaseEnded // the next run of the task may be at work
		if v.ending != EndLost {
			err = r.commitAndSubmit(doing, k)
		}
		if err != nil {
			r.log.Warn("the work is not on its branch; it is in the workspace", "workspace", k.Path, "err", err)
			r.submitUncommitted(ctx, k, err)
			return
		}
	}
	k.Stage, k.EndedAt = workspace.StageSettled, picket.InstantOf(time.Now())
	if err := k.Save(); err != nil {
		r.log.Warn("the record of the workspace cannot be written", "workspace", k.Path, "err", err)
	}
}

func (r *run) commitAndSubmit(ctx context.Context, k *workspace.Locked) error {
	about := commitSubject(ctx, r)
	w := r.workspaceStore()
	tip, err := w.Commit(ctx, k, k.CommitMessage(about))
	if err != nil {
		return err
	}
	ev, err := w.Evidence(ctx, k, tip, r.lease.AgentCredential())
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
func (r *run) submitUncommitted(ctx context.Context, k *workspace.Locked, err error) {
	if errors.Is(err, workspace.ErrNotUsable) {
		return
	}
	note := workspace.RedactText("[picket: the changes of the run in "+k.Path+" were not committed to its branch: "+
		err.Error()+
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
	return workspace.RedactText(about, r.lease.AgentCredential())
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
func (r *run) deleteIfEmpty(ctx context.Context, k *workspace.Locked) {
	defer k.Unlock()
	if k.Source != workspace.Empty || !k.IsEmpty() {
		return
	}
	if err := r.cfg.workspaceStore().Delete(context.WithoutCancel(ctx), k); err != nil {
		r.log.Warn("an empty workspace cannot be deleted", "workspace", k.Path, "err", err)
	}
}

// commitOrphanWork does for a run whose adapter died what that has not done any more:
// what is in its worktree is committed, and handed in with the run's own
// credential.
func (a *Adapter) commitOrphanWork(ctx context.Context, lost picket.Lease) {
	log := a.cfg.Log.With("task", lost.TaskID, "run", lost.RunID)
	all, err := workspace.List(a.cfg.StateDir)
	if err != nil {
		log.Warn("the kept workspaces cannot be listed", "err", err)
		return
	}
	for _, w := range all {
		if w.RunID != lost.RunID || w.Source != workspace.Worktree || w.Stage != workspace.StageReady {
			continue
		}
		if err := a.commitOrphanWorkspace(ctx, w, lost); err != nil {
			log.Warn("the work of a dead adapter is not on its branch yet; it is in the workspace", "workspace", w.Path,
				"err", err)
		}
	}
}

func (a *Adapter) commitOrphanWorkspace(ctx context.Context, w workspace.KeptWorkspace, lost picket.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	k, err := workspace.Lock(ctx, w, a.cfg.StateDir, a.cfg.WorkspaceRoot, 0)
	if errors.Is(err, workspace.ErrInUse) {
		return nil // somebody is at it
	}
	if err != nil {
		return err
	}
	defer k.Unlock()
	shop := a.cfg.workspaceStore()
	if err := shop.Repair(ctx, k); err != nil {
		return err
	}
	ev, err := shop.Evidence(ctx, k, shop.BranchTip(ctx, k), lost.AgentCredential())
	if err != nil {
		return err
	}
	try, stop := context.WithTimeout(ctx, reportTimeout)
	defer stop()
	return NewProxy(lost, a.cfg.BaseURL, a.cfg.HTTP).Evidence(try, ev)
}

// workspaceStore is the store of this configuration, for work beside any lease.
func (cfg *Config) workspaceStore() *workspace.Store {
	return &workspace.Store{
		StateDir: cfg.StateDir,
		Root:     cfg.WorkspaceRoot,
		Dir:      cfg.Dir,
		Kind:     cfg.Workspace,
		Resume:   cfg.Resume,
		Repo:     cfg.repo,
		Git:      cfg.gitContainment(),
		Log:      cfg.Log,
		OnStep:   cfg.onStep,
	}
}

// workspaceStore is the store for work under the lease of the run.
func (r *run) workspaceStore() *workspace.Store {
	w := r.cfg.workspaceStore()
	w.Git = r.gitContainment()
	return w
}

// gitContainment is the one of agents that are started as configured.
func (cfg *Config) gitContainment() workspace.GitContainment {
	switch l := cfg.Launcher.(type) {
	case process.CommandLauncher:
		return workspace.GitContainment{Containment: l.Containment, Shim: l.Shim}
	case PresetLauncher:
		return workspace.GitContainment{Containment: l.Containment, Shim: l.Shim}
	}
	return workspace.GitContainment{Containment: cfg.Containment}
}

// gitContainment is that of the run, which ends with its lease.
func (r *run) gitContainment() workspace.GitContainment {
	c := r.cfg.gitContainment()
	c.RunID, c.StateDir = r.lease.RunID, r.paths.stateDir
	c.LeaseLeft = func() time.Duration { return r.deadline.current() - r.cfg.clock() }
	return c
}
