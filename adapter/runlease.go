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
	"github.com/picket-dev/picket/adapter/renewals"
	"github.com/picket-dev/picket/client"
)

// runLease keeps the lease of a run. It renews the lease, follows its changes, passes its deadline
// on to the process, and asks the supervisor to stop the process when the lease ends.
type runLease struct {
	*runScope
	keeper       *keeper
	registration *registration
	member       *registeredRun // what the registration knows of the run
	agent        *supervisor    // of the process under the lease
	process      processDeadline
	record       atomic.Pointer[runDirLock]
	leaseEnd     atomic.Int64       // on the clock, as last confirmed
	stopRenewing context.CancelFunc // ends the renewals of a lease that is gone
}

func newRunLease(scope *runScope, under *registration, member *registeredRun, agent *supervisor) *runLease {
	l := &runLease{runScope: scope, registration: under, member: member, agent: agent}
	l.keeper = &keeper{
		registration:     under,
		onHeartbeatAcked: l.extendDeadline,
		clock:            scope.cfg.clock,
		renew:            scope.proxy.Renew,
		member:           scope.renewalsMember(),
		window:           scope.window(),
		renewNow:         make(chan struct{}, 1),
		onRenewed:        l.onRenewed,
		onFailed:         l.onRenewFailed,
		onWarning:        l.onDeadlineWarning,
		onWarningRevoked: l.revokeWarning,
	}
	return l
}

// renewalsMember lets the lease be renewed with the others of this process. The request needs the key, which goes
// to a tool proxy only if its connection is as private as that to the orchestrator.
func (s *runScope) renewalsMember() *renewals.Member {
	server := s.proxy.BaseURL()
	if s.cfg.Key == "" || !renewals.AsPrivate(server, s.cfg.BaseURL) {
		server = ""
	}
	return s.cfg.renewals.Member(renewals.Lease{
		Server:     server,
		Credential: picket.LeaseToRenew{LeaseToken: s.lease.LeaseToken, FencingToken: s.lease.FencingToken},
		Alone:      s.proxy.Renew,
	})
}

// newRenewals makes the group of the leases that an adapter holds.
func newRenewals(cfg *Config) *renewals.Group {
	key, httpClient := cfg.Key, cfg.HTTP
	return renewals.New(renewals.Config{
		Clock: cfg.clock,
		Log:   cfg.Log,
		Send: func(ctx context.Context, server string, leases []picket.LeaseToRenew) ([]client.Renewed, error) {
			return newClient(server, key, httpClient).Leases.Renew(ctx, leases)
		},
	})
}

// confirm renews the lease for the first time.
func (l *runLease) confirm(ctx context.Context) error {
	first, err := l.keeper.confirm(ctx, l.unconfirmedTTL())
	if err != nil {
		return err
	}
	l.lease.LeaseExpiresAt = first.LeaseExpiresAt
	l.onRenewed(first)
	return nil
}

// keep starts the renewals, which last as long as work. It returns a context that
// ends with ctx and when the lease is gone.
func (l *runLease) keep(ctx, work context.Context, group *sync.WaitGroup) (held context.Context) {
	work, l.stopRenewing = context.WithCancel(work)
	held, gone := context.WithCancelCause(ctx)
	group.Go(func() {
		err := l.keeper.run(work)
		defer gone(err)
		if err != nil {
			l.onKeeperFailed(work, err)
		}
	})
	return held
}

// onKeeperFailed stops the agent of a lease that is not kept any more.
func (l *runLease) onKeeperFailed(work context.Context, err error) {
	stop := stopRequest{mode: stopKill, class: picket.ExitReleased, reason: err.Error()}
	switch {
	case errors.Is(err, errHeartbeatsUnacked),
		errors.Is(err, errRegistrationEnded) && routeMissing(l.registration.endCause()):
		stop.ownDeadline = true // the lease may still hold: it is given back
	case errors.Is(err, errRegistrationEnded):
		stop.ending, stop.class = EndLost, picket.ExitLeaseLost
	case errors.Is(err, errLeaseDeadline):
		stop.ending, stop.class = EndLost, picket.ExitLeaseLost
		stop.reason = "the lease could not be renewed in time"
	default:
		l.handleLeaseLoss(work, err)
		return
	}
	l.agent.requestStop(stop)
}

// letGo stops the renewals of a lease that has ended.
func (l *runLease) letGo() {
	l.stopRenewing()
	l.markEnded()
}

// markEnded tells the registration that the lease has ended.
func (l *runLease) markEnded() { l.member.leaseEnded.Store(true) }

// handleLeaseLoss handles a definite loss. A released lease was ended by a call of this
// very run or by its operator, so the proxy is asked what became of it. Every other loss
// kills at once.
func (l *runLease) handleLeaseLoss(work context.Context, err error) {
	w := picket.Watch{State: picket.WatchLost}
	switch picket.CodeOf(err) {
	case picket.CodeTaskCancelled:
		w.State = picket.WatchCancelled
	case picket.CodeLeaseReleased:
		ask, cancel := context.WithTimeout(work, time.Second)
		defer cancel()
		if got, news, err := l.proxy.Watch(ask, 0); err == nil && news {
			w = got
		}
	}
	l.log.Info("the lease is gone", "state", w.State, "err", err)
	l.onChange(w)
}

// checkUnknown asks what became of a lease that the registry does not know of. An
// agent that handed its result in a moment ago may still end on its own.
func (l *runLease) checkUnknown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	w, news, err := l.proxy.Watch(ctx, 0)
	if err != nil {
		w, news = picket.Watch{State: picket.WatchLost}, true
	}
	if news && w.State != picket.WatchReclaim {
		l.log.Info("the registry does not know this lease", "state", w.State, "err", err)
		l.onChange(w)
	}
}

func (l *runLease) onRenewed(got picket.Renewal) {
	l.leaseEnd.Store(int64(l.keeper.deadline()))
	l.agent.stall.renewed(got.IdleMs, l.cfg.clock()-l.keeper.confirmedAt)
	l.log.Debug("lease renewed", "expires", got.LeaseExpiresAt.String())
	l.extendDeadline() // before anything that waits for a disk
	if record := l.record.Load(); record != nil {
		if err := record.saveDeadline(l.keeper.remaining()); err != nil {
			l.log.Warn("a renewal cannot be noted", "dir", record.dir, "err", err)
		}
	}
	l.emit(Event{Kind: EventRenewed, ExpiresAt: got.LeaseExpiresAt, Remaining: l.keeper.remaining()})
	if !l.keeper.warned {
		l.revokeWarning() // it wakes the supervisor, which may have waited for the answer
	}
	l.agent.handleCommands(got.Commands)
}

func (l *runLease) onRenewFailed(err error) {
	left := l.keeper.remaining()
	level := slog.LevelDebug
	if l.keeper.failures == 1 { // the first says it all; the rest is detail
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, "lease not renewed yet", "err", err, "left", left)
	l.emit(Event{Kind: EventRenewFailed, Remaining: left, Reason: err.Error(), Err: err})
}

func (l *runLease) onDeadlineWarning() {
	l.agent.requestStop(stopRequest{
		mode:   stopTerm,
		class:  picket.ExitReleased,
		reason: "the adapter's own deadline is near: renewals or heartbeats are not answered",
	})
}

func (l *runLease) revokeWarning() { l.agent.requestStop(stopRequest{mode: stopRevoked}) }

// stopAfterLease says how the process of a lease ends that has ended so.
var stopAfterLease = map[picket.WatchState]stopRequest{
	picket.WatchCompleted: {mode: stopAfterLinger, ending: EndCompleted, reason: "the agent called mark_complete"},
	picket.WatchHandoff:   {mode: stopAfterLinger, ending: EndHandoff, reason: "the agent asked a person for help"},
	picket.WatchCancelled: {mode: stopKill, ending: EndCancelled, reason: "the task was cancelled"},
	picket.WatchLost: {mode: stopKill, ending: EndLost, class: picket.ExitLeaseLost,
		reason: "the lease was lost"},
}

// onChange turns what became of the lease into a stop request.
func (l *runLease) onChange(w picket.Watch) {
	if w.State == picket.WatchHeld {
		l.agent.handleCommands(w.Commands)
		return
	}
	stop, known := stopAfterLease[w.State]
	if !known {
		stop = stopAfterLease[picket.WatchLost]
	}
	l.agent.requestStop(stop)
}

// watchTimeout is how long one watch waits at the proxy.
const watchTimeout = 50 * time.Second

// watchLease reports every change of the lease until it has ended or ctx ends. Errors other than a
// definite loss are left to the keeper, and the watch is repeated. known are the programs that need
// not be sent again.
func watchLease(ctx context.Context, p *Proxy, known func() []string, changed func(picket.Watch)) {
	pace := backoff{least: 200 * time.Millisecond, most: 5 * time.Second}
	for ctx.Err() == nil {
		asked := time.Now()
		w, news, err := p.Watch(ctx, watchTimeout, known()...)
		if news && w.State == picket.WatchReclaim {
			news = false
			_, err = p.Reclaim(ctx)
		}
		if leaseLost(err) {
			w, news = picket.Watch{State: picket.WatchLost}, true
		}
		if news {
			changed(w)
			if w.State != picket.WatchHeld {
				return
			}
		}
		if err == nil {
			pace.reset()
			if time.Since(asked) > time.Second {
				continue
			}
		}
		// An error, or a server that answers at once: it is not to be hammered.
		if !pace.pause(ctx) {
			return
		}
	}
}

// lockDir notes the lease in the run's directory, under a lock that lasts until unlockDir.
func (l *runLease) lockDir(dir string) error {
	left := l.end() - killMargin(l.window()) - l.cfg.clock()
	record, err := lockRunDir(dir, l.cfg.StateKey, l.lease, l.proxy.BaseURL(), left)
	if err != nil {
		return err
	}
	l.record.Store(record)
	return nil
}

// unlockDir ends that lock. A lease whose end the server has not taken stays noted, so
// that the next adapter tries again.
func (l *runLease) unlockDir(reported bool) {
	record := l.record.Load()
	if record == nil {
		return
	}
	if err := record.unlock(reported); err != nil {
		l.log.Warn("the note of an ended lease cannot be deleted", "dir", record.dir, "err", err)
	}
}

// end is when the lease ends, on the clock, as last confirmed.
func (l *runLease) end() time.Duration { return time.Duration(l.leaseEnd.Load()) }

// processLeft is the time until the process must be dead.
func (l *runLease) processLeft() time.Duration { return l.process.current() - l.cfg.clock() }

// extendDeadline lets the agent go on, as far as lease and heartbeats allow.
func (l *runLease) extendDeadline() { l.process.extend(l.keeper.killAt()) }

// deadlineSlack is how much sooner than the adapter a process may act on a
// deadline that both know.
const deadlineSlack = 250 * time.Millisecond

// overdueRequest is the verdict on a process that ended because its deadline passed,
// which it may have seen a moment before the adapter did. If that was before the deadline
// of the lease, it was the deadline of the heartbeats, and the lease may still hold.
func (l *runLease) overdueRequest() stopRequest {
	late := l.end() - killMargin(l.keeper.window) - deadlineSlack
	if l.registration.incarnation != 0 && l.cfg.clock() < late {
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
