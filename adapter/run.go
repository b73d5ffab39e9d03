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
)

// run is one lease on its way from grant to report.
type run struct {
	cfg   *Config
	lease picket.Lease
	proxy *Proxy
	log   *slog.Logger
	keep  *keeper
	slot  *slot // nil when nothing comes after the lease

	session *session                // nil: not registered
	stop    context.CancelCauseFunc // gives the lease back now
	vacant  chan struct{}           // closed when nothing of the run runs, nor will
	leave   func()                  // closes it

	places     places
	claimed    atomic.Pointer[claim]
	stdout     *output
	stderr     *output
	proc       Process
	launchedAt time.Duration
	pulse      *pulse   // since the launch
	events     *courier // to the event log
	meter      *meter   // of what its own output says it has used
	life       *life    // its signs
	execs      *execs   // programs run beside it

	orders   chan order         // to the supervisor, from keeper and watch
	stopKeep context.CancelFunc // ends the renewals of a lease that is gone
	leaseEnd atomic.Int64       // on the clock, as last confirmed
	reins    reins              // the deadline that the process itself keeps
	forced   bool               // the adapter has sent the process a signal
	result   Result
	work     work // its hold on its directory
}

func (a *Adapter) newRun(lease picket.Lease, s *slot) *run {
	r := &run{
		slot:  s,
		cfg:   &a.cfg,
		lease: lease,
		proxy: NewProxy(lease, a.cfg.BaseURL, a.cfg.HTTP),
		log: a.cfg.Log.With("task", lease.TaskID, "run", lease.RunID, "fence", lease.FencingToken, "agent",
			a.cfg.AgentID),
		orders: make(chan order, 64),
		vacant: make(chan struct{}),
		result: Result{TaskID: lease.TaskID, RunID: lease.RunID, FencingToken: lease.FencingToken},
	}
	r.events = newCourier(r.proxy, r.log)
	r.meter = newMeter(r.proxy, r.log, r.spent)
	r.life = newLife(lease, a.cfg.clock)
	r.execs = newExecs(r)
	r.leave = closeOnce(r.vacant)
	if s != nil {
		r.session = s.session
	}
	r.keep = &keeper{
		session:   r.session,
		onHeard:   r.heard,
		clock:     a.cfg.clock,
		renew:     r.renew,
		window:    time.Duration(lease.WindowMs) * time.Millisecond,
		asked:     make(chan struct{}, 1),
		onRenewed: r.renewed,
		onFailed:  r.renewFailed,
		onWarning: r.warned,
		onCalm:    r.calmed,
	}
	return r
}

// do takes the lease to its end. ctx ending means: give it back now.
func (r *run) do(ctx context.Context) error {
	first, err := r.keep.confirm(ctx, r.firstWindow())
	if err != nil {
		return r.unconfirmed(ctx, err)
	}
	r.lease.LeaseExpiresAt = first.LeaseExpiresAt
	r.renewed(first)

	// What follows outlives ctx: the end of a run is reported in any case.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	held := r.hold(ctx, work, &group)
	defer func() { r.leaveWork(ctx) }()
	if err = r.prepare(held); err != nil {
		return r.unprepared(ctx, held, fmt.Errorf("prepare run: %w", err))
	}
	r.result.StateDir, r.result.Workspace = r.places.state, r.places.workspace
	if err = r.claim(); err != nil {
		return r.stillborn(ctx, fmt.Errorf("note lease: %w", err))
	}
	if ctx.Err() != nil || r.session.silent() {
		return r.unlaunched(ctx)
	}
	if r.session.isOver() {
		r.leave()
		return r.overtaken(ctx, picket.Exit{Class: picket.ExitLeaseLost})
	}
	shipped := r.openOutputs(work, &group)
	told := r.announce(work)
	if err = r.launch(work); err != nil {
		r.closeOutputs()
		return r.stillborn(ctx, err)
	}
	r.correct(told)
	v := r.overdue(r.supervise(ctx, work, &group))
	r.closeOutputs()
	r.keepWork(ctx, v)
	r.leave() // the git commands of the run are dead, too
	err = r.settle(ctx, v)
	r.flush(ctx, shipped)
	return err
}

// firstWindow is how long an unconfirmed lease may live.
func (r *run) firstWindow() time.Duration {
	if ttl := time.Duration(r.lease.LeaseTTLMs) * time.Millisecond; ttl > 0 {
		return ttl
	}
	return 30 * time.Second
}

// hold starts what keeps the lease while the run lasts. It answers ctx, ended
// when the lease is gone, too.
func (r *run) hold(ctx, work context.Context, group *sync.WaitGroup) (held context.Context) {
	work, r.stopKeep = context.WithCancel(work)
	held, gone := context.WithCancelCause(ctx)
	group.Go(func() {
		err := r.keep.keep(work)
		defer gone(err)
		switch {
		case err == nil:
		case errors.Is(err, errOver) && noRoute(r.session.why()): // so may this one
			r.order(order{how: killNow, class: picket.ExitReleased, own: true, reason: err.Error()})
		case errors.Is(err, errOver):
			r.order(order{how: killNow, ending: EndLost, class: picket.ExitLeaseLost, reason: err.Error()})
		case errors.Is(err, errSilent): // the lease may still hold: it is given back
			r.order(order{how: killNow, class: picket.ExitReleased, own: true, reason: err.Error()})
		case errors.Is(err, errDeadline):
			r.order(order{
				how:    killNow,
				ending: EndLost,
				class:  picket.ExitLeaseLost,
				reason: "the lease could not be renewed in time",
			})
		default:
			r.lostTo(work, err)
		}
	})
	return held
}

// lostTo handles a definite loss. A released lease was ended by a verb of this
// very run or its operator, so it is asked what became of it; every other loss
// kills at once.
func (r *run) lostTo(work context.Context, err error) {
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
	r.watched(w)
}

func (r *run) launch(work context.Context) (err error) {
	told := r.reins.first()
	r.forgetNudge()
	dir, err := r.startDir()
	if err != nil {
		return fmt.Errorf(launching+": %w", err)
	}
	if dir != nil {
		defer dir.Close()
	}
	(&workspaces{cfg: r.cfg}).at("launching")
	r.proc, err = r.cfg.Launcher.Launch(work, Job{
		Lease:    r.lease,
		Dir:      r.places.workspace,
		Env:      environ(r.lease, r.places, r.proxy.BaseURL()),
		Stdout:   r.life.mark(r.stdout),
		Stderr:   r.life.mark(r.stderr),
		StateDir: r.places.state,
		KillAt:   told,
		Used:     r.meter.add,
		Fail:     r.fail,
		dir:      dir,
	})
	if err != nil {
		return fmt.Errorf(launching+": %w", err)
	}
	r.reins.hand(r.proc, told)
	r.launchedAt = r.cfg.clock()
	r.life.begin()
	r.execs.begin(work, r.proc)
	r.log.Info("agent launched", "pid", r.proc.PID())
	r.tell(Event{Kind: EventLaunched, PID: r.proc.PID()})
	return nil
}

func (r *run) renew(ctx context.Context) (picket.Renewal, error) { return r.proxy.Renew(ctx) }

func (r *run) renewed(got picket.Renewal) {
	r.leaseEnd.Store(int64(r.keep.deadline()))
	r.life.heard(got.IdleMs, r.cfg.clock()-r.keep.from)
	r.log.Debug("lease renewed", "expires", got.LeaseExpiresAt.String())
	r.noteRenewal()
	r.tell(Event{Kind: EventRenewed, ExpiresAt: got.LeaseExpiresAt, Remaining: r.keep.remaining()})
	r.heard()
	if !r.keep.warned {
		r.calmed() // it wakes the supervisor, who may have waited for the answer
	}
	r.obey(got.Commands)
}

// heard lets the agent go on, as far as lease and heartbeats allow.
func (r *run) heard() { r.reins.extend(r.keep.killAt()) }

func (r *run) calmed() { r.order(order{how: carryOn}) }

func (r *run) renewFailed(err error) {
	left := r.keep.remaining()
	level := slog.LevelDebug
	if r.keep.failures == 1 { // the first says it all; the rest is detail
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "lease not renewed yet", "err", err, "left", left)
	r.tell(Event{Kind: EventRenewFailed, Remaining: left, Reason: err.Error(), Err: err})
}

func (r *run) warned() {
	r.order(order{
		how:    terminate,
		class:  picket.ExitReleased,
		reason: "the adapter's own deadline is near: renewals or heartbeats are not answered",
	})
}

// watched turns what became of the lease into an order.
func (r *run) watched(w picket.Watch) {
	switch w.State {
	case picket.WatchHeld:
		r.obey(w.Commands)
	case picket.WatchCompleted:
		r.order(order{how: lingering, ending: EndCompleted, reason: "the agent called mark_complete"})
	case picket.WatchHandoff:
		r.order(order{how: lingering, ending: EndHandoff, reason: "the agent asked a person for help"})
	case picket.WatchCancelled:
		r.order(order{how: killNow, ending: EndCancelled, reason: "the task was cancelled"})
	default:
		r.order(order{how: killNow, ending: EndLost, class: picket.ExitLeaseLost, reason: "the lease was lost"})
	}
}

func (r *run) obey(commands []picket.Command) {
	for _, c := range commands {
		switch {
		case c.Command == "stop":
			r.order(order{how: terminateThenKill, class: picket.ExitReleased, reason: "stop: " + c.Reason})
		// Of silence the adapter itself has told the store.
		case c.Command == "nudge" && r.life.fresh(c.Number) && c.Cause != picket.NudgeSilent:
			r.nudge(c.Cause, c.Reason)
		case c.Command == "exec" && c.Exec != nil:
			r.execs.take(*c.Exec)
		}
	}
}

// order reaches the supervisor. It never blocks: the channel only fills when
// the process has ended and nobody takes orders any more.
func (r *run) order(o order) {
	select {
	case r.orders <- o:
	default:
	}
}

func (r *run) tell(e Event) {
	e.At, e.TaskID, e.RunID, e.FencingToken = time.Now(), r.lease.TaskID, r.lease.RunID, r.lease.FencingToken
	r.cfg.OnEvent(e)
}
