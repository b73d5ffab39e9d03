package adapter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/text"
)

// stopRequest tells the supervisor to end the process, how, and what to report.
type stopRequest struct {
	mode        stopMode
	ending      Ending           // how the lease ended already; empty: it is to be released
	class       picket.ExitClass // of the exit to report; empty: by the process's own end
	reason      string           // for people
	ownDeadline bool             // for a deadline of the adapter's own: the lease may still hold
	inReport    bool             // the reason goes into the report
}

type stopMode int

const (
	stopTerm         stopMode = iota + 1 // SIGTERM; whether SIGKILL follows is for others to say
	stopAfterLinger                      // nothing for Linger, then stopTermThenKill
	stopTermThenKill                     // SIGTERM, and SIGKILL after Grace
	stopKill                             // SIGKILL
	stopRevoked                          // takes a warning back: the lease was renewed after all
)

// supervise lets the process run until it has ended and answers what ended it;
// the zero order is the process itself.
func (r *run) supervise(ctx, work context.Context, group *sync.WaitGroup) stopRequest {
	watching, stopWatch := context.WithCancel(work)
	defer stopWatch()
	group.Go(func() { watchLease(watching, r.proxy, r.execs.openCalls, r.onLeaseChange) })
	r.ticker = r.newProgressTicker()
	var end stopState
	giveBack := ctx.Done()
	for {
		select {
		case <-r.proc.Done():
			r.emit(Event{Kind: EventEnding, Reason: describeExit(r.proc.Exit())})
			return end.request
		case o := <-r.stopRequests:
			r.applyStop(&end, o)
		case <-time.After(r.ticker.wait()):
		case <-giveBack:
			giveBack = nil
			r.applyStop(&end, stopRequest{mode: stopKill, class: picket.ExitReleased, reason: r.cancelReason(ctx)})
		case <-end.lingerOver:
			r.applyStop(&end, stopRequest{mode: stopTermThenKill, reason: "the agent did not end on its own"})
		case <-end.graceOver:
			r.applyStop(&end, stopRequest{mode: stopKill, reason: "the agent did not end after SIGTERM"})
		}
		r.onTick(&end)
	}
}

// cancelReason is who wants the run to be given back.
func (r *run) cancelReason(ctx context.Context) string {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause.Error()
	}
	return "the adapter was told to stop"
}

// stopState is how far the end of a process has come.
type stopState struct {
	request    stopRequest
	killing    bool             // SIGKILL was sent, or follows after grace
	lingerOver <-chan time.Time // an agent whose lease has ended may still end on its own
	graceOver  <-chan time.Time // SIGKILL comes then
}

// onTick tells what the time asks for and ends an agent whose time is over.
func (r *run) onTick(end *stopState) {
	for _, e := range r.ticker.dueEvents() {
		r.emitLauncherEvent(e)
	}
	if !end.killing && r.ticker.expired() {
		r.result.TimedOut = true
		r.emitLauncherEvent(r.ticker.timeoutEvent())
		r.applyStop(end, stopRequest{
			mode:   stopTermThenKill,
			class:  picket.ExitTimeout,
			reason: "the task's timeout is over",
		})
	}
	if !end.killing && end.request == (stopRequest{}) {
		r.checkStall(end)
	}
}

// emitLauncherEvent goes to the bus, to the callback and on its way to the log.
func (r *run) emitLauncherEvent(e picket.RunEvent) {
	if e.Type == picket.EventAgentHeartbeat {
		r.result.LastProgressTick = time.Now()
		r.cfg.OnProgressTick(elapsedOfTick(e))
	}
	r.emit(Event{Kind: EventKind(e.Type), Launcher: &e})
	r.events.add(e)
}

// applyStop carries an order out.
func (r *run) applyStop(end *stopState, o stopRequest) {
	if o.mode == stopRevoked {
		if end.request.mode == stopTerm {
			end.request, r.signalled = stopRequest{}, false
		}
		return
	}
	r.log.Info("ending the agent", "reason", o.reason)
	r.emit(Event{Kind: EventEnding, Reason: o.reason})
	end.request = end.request.merge(o)
	if end.request.ending != "" {
		r.execs.stop()
		r.stopRenewing()
		r.registration.markLeaseEnded(r)
	}
	switch o.mode {
	case stopTerm:
		r.sendSignal(r.proc.Terminate)
	case stopAfterLinger:
		end.lingerOver = time.After(r.cfg.Linger)
	case stopTermThenKill:
		end.lingerOver, end.killing = nil, true
		r.ticker.stopWarning()
		r.sendSignal(r.proc.Terminate)
		end.graceOver = time.After(r.cfg.Grace)
	case stopKill:
		end.lingerOver, end.graceOver, end.killing = nil, nil, true
		r.ticker.stopWarning()
		r.sendSignal(r.proc.Kill)
	}
}

func (r *run) sendSignal(send func()) {
	r.signalled = true
	send()
}

// merge keeps the first verdict, but lets the lease's own end overrule: what
// the server has decided is not released any more. A mere warning gives way to
// everything.
func (v stopRequest) merge(o stopRequest) stopRequest {
	switch {
	case o.class == "" && o.ending == "":
		return v
	case v.class == "" && v.ending == "", v.mode == stopTerm, v.ending == "" && o.ending != "":
		return o
	}
	return v
}

// exitReport describes the process's end under a verdict.
func (r *run) exitReport(v stopRequest) picket.Exit {
	end := r.proc.Exit()
	ms := int64((r.cfg.clock() - r.launchedAt) / time.Millisecond)
	exit := picket.Exit{Class: v.class, Code: &end.Code, DurationMs: &ms}
	if end.Signal != "" {
		exit.Signal = &end.Signal
	}
	if exit.Class == "" {
		exit.Class = r.exitClass(end)
	}
	if exit.Class != picket.ExitSuccess {
		exit.Detail = r.outputTail()
	}
	if v.class == picket.ExitStalled || v.inReport {
		exit.Detail = text.Head(v.reason+"\n"+exit.Detail, maxDetail)
	}
	return exit
}

func (r *run) exitClass(end process.Exited) picket.ExitClass {
	switch {
	case end.Code == 0:
		return picket.ExitSuccess
	case r.signalled:
		return picket.ExitKilled
	}
	return picket.ExitCrash
}

// maxDetail bounds the text that goes with an exit, in bytes.
const maxDetail = 8 << 10

// outputTail are the last lines that the process wrote, errors first.
func (r *run) outputTail() string {
	if s := r.stderr.text(maxDetail); s != "" {
		return s
	}
	return r.stdout.text(maxDetail)
}

func describeExit(e process.Exited) string {
	if e.Signal != "" {
		return "the agent was ended by " + e.Signal
	}
	return fmt.Sprintf("the agent exited with code %s", strconv.Itoa(e.Code))
}

// failByLauncher ends the run for something that its launcher has seen.
func (r *run) failByLauncher(reason string) {
	r.requestStop(stopRequest{mode: stopTermThenKill, class: picket.ExitCrash, reason: reason, inReport: true})
}

// stopOnOverrun ends an agent that has used more than the task had left. Its output
// tells that after the fact: it is stopped after, not refused before.
func (r *run) stopOnOverrun(u picket.Usage) {
	if u.Overrun {
		r.failByLauncher("stopped after the agent's own use of models came to more than the task had left. Top up, then retry it: " +
			picket.TopUpCommand(r.lease.TaskID, NeededToStart(u.Available)))
	}
}

// processDeadline carry the run's deadline to its process, which comes later than the
// first deadline.
type processDeadline struct {
	mu     sync.Mutex
	killAt time.Duration
	proc   process.DeadlineKeeper
}

// extend sets the time by which the tree must be dead.
func (r *processDeadline) extend(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at == r.killAt {
		return
	}
	r.killAt = at
	if r.proc != nil {
		r.proc.KillAt(at)
	}
}

// current is the deadline so far, for the start of a process.
func (r *processDeadline) current() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killAt
}

// attach gives the reins of a process that was started with the deadline told.
func (r *processDeadline) attach(p process.Process, told time.Duration) {
	d, ok := p.(process.DeadlineKeeper)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc = d; r.killAt != told {
		d.KillAt(r.killAt)
	}
}

// deadlineSlack is how much sooner than the adapter a process may act on a
// deadline that both know.
const deadlineSlack = 250 * time.Millisecond

// mergeOverdue is the verdict on a process that ended because its deadline passed,
// which it may have seen a moment before the adapter did. Before the deadline of
// the lease, that was one of the heartbeats: the lease may hold.
func (r *run) mergeOverdue(v stopRequest) stopRequest {
	if p, ok := r.proc.(interface{ Overdue() bool }); ok && p.Overdue() {
		late := time.Duration(r.leaseEnd.Load()) - killMargin(r.keeper.window) - deadlineSlack
		if r.registration != nil && r.cfg.clock() < late {
			return v.merge(stopRequest{mode: stopKill, class: picket.ExitReleased, ownDeadline: true})
		}
		v = v.merge(stopRequest{mode: stopKill, ending: EndLost, class: picket.ExitLeaseLost})
	}
	return v
}
