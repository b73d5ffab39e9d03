package adapter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/files"
)

// runWorkspace owns the directories of a run: its own directory, the workspace of its
// agent, and the evidence of what was changed there.
type runWorkspace struct {
	*runScope
	leaseLeft func() time.Duration                                                // until git must end, too
	retry     func(ctx context.Context, report func(context.Context) error) error // repeats a report

	branch     *branchPusher // to another machine
	bundle     *bundleSender // to the server, if there is no remote
	notBrought string        // why the bundle of the branch was not used

	stateDir        string            // the run's own directory; empty before prepare
	path            string            // where the agent works
	filesDir        string            // where the files are that the agent reads
	locked          *workspace.Locked // nil: the directory is the user's own
	filesWritten    atomic.Bool       // the fields above do not change any more
	pendingEvidence *picket.Evidence  // not handed in yet
}

// prepare makes the run's directories and writes what the agent reads. Ids come from
// a server, so they are checked before they become part of a path, and the
// directories are made inside their root.
func (w *runWorkspace) prepare(ctx context.Context) error {
	if err := picket.CheckID("runId", "run", w.lease.RunID); err != nil {
		return err
	}
	if err := picket.CheckID("taskId", "task", w.lease.TaskID); err != nil {
		return err
	}
	state, err := workspace.PrivateDir(w.cfg.StateDir, w.lease.RunID)
	if err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	w.stateDir = state
	k, told, err := w.store().Open(ctx, w.lease)
	if err != nil {
		return err
	}
	w.locked, w.path = k, told.Path
	if told.Resumed != "" {
		w.log.Info("workspace resumed", "how", told.Resumed, "workspace", told.Path, "note", told.Note)
	}
	return w.writeTaskFiles(told)
}

// startDir holds open where the agent starts; nil in a directory of the user's.
func (w *runWorkspace) startDir() (*os.File, error) {
	if w.locked == nil {
		return nil, nil
	}
	top, err := w.locked.OpenRoot()
	if err != nil {
		return nil, err
	}
	defer top.Close()
	below, err := filepath.Rel(w.locked.Path, w.path)
	if err != nil {
		return nil, err
	}
	return top.Open(below)
}

// writeTaskFiles writes what the agent reads: into its own directory, or beside its
// output when it works in a directory of the user's.
func (w *runWorkspace) writeTaskFiles(told workspace.TaskWorkspace) (err error) {
	contents := taskFileContents(w.lease, told)
	if w.locked != nil {
		w.filesDir, err = writeAgentFiles(w.locked, told.Path, contents)
		w.filesWritten.Store(err == nil)
		return err
	}
	for name, v := range contents {
		if err := files.WriteJSON(filepath.Join(w.stateDir, name), v); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	w.filesDir = w.stateDir
	w.filesWritten.Store(true)
	return nil
}

// writeNudge tells the agent in a file that it seems to be stuck.
func (w *runWorkspace) writeNudge(cause, reason string) {
	if !w.filesWritten.Load() { // there is no agent yet
		return
	}
	n := NudgeFile{Cause: cause, Reason: reason, At: picket.InstantOf(time.Now())}
	if err := w.replaceFile(nudgeFile, n); err != nil {
		w.log.Warn("the nudge cannot be written", "err", err)
	}
}

// replaceFile writes a file that tells the agent something while it runs. The file changes in one
// step, since the agent may be reading it. It leads nowhere else, no matter what the agent has made
// of its directory.
func (w *runWorkspace) replaceFile(name string, v any) error {
	if w.locked != nil {
		return replaceAgentFile(w.locked, w.path, name, v)
	}
	return files.WriteJSON(filepath.Join(w.filesDir, name), v)
}

// removeOldFiles removes what an earlier run in the same directory was told.
func (w *runWorkspace) removeOldFiles() {
	for _, name := range []string{nudgeFile, messagesFile} {
		os.Remove(filepath.Join(w.filesDir, name))
	}
}

// commitTimeout bounds what is done with a worktree while its lease is kept.
const commitTimeout = 2 * time.Minute

// commit commits what the agent has left in its worktree to the branch of the
// task, and hands it in. It does so while the lease is held, or within GitTimeout
// after a tool call has ended the lease. Nothing of it changes how the run ends:
// what cannot be committed stays in the directory.
func (w *runWorkspace) commit(ctx context.Context, ending Ending) {
	k := w.locked
	if k == nil {
		return
	}
	if k.Source == workspace.Worktree {
		within := commitTimeout
		if ending != "" {
			within = workspace.GitTimeout
		}
		doing, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), within, workspace.ErrGitTimeout)
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(reportTimeout, cancel) })()
		err := workspace.ErrLeaseEnded // the next run of the task may be at work
		if ending != EndLost {
			err = w.commitAndSubmit(doing, ctx, k)
		}
		if err != nil {
			w.log.Warn("the work is not on its branch; it is in the workspace", "workspace", k.Path, "err", err)
			w.submitUncommitted(ctx, k, err)
			return
		}
	}
	k.Stage, k.EndedAt = workspace.StageSettled, picket.InstantOf(time.Now())
	if err := k.Save(); err != nil {
		w.log.Warn("the record of the workspace cannot be written", "workspace", k.Path, "err", err)
	}
}

// commitAndSubmit commits and describes the work within ctx. The push, or the bundle, may take longer, until
// stopped ends: it needs no lease. It comes last, since the machine can die meanwhile. If it fails, the
// evidence is handed in once more, with the reason.
func (w *runWorkspace) commitAndSubmit(ctx, stopped context.Context, k *workspace.Locked) error {
	about := w.commitSubject(ctx)
	store := w.store()
	tip, err := store.Commit(ctx, k, k.CommitMessage(about))
	if err != nil {
		return err
	}
	ev, err := store.Evidence(ctx, k, tip, w.lease.AgentCredential())
	if err != nil {
		return err
	}
	w.submitFirst(context.WithoutCancel(ctx), ev)
	if note := w.branch.pushLast(stopped) + w.bundle.sendLast(stopped); note != "" {
		ev.Diffstat += workspace.RedactText(note, w.lease.AgentCredential())
		w.submitFirst(context.WithoutCancel(ctx), ev)
	}
	return nil
}

// submitUncommitted lets the reviewer know of work that is not on the branch, unless
// the branch belongs to the next run by now.
func (w *runWorkspace) submitUncommitted(ctx context.Context, k *workspace.Locked, err error) {
	if errors.Is(err, workspace.ErrNotUsable) {
		return
	}
	note := "[picket: the changes of the run in " + k.Path + " were not committed to its branch: " + err.Error() + "]\n"
	w.submitFirst(context.WithoutCancel(ctx), picket.Evidence{
		RunID:      k.RunID,
		Repository: k.Repository,
		Branch:     k.Branch,
		Base:       k.Base,
		Diffstat:   workspace.RedactText(note, w.lease.AgentCredential()),
	})
}

// submitFirst tries to hand evidence in, once. What is not taken is tried again at the end.
func (w *runWorkspace) submitFirst(ctx context.Context, ev picket.Evidence) {
	w.pendingEvidence = &ev
	once, cancel := context.WithTimeout(ctx, reportTimeout/2)
	defer cancel()
	w.submitEvidence(once)
}

// commitSubject is the summary of the last report, else what the task is about.
func (w *runWorkspace) commitSubject(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	last := w.lease.LastReport
	c := newClient(w.cfg.BaseURL, w.cfg.Key, w.cfg.HTTP)
	if task, err := c.Tasks.Get(ctx, w.lease.TaskID); err == nil && task.LastReport != nil {
		last = task.LastReport
	}
	about := w.lease.Task.Title
	if last != nil && last.Summary != "" {
		about = last.Summary
	}
	return workspace.RedactText(about, w.lease.AgentCredential())
}

// submitEvidence posts the evidence, if that is still to be done.
func (w *runWorkspace) submitEvidence(ctx context.Context) error {
	if w.pendingEvidence == nil {
		return nil
	}
	err := w.proxy.Evidence(ctx, *w.pendingEvidence)
	if err == nil || !isRetryable(err) {
		w.pendingEvidence = nil
	}
	if err != nil {
		w.log.Warn("what the run has changed is not handed in yet", "err", err)
	}
	return err
}

// unlock lets go of the directory, for the next run may wait for it, and
// hands in what could not be handed in before.
func (w *runWorkspace) unlock(ctx context.Context) {
	if w.locked != nil {
		w.deleteIfEmpty(ctx, w.locked)
	}
	if w.pendingEvidence != nil {
		_ = w.retry(ctx, w.submitEvidence)
	}
}

// deleteIfEmpty deletes a directory that was made empty and was left empty.
func (w *runWorkspace) deleteIfEmpty(ctx context.Context, k *workspace.Locked) {
	defer k.Unlock()
	if k.Source != workspace.Empty || !k.IsEmpty() {
		return
	}
	if err := w.cfg.workspaceStore().Delete(context.WithoutCancel(ctx), k); err != nil {
		w.log.Warn("an empty workspace cannot be deleted", "workspace", k.Path, "err", err)
	}
}

// store is the store for work under the lease of the run. Its git commands end with the
// lease.
func (w *runWorkspace) store() *workspace.Store {
	store := w.cfg.workspaceStore()
	store.Git.RunID, store.Git.StateDir, store.Git.LeaseLeft = w.lease.RunID, w.stateDir, w.leaseLeft
	if len(store.Sources) == 0 {
		store.Sources = []workspace.BranchSource{w.bundleSource()}
	}
	return store
}
