package orchestrator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// Evidence is about a run: it is accepted from the run's own credential until
// 15 minutes after the lease ended and never changes the state of the task.

// RunExit notes how the process of a run ended. A class the server has set
// stays; a task that waits for this process goes on at once.
func (e *Engine) RunExit(ctx context.Context, held picket.LeaseCredential, exit picket.Exit, containment string) error {
	if !slices.Contains(picket.EvidenceClasses, exit.Class) {
		return invalidExitClass(exit.Class, picket.EvidenceClasses)
	}
	code, signal, ms := exitArgs(exit)
	if err := checkLastEvent(exit); err != nil {
		return err
	}
	_, err := e.runHeld(ctx, held, "run_exit", string(exit.Class), code, signal, ms, containment,
		tailBytes(exit.Detail, 8<<10),
		lastEventArg(exit))
	return err
}

// RunLog appends output to a stream of the run and returns the offset of the
// next byte. Bytes known already are ignored; a gap is CodeOffset with the
// fact "expected".
func (e *Engine) RunLog(ctx context.Context, held picket.LeaseCredential, p picket.LogWrite) (int64, error) {
	if err := checkStream(p.Stream); err != nil {
		return 0, err
	}
	if p.Offset < 0 {
		return 0, picket.Invalid("offset", "Send the number of bytes sent before.", "offset is negative")
	}
	if len(p.Marks) > picket.MaxLogMarks {
		return 0, picket.Invalid("marks", "Send smaller pieces.", "%d marks are more than %d", len(p.Marks),
			picket.MaxLogMarks)
	}
	end := 0
	if p.End {
		end = 1
	}
	got, err := e.runHeld(ctx, held, "run_log", p.Stream, p.Offset, p.Data, packMarks(p.Marks), end)
	if err != nil {
		return 0, err
	}
	r := &reply{script: "run_log"}
	return r.int(got), r.err
}

func checkStream(stream string) error {
	if stream == "stdout" || stream == "stderr" {
		return nil
	}
	return picket.Invalid("stream", "Send stdout or stderr.", "stream is %q, allowed are stdout and stderr", stream)
}

// runEventTypes are what an adapter may write into the log.
var runEventTypes = []string{picket.EventRunLaunched, picket.EventRunStalled, picket.EventAgentHeartbeat,
	picket.EventAgentTimeoutWarning, picket.EventAgentTimedOut}

// RunEvents writes what an adapter observed: its process was launched, it shows
// no sign of life, or one of the launcher's timed events. An event with an id
// that the run has had is taken and not written again. Events beyond the budget
// of the run, or after its last event, are counted as refused writes instead.
func (e *Engine) RunEvents(ctx context.Context, held picket.LeaseCredential, events []picket.RunEvent) error {
	if len(events) == 0 || len(events) > 100 {
		return picket.Invalid("/events", "Send 1 to 100 events.", "events has %d entries", len(events))
	}
	var args []any
	for i, ev := range events {
		if !slices.Contains(runEventTypes, ev.Type) {
			return picket.Invalid(fmt.Sprintf("/events/%d/type", i),
				"Send run.launched, run.stalled, agent-heartbeat, agent-timeout-warning or agent-timed-out.",
				"%q is not an event an adapter may write", ev.Type)
		}
		top := ""
		if ev.Type != picket.EventRunLaunched && ev.Type != picket.EventRunStalled {
			b, err := jsonv2.Marshal(ev.LauncherFields)
			if err != nil {
				return fmt.Errorf("encode event: %w", err)
			}
			top = string(b)
		}
		data, err := jsonv2.Marshal(map[string]any{"containment": ev.Containment})
		if err != nil {
			return fmt.Errorf("encode event: %w", err)
		}
		if ev.Containment == "" {
			data = []byte("{}")
		}
		if p := ev.WorkspacePath; p != "" && (p[0] != '/' || len(p) > 1024 || strings.ContainsRune(p, 0)) {
			return picket.Invalid(fmt.Sprintf("/events/%d/workspacePath", i),
				"Send the absolute directory the process works in.",
				"workspacePath is not an absolute path of at most 1024 bytes")
		}
		if len(ev.ID) > picket.MaxEventID {
			return picket.Invalid(fmt.Sprintf("/events/%d/id", i), "Send at most 64 bytes.", "id has %d bytes",
				len(ev.ID))
		}
		said := ev.Containment
		if ev.Type == picket.EventRunStalled {
			said = silenceReason(ev.IdleSeconds)
		}
		exec := ""
		if ev.Exec {
			exec = "1"
		}
		args = append(args, ev.Type, ev.ID, string(data), top, said, ev.WorkspacePath, exec)
	}
	got, err := e.runHeld(ctx, held, "run_events", args...)
	if err != nil {
		return err
	}
	r := &reply{script: "run_events"}
	l := r.list(got)
	e.refusedWrites.add(picket.Code(r.text(r.at(l, 1))), r.int(r.at(l, 0)))
	return r.err
}

// silenceReason is a nudge's reason in words.
func silenceReason(idle *float64) string {
	if idle == nil {
		return "no report, output or tool call for some time"
	}
	return "no report, output or tool call for " + time.Duration(*idle*float64(time.Second)).Round(time.Second).String()
}

// refusalCounters counts refused writes by code.
type refusalCounters struct {
	mu sync.Mutex
	n  map[picket.Code]int64
}

func (c *refusalCounters) add(code picket.Code, n int64) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[picket.Code]int64{}
	}
	c.n[code] += n
}

// RefusedWrites counts the refused writes this process has seen, by code.
func (e *Engine) RefusedWrites() map[picket.Code]int64 {
	e.refusedWrites.mu.Lock()
	defer e.refusedWrites.mu.Unlock()
	out := make(map[picket.Code]int64, len(e.refusedWrites.n))
	for k, v := range e.refusedWrites.n {
		out[k] = v
	}
	return out
}

// RecordRefusedWrite counts a refused write and writes it into the log, the first 20
// of a run and minute one by one. The caller has its refusal already, so a
// store that is away only costs the event.
func (e *Engine) RecordRefusedWrite(ctx context.Context, held picket.LeaseCredential, verb string,
	refusal *picket.Error) {
	e.refusedWrites.add(refusal.Code, 1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	number := func(key string, otherwise int64) int64 {
		if n, ok := refusal.Facts[key].(int64); ok {
			return n
		}
		return otherwise
	}
	if _, err := e.run(ctx, "refused", held.RunID, verb, string(refusal.Code), number("presented", held.Fence),
		number("current", 0)); err != nil {
		e.log.WarnContext(ctx, "write refused event", "task", held.TaskID, "run", held.RunID, "err", err)
	}
}
