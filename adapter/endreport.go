package adapter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
	"github.com/picket-dev/picket/internal/text"
)

// reportTimeout bounds the reports of a run that was told to give back its lease now.
const reportTimeout = 10 * time.Second

// reportEnd reports the end of a run whose process is dead.
func (r *run) reportEnd(ctx context.Context, v stopRequest) error {
	defer r.registration.markLeaseEnded(r) // its output may take longer
	exit := r.exitReport(v)
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
	exit.Class, exit.Detail = picket.ExitNoResult, r.outputTail()
	return r.releaseLease(ctx, exit)
}

// releaseLease releases the lease with how the process ended.
func (r *run) releaseLease(ctx context.Context, exit picket.Exit) error {
	r.result.Exit = exit
	r.result.Ending = EndReleased
	exit.LastEvent = new(r.events.lastID())
	err := r.retryReport(ctx, func(ctx context.Context) (err error) {
		r.result.State, err = r.proxy.Release(ctx, exit)
		return err
	})
	switch {
	case err == nil:
		return nil
	case leaseOrTaskEnded(err):
		return r.reportEndedLease(ctx, exit)
	}
	r.result.Unreported = true
	return fmt.Errorf("release lease: %w", err)
}

// releaseMaybeExpired releases a lease that may have ended with its agent, which is no
// failure if it has not.
func (r *run) releaseMaybeExpired(ctx context.Context, exit picket.Exit) error {
	exit.LastEvent = new(r.events.lastID())
	err := r.retryReport(ctx, func(ctx context.Context) (err error) {
		r.result.State, err = r.proxy.Release(ctx, exit)
		return err
	})
	if err == nil {
		r.result.Exit, r.result.Ending = exit, EndReleased
		return nil
	}
	exit.Class = picket.ExitLeaseLost
	if leaseOrTaskEnded(err) {
		return r.reportEndedLease(ctx, exit)
	}
	r.result.Exit, r.result.Ending, r.result.Unreported = exit, EndLost, true
	return fmt.Errorf("release lease: %w", err)
}

// completeWithOutput hands in the end of the process's output as the task's result.
func (r *run) completeWithOutput(ctx context.Context, exit picket.Exit) error {
	output, err := r.resultOutput()
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

// maxResultOutput leaves room for the result under picket.MaxPayload: characters may
// grow sixfold when they are written as JSON.
const maxResultOutput = picket.MaxPayload * 3 / 4

func (r *run) resultOutput() (picket.RawJSON, error) {
	for n := maxTail; ; n /= 2 {
		b, err := json.Marshal(r.stdout.text(n))
		if err != nil || len(b) <= maxResultOutput {
			return b, err
		}
	}
}

// reportEndedLease ends a run whose lease ended before the adapter could report: the
// agent may have called mark_complete and exited at once. What became of the
// lease is asked, and the exit follows as evidence.
func (r *run) reportEndedLease(ctx context.Context, exit picket.Exit) error {
	r.result.Ending = EndLost
	var w picket.Watch
	err := r.retryReport(ctx, func(ctx context.Context) (err error) {
		w, _, err = r.proxy.Watch(ctx, 0)
		return err
	})
	if err == nil {
		switch w.State {
		case picket.WatchCompleted:
			r.result.Ending = EndCompleted
		case picket.WatchHandoff:
			r.result.Ending = EndHandoff
		case picket.WatchCancelled:
			r.result.Ending = EndCancelled
		}
	}
	if exit.Class == picket.ExitNoResult && exit.Code != nil && *exit.Code == 0 {
		exit.Class, exit.Detail = picket.ExitSuccess, ""
	}
	return r.recordExit(ctx, exit)
}

// recordExit records how the process of an ended lease ended.
func (r *run) recordExit(ctx context.Context, exit picket.Exit) error {
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
	exit.LastEvent = new(r.events.lastID())
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
// until Settle after the lease's end; in a hurry it gives up soon after. All
// reports are idempotent, so a lost reply does no harm.
func (r *run) retryReport(ctx context.Context, report func(context.Context) error) error {
	until := max(time.Duration(r.leaseEnd.Load()), r.cfg.clock()) + r.cfg.ReportRetry
	patient := context.WithoutCancel(ctx)
	pause, wait := ctx, 200*time.Millisecond
	for {
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
		sleep(pause, wait/2+rand.N(wait))
		wait = min(2*wait, 5*time.Second)
	}
}

// flushTimeout is how long the output is still posted after the run's end.
func (r *run) flushTimeout(ctx context.Context) time.Duration {
	if ctx.Err() != nil {
		return min(r.cfg.ReportRetry, reportTimeout)
	}
	return r.cfg.ReportRetry
}

// isRetryable reports whether the same call may succeed later.
func isRetryable(err error) bool {
	return errors.Is(err, picket.ErrUnknown) || picket.CodeOf(err).Retryable()
}

// leaseOrTaskEnded reports whether the lease or the task has ended already.
func leaseOrTaskEnded(err error) bool {
	return leaseLost(err) || errors.Is(err, picket.CodeTaskClosed) || errors.Is(err, picket.CodeStateConflict)
}

// writeExit leaves the result in the run's directory.
func (r *run) writeExit() {
	if r.paths.stateDir == "" {
		return
	}
	if err := files.WriteJSON(filepath.Join(r.paths.stateDir, exitFile), r.result.Exit); err != nil &&
		!os.IsNotExist(err) {
		r.log.Warn("the end of the run cannot be written", "dir", r.paths.stateDir, "err", err)
	}
}

// confirmFailed ends a run that was never launched.
func (r *run) confirmFailed(ctx context.Context, err error) error {
	r.markProcessesGone()
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
func (r *run) releaseUnlaunched(ctx context.Context) error {
	r.markProcessesGone()
	return r.releaseLease(ctx, picket.Exit{Class: picket.ExitReleased})
}

// prepareFailed ends a run whose directory could not be made. That is not a failure of
// its own when the lease was lost meanwhile or is to be given back.
func (r *run) prepareFailed(ctx, held context.Context, err error) error {
	r.markProcessesGone()
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
func (r *run) launchFailed(ctx context.Context, err error) error {
	r.markProcessesGone() // before the report, which may take its time
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
