package adapter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

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

// waitForRuns waits until what runs has ended. Being told to drain is no error.
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
