package adapter

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
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
		w.runLease(ctx, lease, s)
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
	return s != nil && s.acquireCtx.Err() == nil && !s.registration.isEnded() && !s.registration.isSilent() &&
		s.acquiring.Load() == 0 &&
		!s.noAdvance.Load()
}

// completeTask completes the task, and takes the next lease in the same step where
// that is possible. Where it is not, or nobody knows what came of it, the plain
// verb of the proxy completes: the same again is not a second effect.
func (r *run) completeTask(ctx context.Context, output picket.RawJSON) (state picket.TaskState, err error) {
	if r.slot.shouldAdvance() {
		state, err = r.advance(ctx, output)
		if err == nil || leaseOrTaskEnded(err) {
			return state, err
		}
		r.log.Debug("completed without asking for the next task", "err", err)
	}
	done := picket.Completion{Output: output}
	complete := func(ctx context.Context) (err error) {
		state, err = r.proxy.CompleteWith(ctx, done)
		return err
	}
	err = r.retryReport(ctx, complete)
	if errors.Is(err, picket.CodeChildrenOpen) {
		// The agent has ended without a word about them: they run on, for a person.
		done.Children = picket.ChildrenDetach
		err = r.retryReport(ctx, complete)
	}
	return state, err
}

// advance asks until it knows what came of it, for a while: a lease whose grant
// was lost on the way comes with the repetition.
func (r *run) advance(ctx context.Context, output picket.RawJSON) (picket.TaskState, error) {
	req := picket.AdvanceRequest{
		LeaseToken:   r.lease.LeaseToken,
		FencingToken: r.lease.FencingToken,
		Output:       output,
		Acquire:      r.cfg.request(1),
	}
	req.Acquire.Incarnation, req.Acquire.SeparateCredentials = r.registration.incarnationOrZero(),
		!r.slot.noSeparateCredentials.Load()
	req.Acquire.WaitSeconds = new(int) // none: the result must not wait for other people's tasks
	once, until := newULID(time.Now()), r.cfg.clock()+reportTimeout
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(until-r.cfg.clock(), time.Second))
		got, err := r.slot.client.Advance(try, req, once)
		cancel()
		switch {
		case err == nil:
			for _, lease := range got.Leases {
				r.slot.startNext(lease)
			}
			return got.State, nil
		case routeMissing(err):
			r.slot.noAdvance.Store(true)
			return "", err
		case !isRetryable(err) || r.cfg.clock() >= until || !sleep(ctx, wait/2+rand.N(wait)):
			return "", err
		}
	}
}

// routeMissing reports a server that does not know the path or the method. What a
// load balancer says of itself means nothing.
func routeMissing(err error) bool {
	return !errors.Is(err, errNotPicket) &&
		(errors.Is(err, picket.CodeNotFound) || errors.Is(err, picket.CodeMethodNotAllowed))
}

// Advance completes the task of a lease and asks for the next leases in one
// step: both are done or neither. Repeated with the same once key it tells the
// same state and shows those of its leases that still hold.
func (c *Client) Advance(ctx context.Context, req picket.AdvanceRequest, once string) (picket.Advanced, error) {
	var got picket.Advanced
	err := c.postWithWait(ctx, "/api/v1/leases/advance", req.Acquire.WaitSeconds, once, req, &got)
	return got, err
}

// serve registers, works and beats until the drain is over. A session that the
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

// serveRegistration works under one session, whose end is errRegistrationEnded.
func (w *dispatcher) serveRegistration(s *registration, drained func()) error {
	if s == nil {
		err := w.acquireAndStart(w.acquireCtx, nil)
		if errors.Is(err, picket.CodeAgentDraining) { // somebody else has registered the id
			drained()
		}
		return w.waitForRuns(err)
	}
	beating, still := context.WithCancel(context.WithoutCancel(w.acquireCtx))
	defer still()
	silence := make(chan struct{})
	go func() { defer close(silence); s.sendHeartbeats(beating) }()
	taking, stop := context.WithCancel(w.acquireCtx)
	defer stop()
	go func() {
		select {
		case <-s.closed:
			stop()
		case <-taking.Done():
		}
	}()
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
		return w.afterRegistration(s)
	}
	s.announceDrain()
	err = w.waitForRuns(err)
	s.deregister()
	still()
	<-silence
	return err
}

// waitForRuns waits until what runs has ended. Being told to drain is not an error.
func (w *dispatcher) waitForRuns(err error) error {
	drained := w.acquireCtx.Err() != nil
	w.stopAcquiring()
	w.group.Wait()
	if drained {
		return nil
	}
	return err
}

// afterRegistration waits for the end of what ran under a session that the registry
// has ended, and answers whether another one follows.
func (w *dispatcher) afterRegistration(s *registration) error {
	err := s.endCause()
	log := w.cfg.Log.With("agent", w.cfg.AgentID, "incarnation", s.incarnation)
	switch {
	case endedByDrain(err): // before this side had heard of it
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

// deregister takes the adapter out of the registry, which has heard of its drain
// before. It gives up soon: who is silent is dead in the end.
func (s *registration) deregister() {
	ctx, cancel := context.WithTimeout(context.Background(), deregisterTimeout)
	defer cancel()
	for !s.isDrainAcked() {
		heard := s.nextAck()
		select {
		case <-heard:
		case <-s.closed:
			return
		case <-ctx.Done():
			return
		}
	}
	for wait := 100 * time.Millisecond; !s.isEnded() && !s.isSilent(); wait *= 2 {
		_, err := s.client.AgentStatus(ctx, s.cfg.AgentID, 0,
			picket.AgentStatusChange{Status: picket.AgentDeregistered, Incarnation: s.incarnation})
		if err == nil {
			s.end(errDrained)
			return
		}
		if !isRetryable(err) || !sleep(ctx, wait) {
			s.cfg.Log.Debug("not taken out of the registry", "agent", s.cfg.AgentID, "err", err)
			return
		}
	}
}

// deregisterTimeout is what an adapter without work gives the registry.
const deregisterTimeout = 3 * time.Second

// isDrainAcked reports whether the registry knows of the drain.
func (s *registration) isDrainAcked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drainAcked
}
