package adapter

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/client"
)

// dispatcher is one Run of an adapter: the slots for leases and who fills them.
type dispatcher struct {
	*Adapter
	runsCtx       context.Context // ends with ReleaseNow
	acquireCtx    context.Context // ends with the drain, too
	stopAcquiring func()          // ends asking
	orphansEnded  bool            // all that dead adapters have left was ended
	group         *sync.WaitGroup
	slots         chan struct{} // one token for each lease, and for each that is asked for
	acquiring     atomic.Int32  // how many slots the acquire under way would fill

	taking sync.Mutex // held while the group of a run on request is added to
	closed bool       // the group is waited for: no more runs on request
}

// slot is the place of one lease among those held at once. Its run alone uses
// it.
type slot struct {
	*dispatcher
	registration *registration // under which the lease was granted
	handedOver   bool          // to the next lease
}

// start runs a lease in a slot that is taken.
func (w *dispatcher) start(lease picket.Lease, under *registration) {
	w.group.Go(func() {
		s := &slot{dispatcher: w, registration: under}
		defer s.free()
		ctx := w.runsCtx
		if w.acquireCtx.Err() != nil { // it came too late: it goes back at once
			ctx = w.acquireCtx
		}
		_, _ = newRun(&w.cfg, lease, under, s).do(ctx) // it was logged
	})
}

func (s *slot) free() {
	if !s.handedOver {
		<-s.slots
	}
}

// startNext gives the slot to another lease, which starts now: what is left to do
// for the old run, such as evidence and output, goes on beside it.
func (s *slot) startNext(lease picket.Lease) {
	s.handedOver = true
	s.start(lease, s.registration)
}

// shouldAdvance reports whether a task that is completed here should be swapped for
// the next one: not while an acquire waits with other slots, which gets the
// next task anyway, nor in a drain.
func (s *slot) shouldAdvance() bool {
	return s.acquireCtx.Err() == nil && !s.registration.isEnded() && !s.registration.isSilent() &&
		s.acquiring.Load() == 0 && !s.noAdvance.Load()
}

// advance completes the task of a lease, and starts the next one if there is one. It asks
// until it knows what came of it, for a while: a lease whose grant was lost on the way
// comes with the repetition.
func (s *slot) advance(ctx context.Context, done picket.Lease, output picket.RawJSON) (picket.TaskState, error) {
	req := picket.AdvanceRequest{
		LeaseToken:   done.LeaseToken,
		FencingToken: done.FencingToken,
		Output:       output,
		Acquire:      s.cfg.request(1),
	}
	req.Acquire.Incarnation = s.registration.incarnation
	req.Acquire.SeparateCredentials = !s.noSeparateCredentials.Load()
	req.Acquire.WaitSeconds = new(int) // none: the result must not wait for other people's tasks
	once, until := newULID(), s.cfg.clock()+reportTimeout
	for pace := (backoff{least: 200 * time.Millisecond, most: 2 * time.Second}); ; {
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(until-s.cfg.clock(), time.Second))
		got, err := s.client.Leases.Advance(try, req, client.WithIdempotencyKey(once))
		cancel()
		switch {
		case err == nil:
			for _, lease := range got.Leases {
				s.startNext(lease)
			}
			return got.State, nil
		case routeMissing(err):
			s.noAdvance.Store(true)
			return "", err
		case !isRetryable(err) || s.cfg.clock() >= until || !pace.pause(ctx):
			return "", err
		}
	}
}

// serve registers, works and sends heartbeats until the drain is over. A registration that the
// registry ended for silence, or forgot, is followed by the next one, once
// nothing runs under it any more.
func (w *dispatcher) serve() error {
	m := &registrar{
		Adapter:           w.Adapter,
		orphansEnded:      w.orphansEnded,
		sweepOrphansAgain: func() bool { return w.sweepOrphans(w.acquireCtx, w.group) },
		onDrain: sync.OnceFunc(func() {
			if w.acquireCtx.Err() == nil {
				w.cfg.Log.Info("draining: the registry asks for it", "agent", w.cfg.AgentID)
			}
			w.stopAcquiring()
		}),
	}
	defer m.unlockAgentID()
	for {
		s, err := m.registerWithRetry(w.acquireCtx)
		if err == nil {
			err = w.serveRegistration(s, m.onDrain)
			m.deregistered = s != nil && endedOnPurpose(s.endCause())
		}
		switch {
		case errors.Is(err, errRegistrationEnded):
			continue
		case w.acquireCtx.Err() != nil && errors.Is(err, w.acquireCtx.Err()):
			return nil
		}
		return err
	}
}

// serveRegistration works under one registration, whose end is errRegistrationEnded.
func (w *dispatcher) serveRegistration(s *registration, drained func()) error {
	if s == nil {
		err := w.acquireAndStart(w.acquireCtx, unregistered(&w.cfg))
		if errors.Is(err, picket.CodeAgentDraining) { // somebody else has registered the id
			drained()
		}
		return w.waitForRuns(err)
	}
	beating, still := context.WithCancel(context.WithoutCancel(w.acquireCtx))
	defer still()
	silence := make(chan struct{})
	go func() { defer close(silence); s.sendHeartbeats(beating) }()
	endBeside := w.runBeside(s)
	defer endBeside()
	taking, stop := context.WithCancel(w.acquireCtx)
	defer stop()
	defer context.AfterFunc(s.ctx, stop)()
	err := w.acquireAndStart(taking, s)
	switch {
	case errors.Is(err, picket.CodeAgentGone):
		s.end(err)
	case errors.Is(err, picket.CodeAgentDraining):
		drained()
	}
	if s.isEnded() && w.acquireCtx.Err() == nil {
		still()
		<-silence
		endBeside()
		return w.afterRegistration(s)
	}
	s.announceDrain()
	err = w.waitForRuns(err)
	endBeside()
	s.deregister()
	still()
	<-silence
	return err
}

// runBeside calls WhileRegistered for a registration. The function that it returns ends that, and waits
// until it has ended.
func (w *dispatcher) runBeside(s *registration) (end func()) {
	if w.cfg.WhileRegistered == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.cfg.WhileRegistered(ctx, Registered{AgentID: w.cfg.AgentID, Incarnation: s.incarnation, dispatcher: w,
			registration: s})
	}()
	return func() { cancel(); <-done }
}

// waitForRuns waits until what runs has ended. Being told to drain is not an error.
func (w *dispatcher) waitForRuns(err error) error {
	drained := w.acquireCtx.Err() != nil
	w.stopAcquiring()
	w.taking.Lock()
	w.closed = true
	w.taking.Unlock()
	w.group.Wait()
	if drained {
		return nil
	}
	return err
}

// afterRegistration waits for the end of what ran under a registration that the registry
// has ended, and answers whether another one follows.
func (w *dispatcher) afterRegistration(s *registration) error {
	err := s.endCause()
	log := w.cfg.Log.With("agent", w.cfg.AgentID, "incarnation", s.incarnation)
	switch {
	case endedByDrain(err): // before this side knew of it
		log.Warn("drained by the registry", "err", err)
		return w.waitForRuns(nil)
	case endedOnPurpose(err):
		log.Error("removed from the registry: ending all work")
		s.waitForProcesses()
		return w.waitForRuns(removedByOperator(w.cfg.AgentID))
	}
	log.Warn("the registry takes this adapter for dead: ending all work before it registers again", "err", err)
	s.waitForProcesses()
	return errRegistrationEnded
}

// Run leases tasks and runs them until ctx is cancelled or the registry asks for a drain. Then it
// takes no new lease, waits until the runs have finished, and leaves the registry. First it ends
// what adapters that died have left in StateDir, and registers. One that the registry takes for
// dead ends all its work, registers again and goes on. It returns nil after a drain, and an error
// when the orchestrator refuses the adapter permanently, such as for a revoked key, or when an
// operator has removed it ([picket.CodeAgentGone]).
func (a *Adapter) Run(ctx context.Context) error {
	a.cfg.deleteOldRuns(time.Now())
	runs, stop := a.withReleaseNow(context.WithoutCancel(ctx))
	defer stop()
	var group sync.WaitGroup
	defer group.Wait()
	asking, stopAsking := context.WithCancel(ctx)
	defer stopAsking()
	defer context.AfterFunc(runs, stopAsking)()
	clean := a.sweepOrphans(asking, &group)
	group.Go(func() { a.collectWorkspaces(asking) })
	// Workers that were started at once, such as after a deployment, do not all
	// ask at once. Anyone who serves one agent id competes with nobody.
	if !a.cfg.PinnedOnly && !sleep(asking, a.cfg.jitter(startJitter)) {
		return nil
	}
	w := &dispatcher{
		Adapter:       a,
		runsCtx:       runs,
		acquireCtx:    asking,
		stopAcquiring: stopAsking,
		orphansEnded:  clean,
		group:         &group,
		slots:         make(chan struct{}, a.cfg.Max),
	}
	return w.serve()
}

// acquireAndStart takes leases and starts their runs, under a registration, until ctx ends.
func (w *dispatcher) acquireAndStart(ctx context.Context, under *registration) error {
	if w.cfg.TakeOnRequest {
		w.cfg.Log.Info("waiting for requests to take a task", "agent", w.cfg.AgentID, "server", w.cfg.BaseURL)
		<-ctx.Done()
		return ctx.Err()
	}
	w.cfg.Log.Info("waiting for tasks", "agent", w.cfg.AgentID, "server", w.cfg.BaseURL)
	for {
		if err := under.waitUntilAcked(ctx); err != nil {
			return err
		}
		free, err := takeSlots(ctx, w.slots)
		if err != nil {
			return err
		}
		w.acquiring.Store(int32(free))
		leases, err := w.acquire(ctx, free, under.incarnation)
		w.acquiring.Store(0)
		for range free - len(leases) {
			<-w.slots
		}
		if err != nil {
			return err
		}
		for _, lease := range leases {
			w.start(lease, under)
		}
	}
}

// startJitter is how far the first requests of workers started together lie apart.
const startJitter = 250 * time.Millisecond

// takeSlots waits for a free slot and takes all that are free.
func takeSlots(ctx context.Context, slots chan struct{}) (int, error) {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for n := 1; ; n++ {
		select {
		case slots <- struct{}{}:
		default:
			return n, ctx.Err()
		}
	}
}

// acquire asks until at least one lease is granted. A request whose reply was
// lost is repeated with the same key, so that its leases are not lost with it.
func (a *Adapter) acquire(ctx context.Context, n int, incarnation int64) ([]picket.Lease, error) {
	pace := backoff{least: 250 * time.Millisecond, most: 15 * time.Second, jitter: a.cfg.jitter}
	// A key stands for one request to the letter: with another wait it would be
	// another one.
	var once string
	var req picket.AcquireRequest
	another := func() {
		once, req = newULID(), a.cfg.requestWithJitter(n)
		req.Incarnation, req.SeparateCredentials = incarnation, !a.noSeparateCredentials.Load()
	}
	another()
	for {
		asked := time.Now()
		leases, err := a.client.Leases.Acquire(ctx, req, client.WithIdempotencyKey(once))
		switch {
		case ctx.Err() != nil && len(leases) == 0:
			return nil, ctx.Err()
		case err == nil && len(leases) > 0:
			return leases, nil
		case err == nil && time.Since(asked) > time.Second:
			another()
			pace.reset()
			continue
		case lacksSeparateCredentials(err):
			a.noSeparateCredentials.Store(true)
			a.cfg.Log.Warn("the server is an earlier version, so adapter and agent share one credential; update the server", "server", a.cfg.BaseURL)
			another()
			continue
		case err != nil && !errors.Is(err, picket.ErrUnknown): // the next try stands for itself
			another()
			if !isRetryable(err) && !leaseLost(err) && !errors.Is(err, picket.CodeInternal) {
				return nil, err
			}
		case err == nil:
			another()
		}
		if err != nil {
			a.cfg.Log.Warn("no lease yet", "agent", a.cfg.AgentID, "err", err)
		}
		if !pace.pauseAfter(ctx, err) {
			return nil, ctx.Err()
		}
	}
}

// lacksSeparateCredentials reports whether the server does not know separateCredentials.
func lacksSeparateCredentials(err error) bool {
	return errors.Is(err, picket.CodeValidation) && textFact(err, "field") == "/separateCredentials"
}

// RunLease runs one lease to its end. Cancelling ctx, or ReleaseNow, kills the
// process tree and gives the lease back with class released. The error says
// why the agent could not be started or its end not be reported; the result is
// valid beside it.
func (a *Adapter) RunLease(ctx context.Context, lease picket.Lease) (Result, error) {
	ctx, stop := a.withReleaseNow(ctx)
	defer stop()
	return newRun(&a.cfg, lease, unregistered(&a.cfg), nil).do(ctx)
}

// Registered is a registration of a worker, while it lasts.
type Registered struct {
	AgentID string
	// Incarnation distinguishes the registrations of one agent id. A later one has a higher number.
	Incarnation int64

	dispatcher   *dispatcher
	registration *registration
}

// TakeTask leases one task, if one waits that this worker would get, and runs it to its end. A coding agent goes on
// with a conversation. TakeTask calls started with the id of the task before the run begins. It reports false, and
// waits for nothing, if there is no such task, if the worker works on as many tasks as it may, or if it drains. If
// ctx ends, the process tree is killed and the lease is given back. Otherwise the run is like any other.
func (r Registered) TakeTask(ctx context.Context, with agents.Conversation,
	started func(taskID string)) (taken bool, err error) {
	w := r.dispatcher
	ctx, stop := w.withReleaseNow(ctx)
	defer stop()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if !w.beginTaking() {
		return false, nil
	}
	defer w.group.Done()
	select {
	case w.slots <- struct{}{}:
	default:
		return false, nil
	}
	defer func() { <-w.slots }()
	lease, err := w.acquireNow(ctx, r.Incarnation)
	if err != nil || lease.LeaseToken == "" {
		return false, err
	}
	if err := ctx.Err(); err != nil { // it came too late: it goes back at once
		_, _ = newRun(&w.cfg, lease, r.registration, nil).do(ctx) // it was logged
		return false, err
	}
	started(lease.TaskID)
	cfg := w.cfg
	if l, ok := cfg.Launcher.(PresetLauncher); ok {
		l.Conversation = with
		cfg.Launcher = l
	}
	_, _ = newRun(&cfg, lease, r.registration, nil).do(ctx) // it was logged
	return true, nil
}

// beginTaking adds to the group of runs, unless that is waited for.
func (w *dispatcher) beginTaking() bool {
	w.taking.Lock()
	defer w.taking.Unlock()
	if w.closed || w.acquireCtx.Err() != nil {
		return false
	}
	w.group.Add(1)
	return true
}

// acquireNow leases one task without waiting for one. Without a task, the lease has no token. It asks until it knows
// what came of it, for a while. An end of ctx does not end a request under way, which may have been granted a lease.
func (w *dispatcher) acquireNow(ctx context.Context, incarnation int64) (lease picket.Lease, err error) {
	asking, cancel := outlast(ctx)
	defer cancel()
	req := w.cfg.request(1)
	req.Incarnation, req.WaitSeconds = incarnation, new(int)
	once, until := newULID(), w.cfg.clock()+reportTimeout
	for pace := (backoff{least: 200 * time.Millisecond, most: 2 * time.Second}); ; {
		req.SeparateCredentials = !w.noSeparateCredentials.Load()
		leases, err := w.client.Leases.Acquire(asking, req, client.WithIdempotencyKey(once))
		switch {
		case len(leases) > 0:
			return leases[0], nil
		case err == nil:
			return lease, nil
		case ctx.Err() != nil && !errors.Is(err, picket.ErrUnknown): // nothing was granted
			return lease, err
		case lacksSeparateCredentials(err):
			w.noSeparateCredentials.Store(true)
			once = newULID()
		case !isRetryable(err) || w.cfg.clock() >= until || !pace.pause(asking):
			return lease, err
		}
	}
}
