package adapter

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"time"

	"github.com/picket-dev/picket"
)

// work is a run's hold on its directory.
type work struct {
	kept    *kept            // nil: the directory is the user's own
	pending *picket.Evidence // not handed in yet
}

// committing bounds what is done with a worktree while its lease is kept.
const committing = 2 * time.Minute

// keepWork commits what the agent has left in its worktree to the branch of the
// task, and hands it in. It does so while the lease is held, or within gitLimit
// after a tool call has ended the lease. Nothing of it changes how the run ends:
// what cannot be committed stays in the directory.
func (r *run) keepWork(ctx context.Context, v order) {
	k := r.work.kept
	if k == nil {
		return
	}
	if k.Source == WorkspaceWorktree {
		within := committing
		if v.ending != "" {
			within = gitLimit
		}
		doing, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), within, errGitLimit)
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(hurry, cancel) })()
		err := errLeaseOver // the next run of the task may be at work
		if v.ending != EndLost {
			err = r.commitWork(doing, k)
		}
		if err != nil {
			r.log.Warn("the work is not on its branch; it is in the workspace", "workspace", k.Path, "err", err)
			r.tellUncommitted(ctx, k, err)
			return
		}
	}
	k.Stage, k.EndedAt = stageSettled, picket.InstantOf(time.Now())
	if err := k.save(); err != nil {
		r.log.Warn("the record of the workspace cannot be written", "workspace", k.Path, "err", err)
	}
}

func (r *run) commitWork(ctx context.Context, k *kept) error {
	about := lastWord(ctx, r)
	w := &workspaces{cfg: r.cfg, run: r}
	tip, err := w.commit(ctx, k, k.message(about))
	if err != nil {
		return err
	}
	ev, err := w.evidence(ctx, k, tip, r.lease.AgentBearer())
	if err != nil {
		return err
	}
	r.work.pending = &ev
	once, cancel := context.WithTimeout(ctx, hurry/2)
	defer cancel()
	r.handIn(once)
	return nil
}

// tellUncommitted lets the reviewer know that there is work that he does not
// see, but of a run whose branch belongs to the next one by now.
func (r *run) tellUncommitted(ctx context.Context, k *kept, err error) {
	if errors.Is(err, errNotUsable) {
		return
	}
	note := clean("[picket: the changes of the run in "+k.Path+" were not committed to its branch: "+err.Error()+"]\n",
		r.lease.AgentBearer())
	r.work.pending = &picket.Evidence{
		RunID:      k.RunID,
		Repository: k.Repository,
		Branch:     k.Branch,
		Base:       k.Base,
		Diffstat:   note,
	}
	once, cancel := context.WithTimeout(context.WithoutCancel(ctx), hurry/2)
	defer cancel()
	r.handIn(once)
}

// lastWord is the summary of the last report, else what the task is about.
func lastWord(ctx context.Context, r *run) string {
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
	return clean(about, r.lease.AgentBearer())
}

// handIn posts the evidence, if that is still to be done.
func (r *run) handIn(ctx context.Context) error {
	if r.work.pending == nil {
		return nil
	}
	err := r.proxy.Evidence(ctx, *r.work.pending)
	if err == nil || !again(err) {
		r.work.pending = nil
	}
	if err != nil {
		r.log.Warn("what the run has changed is not handed in yet", "err", err)
	}
	return err
}

// leaveWork lets go of the directory, for the next run may wait for it, and
// hands in what could not be handed in before.
func (r *run) leaveWork(ctx context.Context) {
	if r.work.kept != nil {
		r.letGo(ctx, r.work.kept)
	}
	if r.work.pending != nil {
		_ = r.insist(ctx, r.handIn)
	}
}

// letGo deletes a directory that was made empty and was left empty.
func (r *run) letGo(ctx context.Context, k *kept) {
	defer k.release()
	if k.Source != WorkspaceEmpty || !k.untouched() {
		return
	}
	if err := (&workspaces{cfg: r.cfg}).discard(context.WithoutCancel(ctx), k); err != nil {
		r.log.Warn("an empty workspace cannot be deleted", "workspace", k.Path, "err", err)
	}
}

// untouched reports whether there is nothing in a directory but our own files.
func (k *kept) untouched() bool {
	r, err := k.open()
	if err != nil {
		return false
	}
	defer r.Close()
	entries, err := fs.ReadDir(r.FS(), ".")
	return err == nil && (len(entries) == 0 || len(entries) == 1 && entries[0].Name() == briefingDir)
}
