package adapter

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
)

// RunShim lets a program be the shim of its own agents: the small process
// between adapter and agent that kills the agent's tree when the adapter is
// killed, stopped or told to. Call it first thing in main, and in TestMain: in
// a process that was started as a shim it serves and never returns, in every
// other one it returns at once. Programs that do not call it, and name no
// other program in CommandLauncher.Shim, hold their agents with
// picket.ContainmentGroup only.
func RunShim() {
	serveShim()
	canBeShim.Store(true)
}

// ShimName is what a shim is called in a list of processes.
const ShimName = "picket-shim"

// canBeShim says that this program called RunShim.
var canBeShim atomic.Bool

// BestContainment is the best way to hold a process tree that works here, for
// a program that called RunShim, and why there is no better one; why is empty
// when there is none to wish for. It is found out by trying, once.
func BestContainment() (level, why string) {
	levels := shimLevels()
	if !canBeShim.Load() {
		return picket.ContainmentGroup, "this program does not call adapter.RunShim"
	}
	return levels.best, levels.why
}

// levels are what a shim of this machine can do.
type levels struct {
	best         string
	why          string // nothing better is possible
	cgroupParent string
	controls     controls // of leaves in cgroupParent
}

// shimLevels tries what works here, once.
var shimLevels = sync.OnceValue(tryLevels)

// checkContainment refuses a level that is not available.
func checkContainment(level string, shim []string) error {
	switch {
	case level == "" || level == picket.ContainmentGroup:
		return nil
	case !slices.Contains(picket.Containments, level):
		return picket.Invalid("Containment",
			"Use "+strings.Join(picket.Containments, ", ")+", or leave it out for the best one.",
			"%q is not a way to hold a process tree", level)
	}
	l := shimLevels()
	if len(shim) == 0 && !canBeShim.Load() {
		return picket.Invalid("Containment",
			"Call adapter.RunShim first thing in main, name a program that does in CommandLauncher.Shim, or leave Containment out.",
			"%s needs a shim, and this program cannot be one", level)
	}
	if slices.Index(picket.Containments, level) < slices.Index(picket.Containments, l.best) {
		return picket.Invalid("Containment",
			"Use "+l.best+
				", or leave it out; to make it work, run the adapter in a delegated cgroup v2 (systemd: Delegate=yes).",
			"%s containment does not work here: %s", level, l.why)
	}
	return nil
}

// reins carry the run's deadline to its process, which comes later than the
// first deadline.
type reins struct {
	mu   sync.Mutex
	at   time.Duration
	proc Deadliner
}

// extend sets the time by which the tree must be dead.
func (r *reins) extend(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at == r.at {
		return
	}
	r.at = at
	if r.proc != nil {
		r.proc.KillAt(at)
	}
}

// first is the deadline so far, for the start of a process.
func (r *reins) first() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// hand gives the reins of a process that was started with the deadline told.
func (r *reins) hand(p Process, told time.Duration) {
	d, ok := p.(Deadliner)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc = d; r.at != told {
		d.KillAt(r.at)
	}
}

// momentBefore is how much sooner than the adapter a process may act on a
// deadline that both know.
const momentBefore = 250 * time.Millisecond

// overdue is the verdict on a process that ended because its deadline passed,
// which it may have seen a moment before the adapter did. Before the deadline of
// the lease, that was one of the heartbeats: the lease may hold.
func (r *run) overdue(v order) order {
	if p, ok := r.proc.(interface{ Overdue() bool }); ok && p.Overdue() {
		late := time.Duration(r.leaseEnd.Load()) - margin(r.keep.window) - momentBefore
		if r.session != nil && r.cfg.clock() < late {
			return v.then(order{how: killNow, class: picket.ExitReleased, own: true})
		}
		v = v.then(order{how: killNow, ending: EndLost, class: picket.ExitLeaseLost})
	}
	return v
}
