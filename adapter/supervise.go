package adapter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// order tells the supervisor to end the process, how, and what to report.
type order struct {
	how    how
	ending Ending           // how the lease ended already; empty: it is to be released
	class  picket.ExitClass // of the exit to report; empty: by the process's own end
	reason string           // for people
	own    bool             // for a deadline of the adapter's own: the lease may still hold
	told   bool             // the reason goes into the report
}

type how int

const (
	terminate         how = iota + 1 // SIGTERM; whether SIGKILL follows is for others to say
	lingering                        // nothing for Linger, then terminateThenKill
	terminateThenKill                // SIGTERM, and SIGKILL after Grace
	killNow                          // SIGKILL
	carryOn                          // takes a warning back: the lease was renewed after all
)

// supervise lets the process run until it has ended and answers what ended it;
// the zero order is the process itself.
func (r *run) supervise(ctx, work context.Context, group *sync.WaitGroup) order {
	watching, stopWatch := context.WithCancel(work)
	defer stopWatch()
	group.Go(func() { watchLease(watching, r.proxy, r.execs.unfinished, r.watched) })
	r.pulse = r.newPulse()
	var end ending
	giveBack := ctx.Done()
	for {
		select {
		case <-r.proc.Done():
			r.tell(Event{Kind: EventEnding, Reason: describe(r.proc.Exit())})
			return end.verdict
		case o := <-r.orders:
			r.obeyOrder(&end, o)
		case <-time.After(r.pulse.wait()):
		case <-giveBack:
			giveBack = nil
			r.obeyOrder(&end, order{how: killNow, class: picket.ExitReleased, reason: r.toldToStop(ctx)})
		case <-end.linger:
			r.obeyOrder(&end, order{how: terminateThenKill, reason: "the agent did not end by itself"})
		case <-end.grace:
			r.obeyOrder(&end, order{how: killNow, reason: "the agent did not end after SIGTERM"})
		}
		r.beat(&end)
	}
}

// toldToStop is who wants the run to be given back.
func (r *run) toldToStop(ctx context.Context) string {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause.Error()
	}
	return "the adapter was told to stop"
}

// ending is how far the end of a process has come.
type ending struct {
	verdict order
	killing bool             // SIGKILL was sent, or follows after grace
	linger  <-chan time.Time // an agent whose lease has ended may still end by itself
	grace   <-chan time.Time // SIGKILL comes then
}

// beat tells what the time asks for and ends an agent whose time is over.
func (r *run) beat(end *ending) {
	for _, e := range r.pulse.due() {
		r.launcherEvent(e)
	}
	if !end.killing && r.pulse.expired() {
		r.result.TimedOut = true
		r.launcherEvent(r.pulse.timedOut())
		r.obeyOrder(end, order{how: terminateThenKill, class: picket.ExitTimeout, reason: "the task's timeout is over"})
	}
	if !end.killing && end.verdict == (order{}) {
		r.vigil(end)
	}
}

// launcherEvent goes to the bus, to the callback and on its way to the log.
func (r *run) launcherEvent(e picket.RunEvent) {
	if e.Type == picket.EventAgentHeartbeat {
		r.result.LastHeartbeat = time.Now()
		r.cfg.OnHeartbeat(elapsedOf(e))
	}
	r.tell(Event{Kind: EventKind(e.Type), Launcher: &e})
	r.events.add(e)
}

// obeyOrder carries an order out.
func (r *run) obeyOrder(end *ending, o order) {
	if o.how == carryOn {
		if end.verdict.how == terminate {
			end.verdict, r.forced = order{}, false
		}
		return
	}
	r.log.Info("ending the agent", "reason", o.reason)
	r.tell(Event{Kind: EventEnding, Reason: o.reason})
	end.verdict = end.verdict.then(o)
	if end.verdict.ending != "" {
		r.execs.stop()
		r.stopKeep()
		r.session.release(r)
	}
	switch o.how {
	case terminate:
		r.signal(r.proc.Terminate)
	case lingering:
		end.linger = time.After(r.cfg.Linger)
	case terminateThenKill:
		end.linger, end.killing = nil, true
		r.pulse.dying()
		r.signal(r.proc.Terminate)
		end.grace = time.After(r.cfg.Grace)
	case killNow:
		end.linger, end.grace, end.killing = nil, nil, true
		r.pulse.dying()
		r.signal(r.proc.Kill)
	}
}

func (r *run) signal(send func()) {
	r.forced = true
	send()
}

// then keeps the first verdict, but lets the lease's own end overrule: what
// the server has decided is not released any more. A mere warning gives way to
// everything.
func (v order) then(o order) order {
	switch {
	case o.class == "" && o.ending == "":
		return v
	case v.class == "" && v.ending == "", v.how == terminate, v.ending == "" && o.ending != "":
		return o
	}
	return v
}

// exit describes the process's end under a verdict.
func (r *run) exit(v order) picket.Exit {
	end := r.proc.Exit()
	ms := int64((r.cfg.clock() - r.launchedAt) / time.Millisecond)
	exit := picket.Exit{Class: v.class, Code: &end.Code, DurationMs: &ms}
	if end.Signal != "" {
		exit.Signal = &end.Signal
	}
	if exit.Class == "" {
		exit.Class = r.ownClass(end)
	}
	if exit.Class != picket.ExitSuccess {
		exit.Detail = r.lastWords()
	}
	if v.class == picket.ExitStalled || v.told {
		exit.Detail = clip(v.reason+"\n"+exit.Detail, maxDetail)
	}
	return exit
}

func (r *run) ownClass(end Exited) picket.ExitClass {
	switch {
	case end.Code == 0:
		return picket.ExitSuccess
	case r.forced:
		return picket.ExitKilled
	}
	return picket.ExitCrash
}

// maxDetail bounds the text that goes with an exit, in bytes.
const maxDetail = 8 << 10

// lastWords are the last lines that the process wrote, errors first.
func (r *run) lastWords() string {
	if s := r.stderr.text(maxDetail); s != "" {
		return s
	}
	return r.stdout.text(maxDetail)
}

func describe(e Exited) string {
	if e.Signal != "" {
		return "the agent was ended by " + e.Signal
	}
	return fmt.Sprintf("the agent exited with code %s", strconv.Itoa(e.Code))
}

// clip shortens a text to at most n bytes from its beginning.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
