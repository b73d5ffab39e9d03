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
func (w *worker) serve() error {
	m := &member{
		Adapter: w.Adapter,
		clean:   w.clean,
		sweep:   func() bool { return w.sweepOrphans(w.asking, w.group) },
		drained: sync.OnceFunc(func() {
			if w.asking.Err() == nil {
				w.cfg.Log.Info("draining: the registry asks for it", "agent", w.cfg.AgentID)
			}
			w.drain()
		}),
	}
	defer m.leaveSeat()
	for {
		s, err := m.enrol(w.asking)
		if err == nil {
			err = w.under(s, m.drained)
			m.left = s != nil && deregistered(s.why())
		}
		switch {
		case errors.Is(err, errOver):
			continue
		case w.asking.Err() != nil && errors.Is(err, w.asking.Err()):
			return nil
		}
		return err
	}
}

// under works under one session, whose end is errOver.
func (w *worker) under(s *session, drained func()) error {
	if s == nil {
		err := w.take(w.asking, nil)
		if errors.Is(err, picket.CodeAgentDraining) { // somebody else has registered the id
			drained()
		}
		return w.finish(err)
	}
	beating, still := context.WithCancel(context.WithoutCancel(w.asking))
	defer still()
	silence := make(chan struct{})
	go func() { defer close(silence); s.beat(beating) }()
	taking, stop := context.WithCancel(w.asking)
	defer stop()
	go func() {
		select {
		case <-s.over:
			stop()
		case <-taking.Done():
		}
	}()
	err := w.take(taking, s)
	switch {
	case errors.Is(err, picket.CodeAgentGone):
		s.end(err)
	case errors.Is(err, picket.CodeAgentDraining):
		drained()
	}
	if s.isOver() && w.asking.Err() == nil {
		still()
		<-silence
		return w.afterwards(s)
	}
	s.drain()
	err = w.finish(err)
	s.leave()
	still()
	<-silence
	return err
}

// finish waits until what runs has ended. Being told to drain is no error.
func (w *worker) finish(err error) error {
	drained := w.asking.Err() != nil
	w.drain()
	w.group.Wait()
	if drained {
		return nil
	}
	return err
}

// afterwards waits for the end of what ran under a session that the registry
// has ended, and answers whether another one follows.
func (w *worker) afterwards(s *session) error {
	err := s.why()
	log := w.cfg.Log.With("agent", w.cfg.AgentID, "incarnation", s.incarnation)
	switch {
	case drainOver(err): // before this side had heard of it
		log.Warn("drained by the registry", "err", err)
		return w.finish(nil)
	case deregistered(err):
		log.Error("removed from the registry: ending all work")
		s.awaitVacant()
		return w.finish(evicted(w.cfg.AgentID))
	}
	log.Warn("the registry takes this adapter for dead: ending all work before it registers again", "err", err)
	s.awaitVacant()
	return errOver
}

// leave takes the adapter out of the registry, which has heard of its drain
// before. It gives up soon: who is silent is dead in the end.
func (s *session) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
	defer cancel()
	for !s.saidDraining() {
		heard := s.extended()
		select {
		case <-heard:
		case <-s.over:
			return
		case <-ctx.Done():
			return
		}
	}
	for wait := 100 * time.Millisecond; !s.isOver() && !s.silent(); wait *= 2 {
		_, err := s.client.AgentStatus(ctx, s.cfg.AgentID, 0,
			picket.AgentStatusChange{Status: picket.AgentDeregistered, Incarnation: s.incarnation})
		if err == nil {
			s.end(errDrained)
			return
		}
		if !again(err) || !sleep(ctx, wait) {
			s.cfg.Log.Debug("not taken out of the registry", "agent", s.cfg.AgentID, "err", err)
			return
		}
	}
}

// leaveWithin is what an adapter without work gives the registry.
const leaveWithin = 3 * time.Second

// saidDraining reports whether the registry knows of the drain.
func (s *session) saidDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told
}
