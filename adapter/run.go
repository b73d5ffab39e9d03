package adapter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
)

// run is one lease on its way from grant to report. Each of its parts owns one thing.
type run struct {
	*runScope
	member     *registeredRun
	leased     *runLease
	workspace  *runWorkspace
	output     *runOutput
	supervisor *supervisor
	messages   *messageFile
	report     *endReporter
}

// newRun prepares a run under a registration. next may be nil: then nothing comes after the
// lease.
func newRun(cfg *Config, lease picket.Lease, under *registration, next *slot) *run {
	scope := newRunScope(cfg, lease)
	lease = scope.lease
	r := &run{runScope: scope}
	gone := make(chan struct{})
	r.member = &registeredRun{taskID: lease.TaskID, processesGone: gone, markProcessesGone: closeOnce(gone)}
	stall := newStallDetector(lease, cfg.clock)
	r.supervisor = &supervisor{runScope: scope, stall: stall, requests: make(chan stopRequest, 64)}
	r.output = &runOutput{
		runScope: scope,
		events:   newEventQueue(r.proxy, r.log),
		usage:    newUsageReporter(r.proxy.Usage, r.log, r.supervisor.stopOnOverrun),
		execs:    newExecRunner(scope, stall),
	}
	r.leased = newRunLease(scope, under, r.member, r.supervisor)
	r.member.checkLease = r.leased.checkUnknown
	r.report = &endReporter{
		runScope: scope,
		member:   r.member,
		output:   r.output,
		slot:     next,
		leaseEnd: r.leased.end,
		result:   Result{TaskID: lease.TaskID, RunID: lease.RunID, FencingToken: lease.FencingToken},
	}
	r.workspace = &runWorkspace{
		runScope:  scope,
		leaseLeft: r.leased.processLeft,
		retry:     r.report.retryReport,
		branch:    &branchPusher{runScope: scope},
		bundle:    &bundleSender{runScope: scope},
	}
	r.supervisor.leased, r.supervisor.writeNudge = r.leased, r.workspace.writeNudge
	r.supervisor.events, r.supervisor.execs = r.output.events, r.output.execs
	r.messages = newMessageFile(scope, r.workspace.replaceFile)
	r.supervisor.tellMessages = r.messages.tell
	return r
}

// do takes the lease to its end. ctx ending means: give it back now.
func (r *run) do(ctx context.Context) (Result, error) {
	ctx, r.member.stop = context.WithCancelCause(ctx)
	defer r.member.stop(nil)
	r.leased.registration.addRun(r.member)
	defer r.leased.registration.removeRun(r.member)
	defer r.member.markProcessesGone()
	r.log.Info("lease acquired")
	lease := r.lease
	r.emit(Event{Kind: EventAcquired, Lease: &lease, ExpiresAt: lease.LeaseExpiresAt, Remaining: r.unconfirmedTTL()})
	err := r.execute(ctx)
	r.report.writeExit(r.workspace.stateDir)
	result := r.report.result
	r.leased.unlockDir(!result.Unreported)
	if err != nil {
		r.log.Error("run ended with an error", "ending", result.Ending, "err", err)
	} else {
		r.log.Info("run ended", "ending", result.Ending, "class", result.Exit.Class)
	}
	r.emit(Event{Kind: EventEnded, Result: &result, Err: err})
	return result, err
}

func (r *run) execute(ctx context.Context) error {
	if err := r.leased.confirm(ctx); err != nil {
		return r.report.confirmFailed(ctx, err)
	}
	// What follows outlives ctx: the end of a run is reported in any case.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	held := r.leased.keep(ctx, work, &group)
	defer func() { r.workspace.unlock(ctx) }()
	if err := r.workspace.prepare(held); err != nil {
		return r.report.prepareFailed(ctx, held, fmt.Errorf("prepare run: %w", err))
	}
	r.report.result.StateDir, r.report.result.Workspace = r.workspace.stateDir, r.workspace.path
	if err := r.leased.lockDir(r.workspace.stateDir); err != nil {
		return r.report.launchFailed(ctx, fmt.Errorf("note lease: %w", err))
	}
	if ctx.Err() != nil || r.leased.registration.isSilent() {
		return r.report.releaseUnlaunched(ctx)
	}
	if r.leased.registration.isEnded() {
		r.member.markProcessesGone()
		return r.report.reportEndedLease(ctx, picket.Exit{Class: picket.ExitLeaseLost})
	}
	r.output.open(work, &group, r.workspace.stateDir)
	if why := r.workspace.notBrought; why != "" {
		fmt.Fprintf(r.output.stderr, "[picket: the branch of the run before was not brought here: %s]\n", why)
	}
	told := r.recordLaunch(work)
	if err := r.launch(work); err != nil {
		r.output.close()
		return r.report.launchFailed(ctx, err)
	}
	r.correctLaunch(told)
	r.messages.start(held, &group)
	r.workspace.branch.start(held, r.workspace.locked, r.output.stderr)
	r.workspace.bundle.start(held, r.workspace.locked, r.output.stderr)
	end := r.supervisor.supervise(ctx, work, &group, func(ctx context.Context) {
		watchLease(ctx, r.proxy, r.output.execs.openCalls, r.leased.onChange)
	})
	if p, ok := end.proc.(interface{ Overdue() bool }); ok && p.Overdue() {
		end.request = end.request.merge(r.leased.overdueRequest())
	}
	r.workspace.branch.end()
	r.workspace.bundle.end()
	r.output.close()
	r.workspace.commit(ctx, end.request.ending)
	r.member.markProcessesGone() // the git commands of the run are dead, too
	err := r.report.reportEnd(ctx, end)
	r.leased.markEnded() // its output may take longer
	r.output.wait(ctx)
	return err
}

func (r *run) launch(work context.Context) error {
	told := r.leased.process.current()
	r.workspace.removeOldFiles()
	dir, err := r.workspace.startDir()
	if err != nil {
		return fmt.Errorf(launchDetailPrefix+": %w", err)
	}
	if dir != nil {
		defer dir.Close()
	}
	if r.cfg.onStep != nil {
		r.cfg.onStep("launching")
	}
	lease := r.lease
	lease.WorkspacePath = r.workspace.path // the lease was granted before there was a workspace
	proc, err := r.cfg.Launcher.Launch(work, process.Job{
		Lease:    lease,
		Dir:      r.workspace.path,
		Env:      leaseEnv(lease, r.workspace.path, r.workspace.filesDir, r.proxy.BaseURL()),
		Stdout:   r.supervisor.stall.watchWriter(r.output.stdout),
		Stderr:   r.supervisor.stall.watchWriter(r.output.stderr),
		StateDir: r.workspace.stateDir,
		KillAt:   told,
		Used:     r.output.usage.add,
		Session:  r.supervisor.noteSession,
		Fail:     r.supervisor.failByLauncher,
		HeldDir:  dir,
	})
	if err != nil {
		return fmt.Errorf(launchDetailPrefix+": %w", err)
	}
	r.leased.process.attach(proc, told)
	r.supervisor.started(work, proc)
	r.log.Info("agent launched", "pid", proc.PID())
	r.emit(Event{Kind: EventLaunched, PID: proc.PID()})
	return nil
}

// recordLaunch writes run.launched into the event log before there is a process. An
// adapter that is killed between the two then leaves a task that waits for a process
// that never was, and not a process that nobody waits for. A proxy that is slow or away
// does not hold up the launch for long; it is told as soon as it is back.
func (r *run) recordLaunch(work context.Context) picket.RunEvent {
	ctx, cancel := context.WithTimeout(work, 2*time.Second)
	defer cancel()
	event := picket.RunEvent{Type: picket.EventRunLaunched, WorkspacePath: r.workspace.path}
	if h, ok := r.cfg.Launcher.(process.ContainmentPlanner); ok {
		event.Containment = h.PlannedContainment()
	}
	if x, ok := r.cfg.Launcher.(process.ExecSupporter); ok {
		event.Exec = x.SupportsExec()
	}
	if err := r.proxy.Events(ctx, event); err != nil {
		r.log.Warn("the start of the agent is not recorded yet", "err", err)
		r.output.events.add(event)
	}
	return event
}

// correctLaunch tells how the tree is really held, if that is not what was told.
func (r *run) correctLaunch(told picket.RunEvent) {
	proc := r.supervisor.end.proc
	_, can := proc.(process.Executor)
	if is := proc.Containment(); is != told.Containment || can != told.Exec {
		told.Containment, told.Exec = is, can
		r.output.events.add(told)
	}
}
