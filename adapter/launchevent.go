package adapter

import (
	"context"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
)

// recordLaunch writes run.launched into the event log, before there is a process:
// anyone who is killed between the two leaves a task that waits for a process that
// never was, not a process that nobody waits for. A proxy that is slow or away
// does not hold up the launch for long; it is told as soon as it is back.
func (r *run) recordLaunch(work context.Context) picket.RunEvent {
	ctx, cancel := context.WithTimeout(work, 2*time.Second)
	defer cancel()
	event := picket.RunEvent{Type: picket.EventRunLaunched, WorkspacePath: r.paths.workspace}
	if h, ok := r.cfg.Launcher.(process.ContainmentPlanner); ok {
		event.Containment = h.PlannedContainment()
	}
	if x, ok := r.cfg.Launcher.(process.ExecSupporter); ok {
		event.Exec = x.SupportsExec()
	}
	if err := r.proxy.Events(ctx, event); err != nil {
		r.log.Warn("the start of the agent is not recorded yet", "err", err)
		r.events.add(event)
	}
	return event
}

// correctLaunch tells how the tree is really held; the log has its start once.
func (r *run) correctLaunch(told picket.RunEvent) {
	_, can := r.proc.(process.Executor)
	if is := r.proc.Containment(); is != told.Containment || can != told.Exec {
		told.Containment, told.Exec = is, can
		r.events.add(told)
	}
}
