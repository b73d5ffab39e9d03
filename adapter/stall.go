package adapter

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

const (
	// hungAfter is how long every process of an agent may be stopped.
	hungAfter = 10 * time.Second
	// lookEvery lies between two looks at the processes, which cost a walk
	// through all of the machine's.
	lookEvery = 2 * time.Second

	nudgeFile = "nudge.json"
)

// NudgeFile is what nudge.json beside the task file holds, once the agent was
// nudged: why it seems to be stuck.
type NudgeFile struct {
	Cause  string         `json:"cause"` // picket.NudgeSilent or picket.NudgeLoop
	Reason string         `json:"reason"`
	At     picket.Instant `json:"at"`
}

// life is what is known of an agent's signs of life: output, which the adapter
// sees, and tool calls, of which renewals tell. Time in suspend does not count,
// since nobody can work then.
type life struct {
	after time.Duration // of silence to a nudge, and from there to the end; 0: never
	clock func() time.Duration
	wake  suspendWatch

	mu    sync.Mutex
	last  time.Time // the last sign
	known time.Time // up to then the store has said what it knows
	told  int64     // the highest nudge of the store that was passed on

	nudged  time.Time // zero: not since the last sign
	looked  time.Time // at the processes
	stopped time.Time // since when all of them are; zero: they are not
}

func newLife(lease picket.Lease, clock func() time.Duration) *life {
	l := &life{clock: clock}
	if s := lease.Task.StallAfterSeconds; s != nil {
		l.after = time.Duration(*s) * time.Second
	}
	return l
}

// begin counts from the launch.
func (l *life) begin() {
	l.sign(time.Now())
	l.wake = suspendWatch{clock: l.clock, last: l.clock(), at: time.Now()}
}

func (l *life) sign(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.After(l.last) {
		l.last = at
	}
}

// heard takes what a renewal says: the age of the last tool call. The request
// was sent that long ago.
func (l *life) heard(idle *int64, ago time.Duration) {
	now := time.Now()
	l.mu.Lock()
	l.known = now.Add(-ago)
	l.mu.Unlock()
	if idle != nil {
		l.sign(now.Add(-time.Duration(*idle) * time.Millisecond))
	}
}

// mark lets what is written count as a sign.
func (l *life) mark(w io.Writer) io.Writer { return marked{w, l} }

type marked struct {
	io.Writer
	life *life
}

func (m marked) Write(p []byte) (int, error) {
	if len(p) > 0 {
		m.life.sign(time.Now())
	}
	return m.Writer.Write(p)
}

// quiet is what a look at the signs of life asks for.
type quiet int

const (
	alive   quiet = iota
	unsure        // the store has to be asked for tool calls first
	silent        // it is to be nudged
	stalled       // it was, in vain
)

// look judges the silence up to now, and how long it is.
func (l *life) look() (quiet, time.Duration) {
	now := time.Now()
	if l.wake.resumed() {
		l.sign(now)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.after == 0 {
		return alive, 0
	}
	if l.last.After(l.nudged) {
		l.nudged = time.Time{}
	}
	since := l.last
	if !l.nudged.IsZero() {
		since = l.nudged
	}
	due := since.Add(l.after)
	switch {
	case now.Before(due):
		return alive, 0
	case l.known.Before(due):
		return unsure, 0
	case l.nudged.IsZero():
		l.nudged = now
		return silent, now.Sub(l.last)
	}
	return stalled, now.Sub(l.last)
}

// hung reports whether every process has been stopped for too long.
func (l *life) hung(p Process) bool {
	o, ok := p.(Observer)
	now := time.Now()
	if !ok || now.Sub(l.looked) < lookEvery {
		return false
	}
	l.looked = now
	if !o.Stopped() {
		l.stopped = time.Time{}
		return false
	}
	if l.stopped.IsZero() {
		l.stopped = now
	}
	return now.Sub(l.stopped) >= hungAfter
}

// fresh reports whether a nudge of the store is a new one, and takes it.
func (l *life) fresh(number int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number <= l.told {
		return false
	}
	l.told = number
	return true
}

// vigil acts on signs of life that do not come.
func (r *run) vigil(end *ending) {
	if r.life.hung(r.proc) {
		r.endStalled(end, killNow, "every process of the agent was stopped for "+hungAfter.String())
		return
	}
	switch state, idle := r.life.look(); state {
	case unsure:
		r.keep.ask()
	case silent:
		r.nudge(picket.NudgeSilent, "no report, output or tool call for "+idle.Round(time.Second).String())
		r.events.add(picket.RunEvent{Type: picket.EventRunStalled, IdleSeconds: seconds(idle)})
	case stalled:
		r.endStalled(end, terminateThenKill,
			"no report, output or tool call for "+idle.Round(time.Second).String()+", nor after a nudge")
	}
}

func (r *run) endStalled(end *ending, how how, reason string) {
	r.tell(Event{Kind: EventStalled, Reason: reason})
	r.obeyOrder(end, order{how: how, class: picket.ExitStalled, reason: reason})
}

// nudge tells an agent that it seems to be stuck: in a file, and through
// whoever listens to the adapter.
func (r *run) nudge(cause, reason string) {
	r.log.Warn("nudging the agent", "cause", cause, "reason", reason)
	if err := r.writeNudge(NudgeFile{Cause: cause, Reason: reason, At: picket.InstantOf(time.Now())}); err != nil {
		r.log.Warn("the nudge cannot be written", "err", err)
	}
	r.tell(Event{Kind: EventNudged, Cause: cause, Reason: reason})
}

// writeNudge changes the file in one step, for the agent may be reading it. What
// the agent has made of its directory leads nowhere else.
func (r *run) writeNudge(n NudgeFile) error {
	switch k := r.work.kept; {
	case r.places.taskFile == "":
		return nil
	case k != nil:
		return replaceBrief(k, r.places.workspace, nudgeFile, n)
	}
	return swapJSON(filepath.Dir(r.places.taskFile), nudgeFile, n)
}

func (r *run) nudgePath() string {
	if r.places.taskFile == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(r.places.taskFile), nudgeFile)
}

// forgetNudge removes the file of a run before, in whose directory this one
// goes on.
func (r *run) forgetNudge() {
	if file := r.nudgePath(); file != "" {
		os.Remove(file)
	}
}
