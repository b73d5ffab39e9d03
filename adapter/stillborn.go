package adapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/picket-dev/picket"
)

// unconfirmed ends a run that was never launched.
func (r *run) unconfirmed(ctx context.Context, err error) error {
	r.leave()
	if lost(err) {
		r.result.Ending = EndLost
		if errors.Is(err, picket.CodeTaskCancelled) {
			r.result.Ending = EndCancelled
		}
		r.result.Exit.Class = picket.ExitLeaseLost
		return nil
	}
	if ctx.Err() != nil {
		return r.unlaunched(ctx)
	}
	r.result.Ending, r.result.Unreported = EndLost, true
	r.result.Exit.Class = picket.ExitLeaseLost
	return fmt.Errorf("confirm lease: %w", err)
}

// unlaunched gives back a lease before anything was started for it.
func (r *run) unlaunched(ctx context.Context) error {
	r.leave()
	return r.giveBack(ctx, picket.Exit{Class: picket.ExitReleased})
}

// unprepared ends a run whose directory could not be made. That is no failure of
// its own when the lease was lost meanwhile or is to be given back.
func (r *run) unprepared(ctx, held context.Context, err error) error {
	r.leave()
	switch {
	case ctx.Err() != nil || errors.Is(context.Cause(held), errSilent):
		return r.unlaunched(ctx)
	case held.Err() != nil:
		return r.overtaken(ctx, picket.Exit{Class: picket.ExitLeaseLost})
	}
	return r.stillborn(ctx, err)
}

// stillborn gives back a lease whose agent could not be started. It counts as
// a crash, so that a broken set-up ends in front of a person, not in a loop.
func (r *run) stillborn(ctx context.Context, err error) error {
	r.leave() // before the report, which may take its time
	code := 127
	said := err.Error()
	if refusal := (*picket.Error)(nil); errors.As(err, &refusal) && refusal.Remedy != "" {
		said += ". " + refusal.Remedy
	}
	if errors.Is(err, picket.CodeBudgetExceeded) {
		code = codeOutOfBudget
	}
	exit := picket.Exit{Class: picket.ExitCrash, Code: &code, Detail: clip(said, maxDetail)}
	return errors.Join(err, r.giveBack(ctx, exit))
}
