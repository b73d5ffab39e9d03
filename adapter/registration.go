package adapter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
)

// registration is one registration of this adapter, which the registry numbers as
// an incarnation. What runs under it ends with it. An adapter without a registration
// has one of incarnation 0, which never ends and bounds nothing.
type registration struct {
	cfg         *Config
	client      *client.Client
	incarnation int64
	onDrain     func() // the registry wants a drain
	ctx         context.Context
	end         context.CancelCauseFunc // ends ctx, for the first cause: every run under it kills its tree
	wake        chan struct{}           // has room for one: send a heartbeat now

	mu              sync.Mutex
	ackedAt         time.Duration // when the last acknowledged heartbeat was sent, on the clock
	ackSignal       chan struct{} // closed and replaced at every acknowledgement
	runs            map[*registeredRun]bool
	draining        bool     // its heartbeats report it
	drainAcked      bool     // the registry has acknowledged one that did
	handledCommands []string // commands, not acknowledged yet
	knownCommands   []string // commands that were carried out or are being, the newest ones

	jobs sync.WaitGroup // of the heartbeat sender
}

// registeredRun is what a registration knows of a run under it.
type registeredRun struct {
	taskID            string
	leaseEnded        atomic.Bool
	stop              context.CancelCauseFunc   // gives the lease back now
	checkLease        func(ctx context.Context) // asks what became of a lease that the registry does not know of
	processesGone     chan struct{}             // closed once all processes of the run have exited
	markProcessesGone func()                    // closes it
}

// unregistered is the registration of an adapter without one.
func unregistered(cfg *Config) *registration {
	return newRegistration(cfg, nil, 0, math.MaxInt64/2, func() {})
}

// newRegistration begins with a registration that was first sent at the time sent.
func newRegistration(cfg *Config, c *client.Client, incarnation int64, sent time.Duration,
	drained func()) *registration {
	s := &registration{
		cfg: cfg, client: c, incarnation: incarnation, onDrain: drained, ackedAt: sent,
		wake: make(chan struct{}, 1), ackSignal: make(chan struct{}), runs: map[*registeredRun]bool{},
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	return s
}

// killAt is when every agent must be dead, unless a heartbeat is acknowledged
// before: a margin before the registry may take this adapter for dead.
func (s *registration) killAt() time.Duration {
	dead := s.cfg.Health.DeadAfter
	return s.lastAcked() + dead - killMargin(dead)
}

// warnAt is when agents get SIGTERM for that; never when there is no time for
// such a stage.
func (s *registration) warnAt() time.Duration {
	if warningLead(s.cfg.Health.DeadAfter) == 0 {
		return math.MaxInt64
	}
	dead := s.cfg.Health.DeadAfter
	return s.lastAcked() + dead - warningLead(dead)
}

func (s *registration) lastAcked() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ackedAt
}

// isSilent reports that nothing may run now.
func (s *registration) isSilent() bool { return s.cfg.clock() >= s.killAt() }

// isEnded reports whether the registry has ended the registration.
func (s *registration) isEnded() bool { return s.ctx.Err() != nil }

// endCause is what ended the registration.
func (s *registration) endCause() error { return context.Cause(s.ctx) }

// nextAck is closed at the next acknowledged heartbeat.
func (s *registration) nextAck() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ackSignal
}

// waitUntilAcked returns when a heartbeat is fresh enough to work under.
func (s *registration) waitUntilAcked(ctx context.Context) error {
	for ctx.Err() == nil {
		heard := s.nextAck()
		if !s.isSilent() {
			return nil
		}
		select {
		case <-heard:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// recordAck takes note of a heartbeat that was sent at the time sent.
func (s *registration) recordAck(sent time.Duration, hb picket.Heartbeat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ackedAt = max(s.ackedAt, sent)
	s.drainAcked = s.drainAcked || hb.Status == picket.AgentDraining
	s.handledCommands = slices.DeleteFunc(s.handledCommands,
		func(id string) bool { return slices.Contains(hb.HandledCommands, id) })
	close(s.ackSignal)
	s.ackSignal = make(chan struct{})
}

// announceDrain takes nothing new and tells the registry.
func (s *registration) announceDrain() {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.heartbeatNow()
}

// heartbeatNow lets the next heartbeat come at once.
func (s *registration) heartbeatNow() { wakeUp(s.wake) }

// addRun takes a run under the registration, before it starts anything.
func (s *registration) addRun(r *registeredRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[r] = true
}

// removeRun forgets a run.
func (s *registration) removeRun(r *registeredRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, r)
}

// waitForProcesses returns when nobody runs any more under a registration that is over.
// What runs have to report goes on.
func (s *registration) waitForProcesses() {
	s.mu.Lock()
	runs := make([]*registeredRun, 0, len(s.runs))
	for r := range s.runs {
		runs = append(runs, r)
	}
	s.mu.Unlock()
	for _, r := range runs {
		<-r.processesGone
	}
}

// heartbeat is what a heartbeat says now.
func (s *registration) heartbeat() picket.Heartbeat {
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
	for r := range s.runs {
		if !r.leaseEnded.Load() {
			hb.TasksInProgress = append(hb.TasksInProgress, r.taskID)
		}
	}
	slices.Sort(hb.TasksInProgress)
	load := len(hb.TasksInProgress)
	hb.CurrentLoad, hb.HandledCommands = &load, slices.Clone(s.handledCommands)
	return hb
}

// removedByOperator says that an operator took this adapter out of the registry. Nothing
// of it goes on.
func removedByOperator(id string) error {
	return picket.Refuse(picket.CodeAgentGone, "Start the adapter again if it should continue to work.",
		"agent %s was removed from the registry, and its work was ended", id)
}

// errDrained ends a registration whose drain is over.
var errDrained = errors.New("the drain is complete")

// endedOnPurpose reports whether a registration was ended on purpose, rather than for
// silence or with its store.
func endedOnPurpose(err error) bool {
	return errors.Is(err, errDrained) ||
		errors.Is(err, picket.CodeAgentGone) && textFact(err, "agent_status") == string(picket.AgentDeregistered)
}

// endedByDrain reports whether that was the end of a drain, in time or not.
func endedByDrain(err error) bool {
	reason := picket.LifecycleReason(textFact(err, "reason"))
	return errors.Is(err, errDrained) || reason == picket.ReasonDrainCompleted || reason == picket.ReasonDrainTimeout
}

// reasonNoLease is the reason of a command that the server derives from a heartbeat:
// a task is reported of which no lease is held. It comes with every such
// heartbeat and needs no answer.
const reasonNoLease = "no_lease"

// handleCommand carries a command out, once however often it comes.
func (s *registration) handleCommand(ctx context.Context, c picket.PendingCommand) {
	log := s.cfg.Log.With("agent", s.cfg.AgentID, "command", c.Command, "id", c.CommandID, "reason", c.Reason)
	if c.Command == picket.CommandStopTask && c.Reason == reasonNoLease && c.CommandID == "stop_"+c.TaskID {
		for _, r := range s.runsOf(c.TaskID) {
			s.jobs.Go(func() {
				select {
				case <-r.processesGone:
				default:
					r.checkLease(ctx)
				}
			})
		}
		return
	}
	if !s.isNewCommand(c.CommandID) {
		return
	}
	switch c.Command {
	case picket.CommandDrain:
		s.onDrain()
	case picket.CommandStopTask:
		log.Info("the registry asks to stop a task", "task", c.TaskID)
		s.jobs.Go(func() { s.stopTask(ctx, c) })
	case picket.CommandPing:
		s.recordHandled(c.CommandID)
	default:
		log.Warn("a command is not known; a newer adapter may know it")
	}
}

// isNewCommand takes a command that was not taken before. It remembers more than can wait for one
// agent, because a task that was stopped may come back here before the registry has the
// acknowledgement.
func (s *registration) isNewCommand(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.knownCommands, id) {
		return false
	}
	s.knownCommands = append(s.knownCommands, id)
	s.knownCommands = s.knownCommands[max(len(s.knownCommands)-8*picket.MaxPendingCommands, 0):]
	return true
}

// recordHandled tells the registry that a command was carried out.
func (s *registration) recordHandled(id string) {
	s.mu.Lock()
	s.handledCommands = append(s.handledCommands, id)
	s.mu.Unlock()
	s.heartbeatNow()
}

func (s *registration) runsOf(task string) (runs []*registeredRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.runs {
		if !r.leaseEnded.Load() && r.taskID == task {
			runs = append(runs, r)
		}
	}
	return runs
}

// stopTask ends the runs of a task that are here now, and acknowledges the
// command when none of them is left.
func (s *registration) stopTask(ctx context.Context, c picket.PendingCommand) {
	runs := s.runsOf(c.TaskID)
	for _, r := range runs {
		r.stop(fmt.Errorf("stop_task: %s", c.Reason))
	}
	for _, r := range runs {
		select {
		case <-r.processesGone:
		case <-ctx.Done():
			return
		}
	}
	s.recordHandled(c.CommandID)
}

// deregister removes the adapter from the registry, which knows already that it drains. It gives up
// soon, because the registry finds a silent adapter dead in the end.
func (s *registration) deregister() {
	ctx, cancel := context.WithTimeout(context.Background(), deregisterTimeout)
	defer cancel()
	for !s.isDrainAcked() {
		heard := s.nextAck()
		select {
		case <-heard:
		case <-s.ctx.Done():
			return
		case <-ctx.Done():
			return
		}
	}
	for wait := 100 * time.Millisecond; !s.isEnded() && !s.isSilent(); wait *= 2 {
		_, err := s.client.Agents.ChangeStatus(ctx, s.cfg.AgentID, 0,
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
