package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
)

// run is one lease on its way from grant to report.
type run struct {
	cfg    *Config
	lease  picket.Lease
	proxy  *Proxy
	log    *slog.Logger
	keeper *keeper
	slot   *slot // nil when nothing comes after the lease

	registration      *registration           // nil: not registered
	stop              context.CancelCauseFunc // gives the lease back now
	processesGone     chan struct{}           // closed when nothing of the run runs, nor will
	markProcessesGone func()                  // closes it

	paths      runPaths
	dirLock    atomic.Pointer[runDirLock]
	stdout     *outputStream
	stderr     *outputStream
	proc       process.Process
	launchedAt time.Duration
	ticker     *progressTicker // since the launch
	events     *eventQueue     // to the event log
	usage      *usageReporter  // of what its own output says it has used
	stall      *stallDetector  // its signs
	execs      *execRunner     // programs run beside it

	stopRequests chan stopRequest   // to the supervisor, from keeper and watch
	stopRenewing context.CancelFunc // ends the renewals of a lease that is gone
	leaseEnd     atomic.Int64       // on the clock, as last confirmed
	deadline     processDeadline    // the deadline that the process itself keeps
	signalled    bool               // the adapter has sent the process a signal
	result       Result
	workspace    runWorkspace // its hold on its directory
}

func (a *Adapter) newRun(lease picket.Lease, s *slot) *run {
	r := &run{
		slot:  s,
		cfg:   &a.cfg,
		lease: lease,
		proxy: NewProxy(lease, a.cfg.BaseURL, a.cfg.HTTP),
		log: a.cfg.Log.With("task", lease.TaskID, "run", lease.RunID, "fence", lease.FencingToken, "agent",
			a.cfg.AgentID),
		stopRequests:  make(chan stopRequest, 64),
		processesGone: make(chan struct{}),
		result:        Result{TaskID: lease.TaskID, RunID: lease.RunID, FencingToken: lease.FencingToken},
	}
	r.events = newEventQueue(r.proxy, r.log)
	r.usage = newUsageReporter(r.proxy, r.log, r.stopOnOverrun)
	r.stall = newStallDetector(lease, a.cfg.clock)
	r.execs = newExecRunner(r)
	r.markProcessesGone = closeOnce(r.processesGone)
	if s != nil {
		r.registration = s.registration
	}
	r.keeper = &keeper{
		registration:     r.registration,
		onHeartbeatAcked: r.extendDeadline,
		clock:            a.cfg.clock,
		renew:            r.renew,
		window:           time.Duration(lease.WindowMs) * time.Millisecond,
		renewNow:         make(chan struct{}, 1),
		onRenewed:        r.onRenewed,
		onFailed:         r.onRenewFailed,
		onWarning:        r.onDeadlineWarning,
		onWarningRevoked: r.revokeWarning,
	}
	return r
}

// execute takes the lease to its end. ctx ending means: give it back now.
func (r *run) execute(ctx context.Context) error {
	first, err := r.keeper.confirm(ctx, r.unconfirmedTTL())
	if err != nil {
		return r.confirmFailed(ctx, err)
	}
	r.lease.LeaseExpiresAt = first.LeaseExpiresAt
	r.onRenewed(first)

	// What follows outlives ctx: the end of a run is reported in any case.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	held := r.keepLease(ctx, work, &group)
	defer func() { r.unlockWorkspace(ctx) }()
	if err = r.prepare(held); err != nil {
		return r.prepareFailed(ctx, held, fmt.Errorf("prepare run: %w", err))
	}
	r.result.StateDir, r.result.Workspace = r.paths.stateDir, r.paths.workspace
	if err = r.lockRunDir(); err != nil {
		return r.launchFailed(ctx, fmt.Errorf("note lease: %w", err))
	}
	if ctx.Err() != nil || r.registration.isSilent() {
		return r.releaseUnlaunched(ctx)
	}
	if r.registration.isEnded() {
		r.markProcessesGone()
		return r.reportEndedLease(ctx, picket.Exit{Class: picket.ExitLeaseLost})
	}
	shipped := r.openOutputs(work, &group)
	told := r.recordLaunch(work)
	if err = r.launch(work); err != nil {
		r.closeOutputs()
		return r.launchFailed(ctx, err)
	}
	r.correctLaunch(told)
	v := r.mergeOverdue(r.supervise(ctx, work, &group))
	r.closeOutputs()
	r.commitWorkspace(ctx, v)
	r.markProcessesGone() // the git commands of the run are dead, too
	err = r.reportEnd(ctx, v)
	r.waitForShippers(ctx, shipped)
	return err
}

// unconfirmedTTL is how long an unconfirmed lease may live.
func (r *run) unconfirmedTTL() time.Duration {
	if ttl := time.Duration(r.lease.LeaseTTLMs) * time.Millisecond; ttl > 0 {
		return ttl
	}
	return 30 * time.Second
}

// keepLease starts what keeps the lease while the run lasts. It answers ctx, ended
// when the lease is gone, too.
func (r *run) keepLease(ctx, work context.Context, group *sync.WaitGroup) (held context.Context) {
	work, r.stopRenewing = context.WithCancel(work)
	held, gone := context.WithCancelCause(ctx)
	group.Go(func() {
		err := r.keeper.run(work)
		defer gone(err)
		switch {
		case err == nil:
		case errors.Is(err, errRegistrationEnded) && routeMissing(r.registration.endCause()): // so may this one
			r.requestStop(stopRequest{
				mode:        stopKill,
				class:       picket.ExitReleased,
				ownDeadline: true,
				reason:      err.Error(),
			})
		case errors.Is(err, errRegistrationEnded):
			r.requestStop(stopRequest{
				mode:   stopKill,
				ending: EndLost,
				class:  picket.ExitLeaseLost,
				reason: err.Error(),
			})
		case errors.Is(err, errHeartbeatsUnacked): // the lease may still hold: it is given back
			r.requestStop(stopRequest{
				mode:        stopKill,
				class:       picket.ExitReleased,
				ownDeadline: true,
				reason:      err.Error(),
			})
		case errors.Is(err, errLeaseDeadline):
			r.requestStop(stopRequest{
				mode:   stopKill,
				ending: EndLost,
				class:  picket.ExitLeaseLost,
				reason: "the lease could not be renewed in time",
			})
		default:
			r.handleLeaseLoss(work, err)
		}
	})
	return held
}

// handleLeaseLoss handles a definite loss. A released lease was ended by a verb of this
// very run or its operator, so it is asked what became of it; every other loss
// kills at once.
func (r *run) handleLeaseLoss(work context.Context, err error) {
	w := picket.Watch{State: picket.WatchLost}
	switch picket.CodeOf(err) {
	case picket.CodeTaskCancelled:
		w.State = picket.WatchCancelled
	case picket.CodeLeaseReleased:
		ask, cancel := context.WithTimeout(work, time.Second)
		defer cancel()
		if got, news, err := r.proxy.Watch(ask, 0); err == nil && news {
			w = got
		}
	}
	r.log.Info("the lease is gone", "state", w.State, "err", err)
	r.onLeaseChange(w)
}

func (r *run) launch(work context.Context) (err error) {
	told := r.deadline.current()
	r.removeNudge()
	dir, err := r.startDir()
	if err != nil {
		return fmt.Errorf(launchDetailPrefix+": %w", err)
	}
	if dir != nil {
		defer dir.Close()
	}
	if r.cfg.onStep != nil {
		r.cfg.onStep("launching")
	}
	r.proc, err = r.cfg.Launcher.Launch(work, process.Job{
		Lease:    r.lease,
		Dir:      r.paths.workspace,
		Env:      leaseEnv(r.lease, r.paths, r.proxy.BaseURL()),
		Stdout:   r.stall.watchWriter(r.stdout),
		Stderr:   r.stall.watchWriter(r.stderr),
		StateDir: r.paths.stateDir,
		KillAt:   told,
		Used:     r.usage.add,
		Fail:     r.failByLauncher,
		HeldDir:  dir,
	})
	if err != nil {
		return fmt.Errorf(launchDetailPrefix+": %w", err)
	}
	r.deadline.attach(r.proc, told)
	r.launchedAt = r.cfg.clock()
	r.stall.start()
	r.execs.begin(work, r.proc)
	r.log.Info("agent launched", "pid", r.proc.PID())
	r.emit(Event{Kind: EventLaunched, PID: r.proc.PID()})
	return nil
}

func (r *run) renew(ctx context.Context) (picket.Renewal, error) { return r.proxy.Renew(ctx) }

func (r *run) onRenewed(got picket.Renewal) {
	r.leaseEnd.Store(int64(r.keeper.deadline()))
	r.stall.renewed(got.IdleMs, r.cfg.clock()-r.keeper.confirmedAt)
	r.log.Debug("lease renewed", "expires", got.LeaseExpiresAt.String())
	r.recordRenewal()
	r.emit(Event{Kind: EventRenewed, ExpiresAt: got.LeaseExpiresAt, Remaining: r.keeper.remaining()})
	r.extendDeadline()
	if !r.keeper.warned {
		r.revokeWarning() // it wakes the supervisor, who may have waited for the answer
	}
	r.handleCommands(got.Commands)
}

// extendDeadline lets the agent go on, as far as lease and heartbeats allow.
func (r *run) extendDeadline() { r.deadline.extend(r.keeper.killAt()) }

func (r *run) revokeWarning() { r.requestStop(stopRequest{mode: stopRevoked}) }

func (r *run) onRenewFailed(err error) {
	left := r.keeper.remaining()
	level := slog.LevelDebug
	if r.keeper.failures == 1 { // the first says it all; the rest is detail
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "lease not renewed yet", "err", err, "left", left)
	r.emit(Event{Kind: EventRenewFailed, Remaining: left, Reason: err.Error(), Err: err})
}

func (r *run) onDeadlineWarning() {
	r.requestStop(stopRequest{
		mode:   stopTerm,
		class:  picket.ExitReleased,
		reason: "the adapter's own deadline is near: renewals or heartbeats are not answered",
	})
}

// onLeaseChange turns what became of the lease into an order.
func (r *run) onLeaseChange(w picket.Watch) {
	switch w.State {
	case picket.WatchHeld:
		r.handleCommands(w.Commands)
	case picket.WatchCompleted:
		r.requestStop(stopRequest{
			mode:   stopAfterLinger,
			ending: EndCompleted,
			reason: "the agent called mark_complete",
		})
	case picket.WatchHandoff:
		r.requestStop(stopRequest{
			mode:   stopAfterLinger,
			ending: EndHandoff,
			reason: "the agent asked a person for help",
		})
	case picket.WatchCancelled:
		r.requestStop(stopRequest{mode: stopKill, ending: EndCancelled, reason: "the task was cancelled"})
	default:
		r.requestStop(stopRequest{
			mode:   stopKill,
			ending: EndLost,
			class:  picket.ExitLeaseLost,
			reason: "the lease was lost",
		})
	}
}

func (r *run) handleCommands(commands []picket.Command) {
	for _, c := range commands {
		switch {
		case c.Command == "stop":
			r.requestStop(stopRequest{mode: stopTermThenKill, class: picket.ExitReleased, reason: "stop: " + c.Reason})
		// Of silence the adapter itself has told the store.
		case c.Command == "nudge" && r.stall.isNewNudge(c.Number) && c.Cause != picket.NudgeSilent:
			r.nudgeAgent(c.Cause, c.Reason)
		case c.Command == "exec" && c.Exec != nil:
			r.execs.startNew(*c.Exec)
		}
	}
}

// requestStop reaches the supervisor. It never blocks: the channel only fills when
// the process has ended and nobody takes orders any more.
func (r *run) requestStop(o stopRequest) {
	select {
	case r.stopRequests <- o:
	default:
	}
}

func (r *run) emit(e Event) {
	e.At, e.TaskID, e.RunID, e.FencingToken = time.Now(), r.lease.TaskID, r.lease.RunID, r.lease.FencingToken
	r.cfg.OnEvent(e)
}
