package adapter

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// session is one registration of this adapter, which the registry numbers as
// an incarnation. What runs under it ends with it. A nil session is that of an
// adapter without a registration: it never ends and bounds nothing.
type session struct {
	cfg         *Config
	client      *Client
	incarnation int64
	drained     func()        // the registry wants a drain
	over        chan struct{} // closed when the registry has ended it
	stirred     chan struct{} // has room for one: beat now

	mu       sync.Mutex
	cause    error         // why it is over
	acked    time.Duration // when the last acknowledged heartbeat was sent, on the clock
	next     chan struct{} // closed and replaced at every acknowledgement
	runs     map[*run]bool // true while its lease is held
	draining bool          // it says so in its heartbeats
	told     bool          // the registry has acknowledged one that did
	handled  []string      // commands, not acknowledged yet
	known    []string      // commands that were carried out or are being, the newest ones

	jobs sync.WaitGroup // of beat
}

// newSession begins with a registration that was first sent at the time sent.
func newSession(a *Adapter, incarnation int64, sent time.Duration, drained func()) *session {
	return &session{
		cfg: &a.cfg, client: a.client, incarnation: incarnation, drained: drained, acked: sent,
		over: make(chan struct{}), stirred: make(chan struct{}, 1), next: make(chan struct{}),
		runs: map[*run]bool{},
	}
}

// killAt is when every agent must be dead, unless a heartbeat is acknowledged
// before: a margin before the registry may take this adapter for dead.
func (s *session) killAt() time.Duration {
	if s == nil {
		return math.MaxInt64
	}
	dead := s.cfg.Health.DeadAfter
	return s.lastAcked() + dead - margin(dead)
}

// warnAt is when agents get SIGTERM for that; never when there is no time for
// such a stage.
func (s *session) warnAt() time.Duration {
	if s == nil || warning(s.cfg.Health.DeadAfter) == 0 {
		return math.MaxInt64
	}
	dead := s.cfg.Health.DeadAfter
	return s.lastAcked() + dead - warning(dead)
}

func (s *session) lastAcked() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}

// silent reports that nothing may run now.
func (s *session) silent() bool { return s != nil && s.cfg.clock() >= s.killAt() }

// number is the incarnation to ask with; 0 without a registration.
func (s *session) number() int64 {
	if s == nil {
		return 0
	}
	return s.incarnation
}

// ended is closed when the session is over.
func (s *session) ended() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.over
}

// isOver reports whether the registry has ended the session.
func (s *session) isOver() bool {
	select {
	case <-s.ended():
		return true
	default:
		return false
	}
}

// extended is closed at the next acknowledged heartbeat.
func (s *session) extended() <-chan struct{} {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// awaitHeard returns when a heartbeat is fresh enough to work under.
func (s *session) awaitHeard(ctx context.Context) error {
	for ctx.Err() == nil {
		heard := s.extended()
		if !s.silent() {
			return nil
		}
		select {
		case <-heard:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// acknowledge takes note of a heartbeat that was sent at the time sent.
func (s *session) acknowledge(sent time.Duration, hb picket.Heartbeat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = max(s.acked, sent)
	s.told = s.told || hb.Status == picket.AgentDraining
	s.handled = slices.DeleteFunc(s.handled, func(id string) bool { return slices.Contains(hb.HandledCommands, id) })
	close(s.next)
	s.next = make(chan struct{})
}

// end ends the session, once: every run under it kills its tree.
func (s *session) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = cause
		close(s.over)
	}
}

// why is what ended the session.
func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// drain takes nothing new and tells the registry.
func (s *session) drain() {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.stir()
}

// stir lets the next heartbeat come at once.
func (s *session) stir() {
	select {
	case s.stirred <- struct{}{}:
	default:
	}
}

// add takes a run under the session, before it starts anything.
func (s *session) add(r *run) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[r] = true
}

// release takes note that the lease of a run has ended.
func (s *session) release(r *run) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs[r] {
		s.runs[r] = false
	}
}

// drop forgets a run.
func (s *session) drop(r *run) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, r)
}

// awaitVacant returns when nobody runs any more under a session that is over.
// What runs have to report goes on.
func (s *session) awaitVacant() {
	s.mu.Lock()
	runs := make([]*run, 0, len(s.runs))
	for r := range s.runs {
		runs = append(runs, r)
	}
	s.mu.Unlock()
	for _, r := range runs {
		<-r.vacant
	}
}

// report is what a heartbeat says now.
func (s *session) report() picket.Heartbeat {
	s.mu.Lock()
	defer s.mu.Unlock()
	hb := picket.Heartbeat{
		Status:          picket.AgentActive,
		ClientTimestamp: picket.InstantOf(time.Now()),
		Incarnation:     s.incarnation,
	}
	if s.draining {
		hb.Status = picket.AgentDraining
	}
	for r, held := range s.runs {
		if held {
			hb.TasksInProgress = append(hb.TasksInProgress, r.lease.TaskID)
		}
	}
	slices.Sort(hb.TasksInProgress)
	load := len(hb.TasksInProgress)
	hb.CurrentLoad, hb.HandledCommands = &load, slices.Clone(s.handled)
	return hb
}

// evicted says that an operator took this adapter out of the registry. Nothing
// of it goes on.
func evicted(id string) error {
	return picket.Refuse(picket.CodeAgentGone, "Start the adapter again if it is to go on working.",
		"agent %s was removed from the registry, and its work was ended", id)
}

// errDrained ends a session whose drain is over.
var errDrained = errors.New("the drain is complete")

// deregistered reports whether a session was ended on purpose, rather than for
// silence or with its store.
func deregistered(err error) bool {
	if errors.Is(err, errDrained) {
		return true
	}
	var e *picket.Error
	if !errors.As(err, &e) || e.Code != picket.CodeAgentGone {
		return false
	}
	status, _ := e.Facts["agent_status"].(string)
	return picket.AgentStatus(status) == picket.AgentDeregistered
}

// drainOver reports whether that was the end of a drain, in time or not.
func drainOver(err error) bool {
	if errors.Is(err, errDrained) {
		return true
	}
	var e *picket.Error
	if !errors.As(err, &e) {
		return false
	}
	reason, _ := e.Facts["reason"].(string)
	return slices.Contains([]picket.LifecycleReason{picket.ReasonDrainCompleted, picket.ReasonDrainTimeout},
		picket.LifecycleReason(reason))
}
