package adapter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/text"
)

// execResultMargin is what the result of a killed program needs for its way.
const execResultMargin = 2 * time.Second

// execRunner runs the programs that calls of the tool exec ask for, beside the agent.
// Each call is one program, no matter how often its order comes.
type execRunner struct {
	*runScope
	stall          *stallDetector  // the output of programs is a sign of life
	programsCtx    context.Context // of the programs: ends with the lease
	resultsCtx     context.Context // of their results: ends with the run; set by begin
	cancelPrograms context.CancelFunc
	closed         chan struct{} // no more will be started

	mu       sync.Mutex
	isClosed bool
	executor process.Executor // nil: not yet, or none
	known    map[string]bool
	open     []string // calls whose result is not handed in, oldest first
	running  sync.WaitGroup
}

func newExecRunner(scope *runScope, stall *stallDetector) *execRunner {
	e := &execRunner{runScope: scope, stall: stall, closed: make(chan struct{}), known: map[string]bool{}}
	e.programsCtx, e.cancelPrograms = context.WithCancel(context.Background())
	return e
}

// close kills what runs, and no more will be started.
func (e *execRunner) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.isClosed {
		e.isClosed = true
		e.cancelPrograms()
		close(e.closed)
	}
}

// begin takes orders from now on, which come again until they are known.
func (e *execRunner) begin(work context.Context, p process.Process) {
	proc, _ := p.(process.Executor)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resultsCtx, e.executor = work, proc
}

// stop kills what runs and starts nothing more: the lease has ended.
func (e *execRunner) stop() {
	e.mu.Lock()
	e.executor = nil
	e.mu.Unlock()
	e.cancelPrograms()
}

// openCalls are the calls that need not be sent again.
func (e *execRunner) openCalls() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.open)
}

// startNew starts the program of an order that is new.
func (e *execRunner) startNew(order picket.ExecRequest) {
	deadline := e.cfg.clock() + time.Duration(order.TTLMs)*time.Millisecond
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isClosed || e.executor == nil || e.known[order.CallID] || order.CallID == "" {
		return
	}
	e.known[order.CallID] = true
	e.open = append(e.open, order.CallID)
	work, proc := e.resultsCtx, e.executor
	e.running.Go(func() {
		defer e.remove(order.CallID)
		result := e.execute(proc, order, deadline)
		e.post(work, order.CallID, result, deadline)
	})
}

func (e *execRunner) remove(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open = slices.DeleteFunc(e.open, func(known string) bool { return known == id })
}

// wait returns when every result was handed in or given up.
func (e *execRunner) wait() {
	<-e.closed
	e.running.Wait()
}

// execute runs a program to its end.
func (e *execRunner) execute(proc process.Executor, order picket.ExecRequest,
	deadline time.Duration) picket.ExecResult {
	began := e.cfg.clock()
	limit := min(time.Duration(order.TimeoutSeconds)*time.Second, deadline-began-execResultMargin)
	if limit <= 0 || len(order.Argv) == 0 {
		return picket.ExecResult{Failed: "the order came too late to be carried out"}
	}
	e.log.Info("running a program for the agent", "call", order.CallID, "program", order.Argv[0])
	stdout, stderr := &headTailBuffer{}, &headTailBuffer{}
	end, err := proc.Exec(e.programsCtx, process.ExecJob{
		ID: order.CallID, Argv: order.Argv, Timeout: limit, Stdin: strings.NewReader(order.Stdin),
		Stdout: e.stall.watchWriter(stdout), Stderr: e.stall.watchWriter(stderr),
	})
	e.stall.touch(time.Now())
	result := picket.ExecResult{DurationMs: int64((e.cfg.clock() - began) / time.Millisecond)}
	if err != nil {
		result.Failed = text.Head(strings.ToValidUTF8(err.Error(), "\uFFFD"), 1024)
		return result
	}
	secret := e.lease.AgentCredential().Reveal()
	var cut [2]bool
	result.Stdout, cut[0] = stdout.text(secret, picket.MaxExecOutput)
	result.Stderr, cut[1] = stderr.text(secret, picket.MaxExecOutput)
	result.Truncated = cut[0] || cut[1]
	result.Stopped = execStopReason(end, limit, time.Duration(result.DurationMs)*time.Millisecond)
	if end.Signal != "" {
		result.Signal = &end.Signal
	} else {
		result.Code = &end.Code
	}
	return result
}

// execStopReason returns why a program was killed, so that its caller knows that it did not fail on
// its own.
func execStopReason(end process.Exited, limit, lasted time.Duration) string {
	switch {
	case end.LimitHit != "":
		return "the command was stopped: " + end.LimitHit
	case end.Signal == "SIGKILL" && lasted >= limit:
		return fmt.Sprintf("the command was stopped: more than %.0f s", limit.Seconds())
	}
	return ""
}

// post posts a result until it was taken, refused, or nobody waits for it any
// more. The first one counts, so that a lost answer does no harm.
func (e *execRunner) post(work context.Context, id string, result picket.ExecResult, deadline time.Duration) {
	pace := backoff{least: 100 * time.Millisecond, most: 2 * time.Second}
	tooLate := func() bool { return e.cfg.clock() >= deadline }
	err := retry(work, pace, tooLate, func(ctx context.Context) error { return e.proxy.ExecResult(ctx, id, result) })
	if err != nil {
		e.log.Warn("the result of a program was not taken", "call", id, "err", err)
	}
}
