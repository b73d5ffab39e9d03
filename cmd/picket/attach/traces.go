package attach

import (
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/internal/tracing"
)

// traceProcesses makes spans of the processes that an adapter starts. It is nil without traces.
func traceProcesses(tracer *tracing.Tracer) func(adapter.Event) {
	if tracer == nil {
		return nil
	}
	processes := tracer.NewProcesses()
	return func(e adapter.Event) {
		switch e.Kind {
		case adapter.EventAcquired:
			processes.Leased(*e.Lease)
		case adapter.EventLaunched:
			processes.Launched(e.RunID, e.PID, e.At)
		case adapter.EventEnded:
			if e.Result != nil {
				processes.Ended(e.RunID, e.Result.Exit, string(e.Result.Ending), e.At)
			}
		}
	}
}
