package adapter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// supervisor follows the process of one run, and ends it when its lease, its timeout or
// its silence asks for that.
type supervisor struct {
	*runScope
	leased     *runLease                  // under which the process runs
	events     *eventQueue                // to the event log
	execs      *execRunner                // programs run beside the agent
	stall      *stallDetector             // signs of life
	writeNudge func(cause, reason string) // tells the agent, in a file, that it seems to be stuck
	// tellMessages notes that messages wait for the agent, of which the last has a number.
	tellMessages func(newest int64)

	session  atomic.Pointer[string] // of the agent; nil: it is not known
	requests chan stopRequest
	ticker   *progressTicker
	state    stopState
	end      agentEnd
}

// agentEnd is how the process of a run ended.
type agentEnd struct {
	request    stopRequest     // what ended it; the zero request is the process itself
	proc       process.Process // nil: it was not started
	launchedAt time.Duration
	signalled  bool // the adapter has sent the process a signal
	timedOut   bool
	lastTick   time.Time // when the last progress tick was told
}

// stopState is how far the end of a process has come.
type stopState struct {
	request    stopRequest
	killing    bool             // SIGKILL was sent, or follows after grace
	lingerOver <-chan time.Time // an agent whose lease has ended may still end on its own
	graceOver  <-chan time.Time // SIGKILL comes then
}

// started takes over a process that has just been launched.
func (s *supervisor) started(work context.Context, p process.Process) {
	s.end.proc, s.end.launchedAt = p, s.cfg.clock()
	s.stall.start()
	s.execs.begin(work, p)
}

// sessionID matches the ids of sessions that agents print.
var sessionID = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$`)

// noteSession keeps the id of the agent's own session, for progress ticks. The agent has
// printed it, so what does not look like an id, or holds its credential, is ignored.
func (s *supervisor) noteSession(id string) {
	if sessionID().MatchString(id) && workspace.RedactText(id, s.lease.AgentCredential()) == id {
		s.session.Store(&id)
	}
}

// supervise lets the process run until it has ended and returns what ended it. ctx ending
// asks for the end. watch follows the lease meanwhile.
func (s *supervisor) supervise(ctx, work context.Context, group *sync.WaitGroup,
	watch func(ctx context.Context)) agentEnd {
	watching, stopWatch := context.WithCancel(work)
	defer stopWatch()
	group.Go(func() { watch(watching) })
	s.ticker = newProgressTicker(s.cfg.clock, s.cfg.ProgressTick, s.lease, s.cfg.agentName(s.lease), s.end.launchedAt)
	giveBack := ctx.Done()
	for {
		select {
		case <-s.end.proc.Done():
			s.emit(Event{Kind: EventEnding, Reason: describeExit(s.end.proc.Exit())})
			s.end.request = s.state.request
			return s.end
		case o := <-s.requests:
			s.applyStop(o)
		case <-time.After(s.ticker.wait()):
		case <-giveBack:
			giveBack = nil
			s.applyStop(stopRequest{mode: stopKill, class: picket.ExitReleased, reason: cancelReason(ctx)})
		case <-s.state.lingerOver:
			s.applyStop(stopRequest{mode: stopTermThenKill, reason: "the agent did not end on its own"})
		case <-s.state.graceOver:
			s.applyStop(stopRequest{mode: stopKill, reason: "the agent did not end after SIGTERM"})
		}
		s.onTick()
	}
}

// cancelReason is who wants the run to be given back.
func cancelReason(ctx context.Context) string {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause.Error()
	}
	return "the adapter was told to stop"
}

// onTick tells the events that are due and ends an agent whose time is over.
func (s *supervisor) onTick() {
	for _, e := range s.ticker.dueEvents() {
		if id := s.session.Load(); id != nil && e.Type == picket.EventAgentHeartbeat {
			e.SessionID = *id
		}
		s.emitLauncherEvent(e)
	}
	if !s.state.killing && s.ticker.expired() {
		s.end.timedOut = true
		s.emitLauncherEvent(s.ticker.timeoutEvent())
		s.applyStop(stopRequest{
			mode:   stopTermThenKill,
			class:  picket.ExitTimeout,
			reason: "the task's timeout is over",
		})
	}
	if !s.state.killing && s.state.request == (stopRequest{}) {
		s.checkStall()
	}
}

// emitLauncherEvent goes to the callbacks and on its way to the event log.
func (s *supervisor) emitLauncherEvent(e picket.RunEvent) {
	if e.Type == picket.EventAgentHeartbeat {
		s.end.lastTick = time.Now()
		s.cfg.OnProgressTick(s.ticker.elapsedOfTick(e))
	}
	s.emit(Event{Kind: EventKind(e.Type), Launcher: &e})
	s.events.add(e)
}

// applyStop carries a request out.
func (s *supervisor) applyStop(o stopRequest) {
	if o.mode == stopRevoked {
		if s.state.request.mode == stopTerm {
			s.state.request, s.end.signalled = stopRequest{}, false
		}
		return
	}
	s.log.Info("ending the agent", "reason", o.reason)
	s.emit(Event{Kind: EventEnding, Reason: o.reason})
	s.state.request = s.state.request.merge(o)
	if s.state.request.ending != "" {
		s.execs.stop()
		s.leased.letGo()
	}
	s.end.signalled = s.end.signalled || o.mode != stopAfterLinger
	switch o.mode {
	case stopTerm:
		s.end.proc.Terminate()
	case stopAfterLinger:
		s.state.lingerOver = time.After(s.cfg.Linger)
	case stopTermThenKill:
		s.state.lingerOver, s.state.killing = nil, true
		s.ticker.stopWarning()
		s.end.proc.Terminate()
		s.state.graceOver = time.After(s.cfg.Grace)
	case stopKill:
		s.state.lingerOver, s.state.graceOver, s.state.killing = nil, nil, true
		s.ticker.stopWarning()
		s.end.proc.Kill()
	}
}

// checkStall acts on missing signs of life.
func (s *supervisor) checkStall() {
	if s.stall.hung(s.end.proc) {
		s.stopStalled(stopKill, "every process of the agent was stopped for "+maxStopped.String())
		return
	}
	state, idle := s.stall.check()
	silence := "no report, output or tool call for " + idle.Round(time.Second).String()
	switch state {
	case silenceUnconfirmed:
		s.leased.keeper.renewSoon()
	case silentOnce:
		s.nudgeAgent(picket.NudgeSilent, silence)
		s.events.add(picket.RunEvent{Type: picket.EventRunStalled, IdleSeconds: roundedSeconds(idle)})
	case silentAfterNudge:
		s.stopStalled(stopTermThenKill, silence+", nor after a nudge")
	}
}

func (s *supervisor) stopStalled(how stopMode, reason string) {
	s.emit(Event{Kind: EventStalled, Reason: reason})
	s.applyStop(stopRequest{mode: how, class: picket.ExitStalled, reason: reason})
}

// nudgeAgent tells an agent that it seems to be stuck, in a file, and tells Config.OnEvent.
func (s *supervisor) nudgeAgent(cause, reason string) {
	s.log.Warn("nudging the agent", "cause", cause, "reason", reason)
	s.writeNudge(cause, reason)
	s.emit(Event{Kind: EventNudged, Cause: cause, Reason: reason})
}

// requestStop asks for the end of the process. It never blocks: the channel only fills
// when the process has ended and nobody reads from it any more.
func (s *supervisor) requestStop(o stopRequest) {
	select {
	case s.requests <- o:
	default:
	}
}

// handleCommands carries out the commands of the lease.
func (s *supervisor) handleCommands(commands []picket.Command) {
	for _, c := range commands {
		switch {
		case c.Command == "stop":
			s.requestStop(stopRequest{mode: stopTermThenKill, class: picket.ExitReleased, reason: "stop: " + c.Reason})
		// Of silence the adapter itself has told the store.
		case c.Command == "nudge" && s.stall.isNewNudge(c.Number) && c.Cause != picket.NudgeSilent:
			s.nudgeAgent(c.Cause, c.Reason)
		case c.Command == "messages":
			s.tellMessages(c.Number)
		case c.Command == "exec" && c.Exec != nil:
			s.execs.startNew(*c.Exec)
		}
	}
}

// failByLauncher ends the run for something that its launcher has seen.
func (s *supervisor) failByLauncher(reason string) {
	s.requestStop(stopRequest{mode: stopTermThenKill, class: picket.ExitCrash, reason: reason, inReport: true})
}

// stopOnOverrun ends an agent that has used more than the task had left. Its output
// tells that only afterwards, so the agent is stopped then and not refused before.
func (s *supervisor) stopOnOverrun(u picket.Usage) {
	if u.Overrun {
		s.failByLauncher("stopped after the agent's own use of models came to more than the task had left. Top up, then retry it: " +
			picket.TopUpCommand(s.lease.TaskID, NeededToStart(u.Available)))
	}
}

func describeExit(e process.Exited) string {
	if e.Signal != "" {
		return "the agent was ended by " + e.Signal
	}
	return fmt.Sprintf("the agent exited with code %d", e.Code)
}
