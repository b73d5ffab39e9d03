package orchestrator

import (
	"context"

	"github.com/picket-dev/picket"
)

// Pause presses the stop button: no grants; hard ends all runs too. It is never refused for the state of the
// namespace. A key that was used with another body is CodeIdempotencyConflict.
func (e *Engine) Pause(ctx context.Context, by picket.Caller, hard bool, reason string) (picket.PauseState, error) {
	return e.pauseState(ctx, "pause", by.Actor, boolArg(hard), reason, sweepBatch, by.Idempotency.Key,
		by.Idempotency.Body, "")
}

// PauseUnlessChanged is Pause by a person who has seen the pause that was made at seen, or 0
// without one. If another pause has been made since, that one stays, and state_conflict names who
// made it. A stop (hard) is never refused.
func (e *Engine) PauseUnlessChanged(ctx context.Context, by picket.Caller, hard bool, reason string,
	seen picket.Instant) (picket.PauseState, error) {
	return e.pauseState(ctx, "pause", by.Actor, boolArg(hard), reason, sweepBatch, by.Idempotency.Key,
		by.Idempotency.Body, int64(seen))
}

// Resume lets grants flow again. If nothing is paused, it changes nothing, which is not an error.
func (e *Engine) Resume(ctx context.Context, by picket.Caller, reason string) (picket.PauseState, error) {
	return e.pauseState(ctx, "resume", by.Actor, reason, by.Idempotency.Key, by.Idempotency.Body, "")
}

// ResumeUnlessChanged is Resume by a person who has seen the pause that was made at seen. A later
// pause, such as a stop, stays, and state_conflict names who made it.
func (e *Engine) ResumeUnlessChanged(ctx context.Context, by picket.Caller, reason string,
	seen picket.Instant) (picket.PauseState, error) {
	return e.pauseState(ctx, "resume", by.Actor, reason, by.Idempotency.Key, by.Idempotency.Body, int64(seen))
}

func (e *Engine) pauseState(ctx context.Context, script string, args ...any) (picket.PauseState, error) {
	r := e.run(ctx, script, args...)
	var p pauseView
	r.Decode(&p)
	return p.state(), r.Err
}

// pauseView is a pause as scripts show it.
type pauseView struct {
	picket.PauseState
	Mode string `reply:"mode"` // "", soft or hard
}

func (p pauseView) state() picket.PauseState {
	p.Paused, p.Hard = p.Mode != "", p.Mode == "hard"
	return p.PauseState
}
