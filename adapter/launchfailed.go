package adapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

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

// prepareFailed ends a run whose directory could not be made. That is no failure of
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
