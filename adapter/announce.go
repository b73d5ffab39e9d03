package adapter

import (
	"context"
	"time"

	"github.com/picket-dev/picket"
)

// Holder is a Launcher that knows before a launch how it will hold the tree, as
// Process.Containment tells it afterwards.
type Holder interface {
	Holds() string
}

// Holds is the level that the next process gets, but for a cgroup that cannot
// be made by then.
func (l CommandLauncher) Holds() string {
	level, err := l.levelFor()
	if err != nil {
		return ""
	}
	return level
}

// announce writes run.launched into the event log, before there is a process:
// whoever is killed between the two leaves a task that waits for a process that
// never was, not a process that nobody waits for. A proxy that is slow or away
// does not hold up the launch for long; it is told as soon as it is back.
func (r *run) announce(work context.Context) picket.RunEvent {
	ctx, cancel := context.WithTimeout(work, 2*time.Second)
	defer cancel()
	event := picket.RunEvent{Type: picket.EventRunLaunched, WorkspacePath: r.places.workspace}
	if h, ok := r.cfg.Launcher.(Holder); ok {
		event.Containment = h.Holds()
	}
	if x, ok := r.cfg.Launcher.(Execs); ok {
		event.Exec = x.Execs()
	}
	if err := r.proxy.Events(ctx, event); err != nil {
		r.log.Warn("the start of the agent is not recorded yet", "err", err)
		r.events.add(event)
	}
	return event
}

// correct tells how the tree is really held; the log has its start once.
func (r *run) correct(told picket.RunEvent) {
	_, can := r.proc.(Executor)
	if is := r.proc.Containment(); is != told.Containment || can != told.Exec {
		told.Containment, told.Exec = is, can
		r.events.add(told)
	}
}
