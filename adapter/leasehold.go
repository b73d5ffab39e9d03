package adapter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
)

// leaseHold keeps the lease of a run. It renews the lease, follows what becomes of it,
// passes its deadline on to the process, and asks the supervisor to stop the process
// when the lease ends.
type leaseHold struct {
	*runScope
	keeper       *keeper
	registration *registration  // nil: not registered
	member       *registeredRun // what the registration knows of the run
	agent        leasedAgent
	process      processDeadline
	record       atomic.Pointer[runDirLock]
	leaseEnd     atomic.Int64       // on the clock, as last confirmed
	stopRenewing context.CancelFunc // ends the renewals of a lease that is gone
}

// leasedAgent is the agent under a lease.
type leasedAgent interface {
	requestStop(stopRequest)
	handleCommands([]picket.Command)
	// renewed takes the age of the last tool call, as a request that was sent so long
	// ago was told. Nil means that there was no call.
	renewed(idleMs *int64, ago time.Duration)
}

func newLeaseHold(scope *runScope, under *registration, member *registeredRun, agent leasedAgent) *leaseHold {
	h := &leaseHold{runScope: scope, registration: under, member: member, agent: agent}
	h.keeper = &keeper{
		registration:     under,
		onHeartbeatAcked: h.extendDeadline,
		clock:            scope.cfg.clock,
		renew:            scope.proxy.Renew,
		window:           scope.window(),
		renewNow:         make(chan struct{}, 1),
		onRenewed:        h.onRenewed,
		onFailed:         h.onRenewFailed,
		onWarning:        h.onDeadlineWarning,
		onWarningRevoked: h.revokeWarning,
	}
	return h
}

// confirm renews the lease for the first time.
func (h *leaseHold) confirm(ctx context.Context) error {
	first, err := h.keeper.confirm(ctx, h.unconfirmedTTL())
	if err != nil {
		return err
	}
	h.lease.LeaseExpiresAt = first.LeaseExpiresAt
	h.onRenewed(first)
	return nil
}

// keep starts the renewals, which last as long as work. It returns a context that
// ends with ctx and when the lease is gone.
func (h *leaseHold) keep(ctx, work context.Context, group *sync.WaitGroup) (held context.Context) {
	work, h.stopRenewing = context.WithCancel(work)
	held, gone := context.WithCancelCause(ctx)
	group.Go(func() {
		err := h.keeper.run(work)
		defer gone(err)
		if err != nil {
			h.onKeeperFailed(work, err)
		}
	})
	return held
}

// onKeeperFailed stops the agent of a lease that is not kept any more.
func (h *leaseHold) onKeeperFailed(work context.Context, err error) {
	stop := stopRequest{mode: stopKill, class: picket.ExitReleased, reason: err.Error()}
	switch {
	case errors.Is(err, errHeartbeatsUnacked),
		errors.Is(err, errRegistrationEnded) && routeMissing(h.registration.endCause()):
		stop.ownDeadline = true // the lease may still hold: it is given back
	case errors.Is(err, errRegistrationEnded):
		stop.ending, stop.class = EndLost, picket.ExitLeaseLost
	case errors.Is(err, errLeaseDeadline):
		stop.ending, stop.class = EndLost, picket.ExitLeaseLost
		stop.reason = "the lease could not be renewed in time"
	default:
		h.handleLeaseLoss(work, err)
		return
	}
	h.agent.requestStop(stop)
}

// letGo stops the renewals of a lease that has ended.
func (h *leaseHold) letGo() {
	h.stopRenewing()
	h.markEnded()
}

// markEnded tells the registration that the lease has ended.
func (h *leaseHold) markEnded() { h.registration.markLeaseEnded(h.member) }

// handleLeaseLoss handles a definite loss. A released lease was ended by a call of this
// very run or by its operator, so the proxy is asked what became of it. Every other loss
// kills at once.
func (h *leaseHold) handleLeaseLoss(work context.Context, err error) {
	w := picket.Watch{State: picket.WatchLost}
	switch picket.CodeOf(err) {
	case picket.CodeTaskCancelled:
		w.State = picket.WatchCancelled
	case picket.CodeLeaseReleased:
		ask, cancel := context.WithTimeout(work, time.Second)
		defer cancel()
		if got, news, err := h.proxy.Watch(ask, 0); err == nil && news {
			w = got
		}
	}
	h.log.Info("the lease is gone", "state", w.State, "err", err)
	h.onChange(w)
}

// checkUnknown asks what became of a lease that the registry does not know of. An
// agent that handed its result in a moment ago may still end on its own.
func (h *leaseHold) checkUnknown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	w, news, err := h.proxy.Watch(ctx, 0)
	if err != nil {
		w, news = picket.Watch{State: picket.WatchLost}, true
	}
	if news && w.State != picket.WatchReclaim {
		h.log.Info("the registry knows of no lease", "state", w.State, "err", err)
		h.onChange(w)
	}
}

func (h *leaseHold) onRenewed(got picket.Renewal) {
	h.leaseEnd.Store(int64(h.keeper.deadline()))
	h.agent.renewed(got.IdleMs, h.cfg.clock()-h.keeper.confirmedAt)
	h.log.Debug("lease renewed", "expires", got.LeaseExpiresAt.String())
	if record := h.record.Load(); record != nil {
		if err := record.saveDeadline(h.keeper.remaining()); err != nil {
			h.log.Warn("a renewal cannot be noted", "dir", record.dir, "err", err)
		}
	}
	h.emit(Event{Kind: EventRenewed, ExpiresAt: got.LeaseExpiresAt, Remaining: h.keeper.remaining()})
	h.extendDeadline()
	if !h.keeper.warned {
		h.revokeWarning() // it wakes the supervisor, which may have waited for the answer
	}
	h.agent.handleCommands(got.Commands)
}

func (h *leaseHold) onRenewFailed(err error) {
	left := h.keeper.remaining()
	level := slog.LevelDebug
	if h.keeper.failures == 1 { // the first says it all; the rest is detail
		level = slog.LevelWarn
	}
	h.log.Log(context.Background(), level, "lease not renewed yet", "err", err, "left", left)
	h.emit(Event{Kind: EventRenewFailed, Remaining: left, Reason: err.Error(), Err: err})
}

func (h *leaseHold) onDeadlineWarning() {
	h.agent.requestStop(stopRequest{
		mode:   stopTerm,
		class:  picket.ExitReleased,
		reason: "the adapter's own deadline is near: renewals or heartbeats are not answered",
	})
}

func (h *leaseHold) revokeWarning() { h.agent.requestStop(stopRequest{mode: stopRevoked}) }

// onChange turns what became of the lease into a stop request.
func (h *leaseHold) onChange(w picket.Watch) {
	switch w.State {
	case picket.WatchHeld:
		h.agent.handleCommands(w.Commands)
	case picket.WatchCompleted:
		h.agent.requestStop(stopRequest{
			mode:   stopAfterLinger,
			ending: EndCompleted,
			reason: "the agent called mark_complete",
		})
	case picket.WatchHandoff:
		h.agent.requestStop(stopRequest{
			mode:   stopAfterLinger,
			ending: EndHandoff,
			reason: "the agent asked a person for help",
		})
	case picket.WatchCancelled:
		h.agent.requestStop(stopRequest{mode: stopKill, ending: EndCancelled, reason: "the task was cancelled"})
	default:
		h.agent.requestStop(stopRequest{
			mode:   stopKill,
			ending: EndLost,
			class:  picket.ExitLeaseLost,
			reason: "the lease was lost",
		})
	}
}

// lockDir notes the lease in the run's directory, under a lock that lasts until unlockDir.
func (h *leaseHold) lockDir(dir string) error {
	left := h.end() - killMargin(h.window()) - h.cfg.clock()
	record, err := lockRunDir(dir, h.cfg.StateKey, h.lease, h.proxy.BaseURL(), left)
	if err != nil {
		return err
	}
	h.record.Store(record)
	return nil
}

// unlockDir ends that lock. A lease whose end the server has not taken stays noted, so
// that the next adapter tries again.
func (h *leaseHold) unlockDir(reported bool) {
	record := h.record.Load()
	if record == nil {
		return
	}
	if err := record.unlock(reported); err != nil {
		h.log.Warn("the note of an ended lease cannot be deleted", "dir", record.dir, "err", err)
	}
}

// end is when the lease ends, on the clock, as last confirmed.
func (h *leaseHold) end() time.Duration { return time.Duration(h.leaseEnd.Load()) }

// processLeft is the time until the process must be dead.
func (h *leaseHold) processLeft() time.Duration { return h.process.current() - h.cfg.clock() }

// renewSoon asks for a renewal now, for what its answer tells.
func (h *leaseHold) renewSoon() { h.keeper.renewSoon() }

// extendDeadline lets the agent go on, as far as lease and heartbeats allow.
func (h *leaseHold) extendDeadline() { h.process.extend(h.keeper.killAt()) }

// deadlineSlack is how much sooner than the adapter a process may act on a
// deadline that both know.
const deadlineSlack = 250 * time.Millisecond

// overdueRequest is the verdict on a process that ended because its deadline passed,
// which it may have seen a moment before the adapter did. If that was before the deadline
// of the lease, it was the deadline of the heartbeats, and the lease may still hold.
func (h *leaseHold) overdueRequest() stopRequest {
	late := h.end() - killMargin(h.keeper.window) - deadlineSlack
	if h.registration != nil && h.cfg.clock() < late {
		return stopRequest{mode: stopKill, class: picket.ExitReleased, ownDeadline: true}
	}
	return stopRequest{mode: stopKill, ending: EndLost, class: picket.ExitLeaseLost}
}

// processDeadline carries the deadline of a run to its process, which is started after
// the first deadline is known.
type processDeadline struct {
	mu     sync.Mutex
	killAt time.Duration
	proc   process.DeadlineKeeper
}

// extend sets the time by which the tree must be dead.
func (d *processDeadline) extend(at time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at == d.killAt {
		return
	}
	d.killAt = at
	if d.proc != nil {
		d.proc.KillAt(at)
	}
}

// current is the deadline so far, for the start of a process.
func (d *processDeadline) current() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.killAt
}

// attach passes later deadlines on to a process that was started with the deadline told.
func (d *processDeadline) attach(p process.Process, told time.Duration) {
	keeper, ok := p.(process.DeadlineKeeper)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.proc = keeper; d.killAt != told {
		keeper.KillAt(d.killAt)
	}
}
