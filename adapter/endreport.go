package adapter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/text"
)

// endReporter reports the end of a run and knows its result.
type endReporter struct {
	*runScope
	result   Result
	member   *registeredRun
	output   *runOutput
	slot     *slot                // takes the next lease; nil: nothing comes after this one
	leaseEnd func() time.Duration // when the lease ends, on the clock
	proc     process.Process      // nil: it was not started
}

// reportEnd reports the end of a run whose process is dead.
func (r *endReporter) reportEnd(ctx context.Context, end agentEnd) error {
	v := end.request
	r.proc, r.result.TimedOut, r.result.LastProgressTick = end.proc, end.timedOut, end.lastTick
	exit := r.exitReport(end)
	switch {
	case v.ending != "":
		r.result.Ending = v.ending
		return r.recordExit(ctx, exit)
	case v.ownDeadline:
		return r.releaseMaybeExpired(ctx, exit)
	case v.class != "" || exit.Class != picket.ExitSuccess:
		return r.releaseLease(ctx, exit)
	case r.lease.Task.OnExit == picket.OnExitComplete:
		return r.completeWithOutput(ctx, exit)
	}
	exit.Class, exit.Detail = picket.ExitNoResult, r.output.tail()
	return r.releaseLease(ctx, exit)
}

// exitReport describes how the process ended, and by which request.
func (r *endReporter) exitReport(end agentEnd) picket.Exit {
	exited := end.proc.Exit()
	ms := int64((r.cfg.clock() - end.launchedAt) / time.Millisecond)
	exit := picket.Exit{Class: end.request.class, Code: &exited.Code, DurationMs: &ms}
	if exited.Signal != "" {
		exit.Signal = &exited.Signal
	}
	if exit.Class == "" {
		switch {
		case exited.Code == 0:
			exit.Class = picket.ExitSuccess
		case end.signalled:
			exit.Class = picket.ExitKilled
		default:
			exit.Class = picket.ExitCrash
		}
	}
	if exit.Class != picket.ExitSuccess {
		exit.Detail = r.output.tail()
	}
	if end.request.class == picket.ExitStalled || end.request.inReport {
		exit.Detail = text.Head(end.request.reason+"\n"+exit.Detail, maxDetail)
	}
	return exit
}

// releaseLease releases the lease with how the process ended.
func (r *endReporter) releaseLease(ctx context.Context, exit picket.Exit) error {
	return r.releaseOr(ctx, exit, exit.Class, EndReleased)
}

// releaseMaybeExpired releases a lease whose agent has exited and which may have ended already. If
// it has not ended, that is not an error.
func (r *endReporter) releaseMaybeExpired(ctx context.Context, exit picket.Exit) error {
	return r.releaseOr(ctx, exit, picket.ExitLeaseLost, EndLost)
}

// releaseOr releases the lease. Where that fails, the run has ended with another class and
// ending.
func (r *endReporter) releaseOr(ctx context.Context, exit picket.Exit, class picket.ExitClass, ending Ending) error {
	told := exit
	told.LastEvent = new(r.output.events.lastID())
	err := r.retryReport(ctx, func(ctx context.Context) (err error) {
		r.result.State, err = r.proxy.Release(ctx, told)
		return err
	})
	if err == nil {
		r.result.Exit, r.result.Ending = exit, EndReleased
		return nil
	}
	exit.Class = class
	if leaseOrTaskEnded(err) {
		return r.reportEndedLease(ctx, exit)
	}
	r.result.Exit, r.result.Ending, r.result.Unreported = exit, ending, true
	return fmt.Errorf("release lease: %w", err)
}

// completeWithOutput hands in the end of the process's output as the task's result.
func (r *endReporter) completeWithOutput(ctx context.Context, exit picket.Exit) error {
	output, err := r.output.result()
	if err != nil {
		return err
	}
	r.result.State, err = r.completeTask(ctx, output)
	switch {
	case err == nil:
		r.result.Ending = EndCompleted
		return r.recordExit(ctx, exit)
	case leaseOrTaskEnded(err):
		return r.reportEndedLease(ctx, exit)
	case isRetryable(err):
		r.result.Exit, r.result.Ending, r.result.Unreported = exit, EndLost, true
		return fmt.Errorf("complete task: %w", err)
	}
	r.log.Warn("the result was refused", "err", err)
	exit.Class, exit.Detail = picket.ExitNoResult, "the result was refused: "+text.Head(err.Error(), maxDetail/2)
	return r.releaseLease(ctx, exit)
}

// completeTask completes the task, and takes the next lease in the same step where
// that is possible. Where it is not, or if the outcome is unknown, the plain call of
// the proxy completes the task, which has no second effect.
func (r *endReporter) completeTask(ctx context.Context, output picket.RawJSON) (state picket.TaskState, err error) {
	if r.slot != nil && r.slot.shouldAdvance() {
		state, err = r.slot.advance(ctx, r.lease, output)
		if err == nil || leaseOrTaskEnded(err) {
			return state, err
		}
		r.log.Debug("completed without asking for the next task", "err", err)
	}
	done := picket.Completion{Output: output}
	complete := func(ctx context.Context) (err error) {
		state, err = r.proxy.CompleteWith(ctx, done)
		return err
	}
	err = r.retryReport(ctx, complete)
	if errors.Is(err, picket.CodeChildrenOpen) {
		// The agent has ended without a word about them: they run on, for a person.
		done.Children = picket.ChildrenDetach
		err = r.retryReport(ctx, complete)
	}
	return state, err
}

// reportEndedLease ends a run whose lease ended before the adapter could report: the
// agent may have called mark_complete and exited at once. What became of the
// lease is asked, and the exit follows as evidence.
func (r *endReporter) reportEndedLease(ctx context.Context, exit picket.Exit) error {
	r.result.Ending = EndLost
	var w picket.Watch
	err := r.retryReport(ctx, func(ctx context.Context) (err error) {
		w, _, err = r.proxy.Watch(ctx, 0)
		return err
	})
	if stop, ended := stopAfterLease[w.State]; err == nil && ended {
		r.result.Ending = stop.ending
	}
	if exit.Class == picket.ExitNoResult && exit.Code != nil && *exit.Code == 0 {
		exit.Class, exit.Detail = picket.ExitSuccess, ""
	}
	return r.recordExit(ctx, exit)
}

// recordExit records how the process of an ended lease ended.
func (r *endReporter) recordExit(ctx context.Context, exit picket.Exit) error {
	if r.result.Ending == EndCompleted && exit.Class == picket.ExitCrash {
		// Many a coding agent wants to say a last word, and its lease pays for no
		// model any more.
		exit.Detail = text.Head(exit.Detail, maxDetail-len(afterResultNote)) + afterResultNote
	}
	r.result.Exit = exit
	if !strings.HasSuffix(exit.Detail, afterResultNote) {
		exit.Detail = "" // the server has a reason of its own, and the log
	}
	containment := ""
	if r.proc != nil {
		containment = r.proc.Containment()
	}
	exit.LastEvent = new(r.output.events.lastID())
	err := r.retryReport(ctx, func(ctx context.Context) error { return r.proxy.Exit(ctx, exit, containment) })
	if err != nil {
		r.result.Unreported = true
		return fmt.Errorf("record exit: %w", err)
	}
	return nil
}

// afterResultNote is the last line about an agent that failed with nothing left to do.
const afterResultNote = "\n[picket: its result had been taken before; that it then ended so changes nothing]"

// retryReport repeats a report while its outcome is unknown or the server is away,
// until Config.ReportRetry after the lease's end. In a hurry it gives up soon. All
// reports are idempotent, so a lost reply does no harm.
func (r *endReporter) retryReport(ctx context.Context, report func(context.Context) error) error {
	until := max(r.leaseEnd(), r.cfg.clock()) + r.cfg.ReportRetry
	patient := context.WithoutCancel(ctx)
	pace := backoff{least: 200 * time.Millisecond, most: 5 * time.Second}
	for pause := ctx; ; pace.pause(pause) {
		now := r.cfg.clock()
		if ctx.Err() != nil && pause != patient {
			pause, until = patient, min(until, now+reportTimeout)
		}
		try, cancel := context.WithTimeout(patient, min(reportTimeout, max(until-now, time.Second)))
		err := report(try)
		cancel()
		if err == nil || !isRetryable(err) || r.cfg.clock() >= until {
			return err
		}
		r.log.Debug("report not taken yet", "err", err)
	}
}

// writeExit leaves the result in the run's directory, if there is one.
func (r *endReporter) writeExit(dir string) {
	if dir == "" {
		return
	}
	if err := files.WriteJSON(filepath.Join(dir, exitFile), r.result.Exit); err != nil && !os.IsNotExist(err) {
		r.log.Warn("the end of the run cannot be written", "dir", dir, "err", err)
	}
}

// confirmFailed ends a run whose lease could not be confirmed.
func (r *endReporter) confirmFailed(ctx context.Context, err error) error {
	r.member.markProcessesGone()
	if leaseLost(err) {
		r.result.Ending = EndLost
		if errors.Is(err, picket.CodeTaskCancelled) {
			r.result.Ending = EndCancelled
		}
		r.result.Exit.Class = picket.ExitLeaseLost
		return nil
	}
	if ctx.Err() != nil {
		return r.releaseUnlaunched(ctx)
	}
	r.result.Ending, r.result.Unreported = EndLost, true
	r.result.Exit.Class = picket.ExitLeaseLost
	return fmt.Errorf("confirm lease: %w", err)
}

// releaseUnlaunched gives back a lease before anything was started for it.
func (r *endReporter) releaseUnlaunched(ctx context.Context) error {
	r.member.markProcessesGone()
	return r.releaseLease(ctx, picket.Exit{Class: picket.ExitReleased})
}

// prepareFailed ends a run whose directory could not be made. That is not a failure if the lease
// was lost meanwhile or has to be given back.
func (r *endReporter) prepareFailed(ctx, held context.Context, err error) error {
	r.member.markProcessesGone()
	switch {
	case ctx.Err() != nil || errors.Is(context.Cause(held), errHeartbeatsUnacked):
		return r.releaseUnlaunched(ctx)
	case held.Err() != nil:
		return r.reportEndedLease(ctx, picket.Exit{Class: picket.ExitLeaseLost})
	}
	return r.launchFailed(ctx, err)
}

// launchFailed gives back a lease whose agent could not be started. It counts as
// a crash, so that a broken set-up ends in front of a person, not in a loop.
func (r *endReporter) launchFailed(ctx context.Context, err error) error {
	r.member.markProcessesGone() // before the report, which may take its time
	code := 127
	said := err.Error()
	if refusal := (*picket.Error)(nil); errors.As(err, &refusal) && refusal.Remedy != "" {
		said += ". " + refusal.Remedy
	}
	if errors.Is(err, picket.CodeBudgetExceeded) {
		code = exitCodeOutOfBudget
	}
	exit := picket.Exit{Class: picket.ExitCrash, Code: &code, Detail: text.Head(said, maxDetail)}
	return errors.Join(err, r.releaseLease(ctx, exit))
}
