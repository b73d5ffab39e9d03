package tracing

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/picket-dev/picket"
)

// Processes makes spans of the processes of agents, at the adapter. A nil Processes makes none.
type Processes struct {
	tracer *Tracer
	mu     sync.Mutex
	runs   map[string]*process // by run
}

// process is one that an adapter has started or will start.
type process struct {
	lease   picket.Lease
	started time.Time
	pid     int
}

// NewProcesses returns what makes spans of processes.
func (t *Tracer) NewProcesses() *Processes {
	if t == nil {
		return nil
	}
	return &Processes{tracer: t, runs: map[string]*process{}}
}

// Leased notes the lease of a run.
func (p *Processes) Leased(lease picket.Lease) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs[lease.RunID] = &process{lease: picket.Lease{TaskID: lease.TaskID, RunID: lease.RunID,
		FencingToken: lease.FencingToken, Attempt: lease.Attempt, Task: picket.LeaseTask{Trace: lease.Task.Trace}}}
}

// Launched notes that the process of a run was started.
func (p *Processes) Launched(runID string, pid int, at time.Time) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if run := p.runs[runID]; run != nil {
		run.started, run.pid = at, pid
	}
}

// Ended makes the span of the process of a run, which has ended. ending says how the adapter saw
// the end of the run.
func (p *Processes) Ended(runID string, exit picket.Exit, ending string, at time.Time) {
	if p == nil {
		return
	}
	p.mu.Lock()
	run := p.runs[runID]
	delete(p.runs, runID)
	p.mu.Unlock()
	if run == nil || run.started.IsZero() {
		return // it was never started, and the span of the run says why
	}
	to := at
	if ms := exit.DurationMs; ms != nil {
		to = run.started.Add(time.Duration(*ms) * time.Millisecond)
	}
	s := span{
		name: "agent process", id: spanID("process", runID), parent: spanID("run", runID), from: run.started, to: to,
		attrs: withText([]attribute.KeyValue{
			attribute.Int64("picket.fencing_token", run.lease.FencingToken),
			attribute.Int("picket.run.attempt", run.lease.Attempt),
			attribute.Int("process.pid", run.pid),
		}, "picket.task.id", run.lease.TaskID, "picket.run.id", runID, "picket.run.class", string(exit.Class),
			"picket.run.ending", ending),
	}
	if exit.Code != nil {
		s.attrs = append(s.attrs, attribute.Int("process.exit.code", *exit.Code))
	}
	if exit.Signal != nil {
		s.attrs = withText(s.attrs, "process.exit.signal", *exit.Signal)
	}
	switch exit.Class {
	case "", picket.ExitSuccess, picket.ExitReleased, picket.ExitKilled:
	default:
		s.problem = string(exit.Class)
	}
	p.tracer.send(run.lease.TaskID, run.lease.Task.Trace, s)
}
