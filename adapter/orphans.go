package adapter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/files"
)

// orphanedRun is a run whose adapter is dead: its directory, locked by us now, and
// what is known of its lease and its processes.
type orphanedRun struct {
	dir       string
	lock      *os.File
	lease     leaseRecord
	processes process.Record
}

// sweepOrphans ends what adapters that died have left in StateDir: first every
// process of their runs, then the leases. It comes before anything is
// acquired, and waits a little for a server that is away; what is not taken by
// then is tried on beside the new runs until ctx ends. It answers whether nothing
// is left that runs.
func (a *Adapter) sweepOrphans(ctx context.Context, group *sync.WaitGroup) (clean bool) {
	clean = true
	var reported sync.WaitGroup
	for _, o := range a.cfg.lockOrphans() {
		if err := o.killProcesses(); err != nil {
			// Not given back: nobody may start beside a process that lives.
			a.cfg.Log.Error("what a dead adapter left cannot be ended", "run", o.lease.RunID, "err", err)
			o.lock.Close()
			clean = false
			continue
		}
		reported.Add(1)
		group.Go(func() {
			defer reported.Done()
			a.releaseOrphan(ctx, o)
		})
	}
	done := make(chan struct{})
	group.Go(func() { reported.Wait(); close(done) })
	select {
	case <-done:
	case <-time.After(reportTimeout):
	case <-ctx.Done():
	}
	return clean
}

// lockOrphans locks and answers the runs in StateDir that nobody looks after.
func (cfg *Config) lockOrphans() []*orphanedRun {
	if !process.CanSweepOrphans {
		return nil
	}
	entries, _ := os.ReadDir(cfg.StateDir)
	var found []*orphanedRun
	for _, e := range entries {
		dir := filepath.Join(cfg.StateDir, e.Name())
		if _, err := os.Stat(filepath.Join(dir, leaseFile)); err != nil ||
			picket.CheckID("run", "run", e.Name()) != nil {
			continue
		}
		lock, err := files.LockDir(context.Background(), dir, 0)
		if err != nil {
			continue // its adapter lives
		}
		o := &orphanedRun{dir: dir, lock: lock}
		// Read under the lock: a run may have ended a moment ago.
		if err := files.ReadJSON(filepath.Join(dir, leaseFile), &o.lease); err != nil || o.lease.RunID != e.Name() {
			lock.Close()
			continue
		}
		if o.processes, err = process.ReadRecord(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			cfg.Log.Warn("the processes of a run cannot be read", "run", e.Name(), "err", err)
		}
		found = append(found, o)
	}
	return found
}

// killProcesses kills every process of the run that is left.
func (o *orphanedRun) killProcesses() error {
	if o.processes.BootID != "" && o.processes.BootID != process.BootID() {
		return nil // they ended with the machine; their numbers are others' now
	}
	return process.KillLeftovers(o.processes, o.lease.RunID, 5*time.Second)
}

// releaseOrphan reports the end of the run until it is taken.
func (a *Adapter) releaseOrphan(ctx context.Context, o *orphanedRun) {
	defer o.lock.Close()
	log := a.cfg.Log.With("task", o.lease.TaskID, "run", o.lease.RunID)
	token, err := o.lease.openLeaseToken(a.cfg.StateKey)
	agents, bad := o.lease.openAgentToken(a.cfg.StateKey)
	if err = errors.Join(err, bad); err != nil {
		log.Warn("the lease of a dead adapter was stored with another API key, so it is left to expire", "dir", o.dir,
			"err", err)
		return
	}
	lost := picket.Lease{
		TaskID:       o.lease.TaskID,
		RunID:        o.lease.RunID,
		ProxyURL:     o.lease.ProxyURL,
		LeaseToken:   token,
		AgentToken:   agents,
		FencingToken: o.lease.FencingToken,
	}
	a.commitOrphanWork(ctx, lost)
	proxy := NewProxy(lost, a.cfg.BaseURL, a.cfg.HTTP)
	exit, state, err := o.report(ctx, proxy)
	if isRetryable(err) || ctx.Err() != nil {
		log.Warn("the lease of a dead adapter could not be given back", "err", err)
		return
	}
	if err != nil {
		log.Warn("the lease of a dead adapter is refused; it ends on its own", "err", err)
	} else {
		log.Info("the lease of a dead adapter was given back", "class", exit.Class, "state", state)
	}
	if err := files.WriteJSON(filepath.Join(o.dir, exitFile), exit); err != nil {
		log.Warn("the end of the run cannot be written", "dir", o.dir, "err", err)
	}
	if err := os.Remove(filepath.Join(o.dir, leaseFile)); err != nil {
		log.Warn("the note of an ended lease cannot be deleted", "dir", o.dir, "err", err)
	}
}

// report releases the lease, or hands the end in as evidence when the lease is
// over: then a task that waits for this process goes on. It tries until the
// server answers, or for as long as evidence is taken.
func (o *orphanedRun) report(ctx context.Context, proxy *Proxy) (exit picket.Exit, state picket.TaskState, err error) {
	const evidence = 15 * time.Minute
	until := time.Now().Add(max(time.Until(o.lease.KillAt.Time()), 0) + evidence)
	pace := backoff{least: 200 * time.Millisecond, most: 15 * time.Second}
	tooLate := func() bool { return time.Now().After(until) }
	err = retry(ctx, pace, tooLate, func(try context.Context) error {
		err := o.clearSuspicion(try, proxy)
		exit = o.exitReport()
		exit.LastEvent = new("") // what the adapter had not sent is lost with it
		if !isRetryable(err) {
			err = o.postUsage(try, proxy)
		}
		if !isRetryable(err) {
			state, err = proxy.Release(try, exit)
		}
		if leaseOrTaskEnded(err) {
			late := exit
			late.Class, late.Detail = picket.ExitKilled, ""
			err = proxy.Exit(try, late, "")
		}
		return err
	})
	return exit, state, err
}

// clearSuspicion takes a suspicion back when the run did report something.
func (o *orphanedRun) clearSuspicion(ctx context.Context, proxy *Proxy) error {
	if !o.lease.Suspect {
		return nil
	}
	task, err := proxy.Task(ctx)
	if err == nil && task.LastReport != nil && task.LastReport.RunID == o.lease.RunID {
		o.lease.Suspect = false
	}
	return err
}

// exitReport is what the run is given back with. A run that has ended and could not be reported
// keeps its own exit. For any other run, the death of the adapter does not count as a failure of
// the agent. If it happens twice in a row without a report in between, it counts, because the agent
// may be what ends the adapter or the machine.
func (o *orphanedRun) exitReport() picket.Exit {
	var own picket.Exit
	err := files.ReadJSON(filepath.Join(o.dir, exitFile), &own)
	if err == nil && slices.Contains(picket.ReleaseClasses, own.Class) {
		return own
	}
	how := "what was left of the agent was ended"
	if o.processes.BootID != "" && o.processes.BootID != process.BootID() {
		how = "the machine was restarted"
	}
	exit := picket.Exit{Class: picket.ExitReleased, Detail: fmt.Sprintf("%s; %s", orphanDetailPrefix, how)}
	if o.lease.Suspect {
		exit.Class = picket.ExitCrash
		exit.Detail += "; the adapter of the run before died as well, and nothing was reported between"
	}
	return exit
}

// postUsage posts what a dead adapter has noted of its agent and not posted.
func (o *orphanedRun) postUsage(ctx context.Context, proxy *Proxy) error {
	var noted []picket.UsageReport
	if files.ReadJSON(filepath.Join(o.dir, usageFile), &noted) != nil {
		return nil
	}
	for _, u := range noted {
		if _, err := proxy.Usage(ctx, u); err != nil && isRetryable(err) {
			return err
		}
	}
	return os.Remove(filepath.Join(o.dir, usageFile))
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
	if errors.Is(err, files.ErrLocked) {
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
