package toolproxy

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// execQueue has processes started by the adapter of a run: no proxy starts any.
type execQueue interface {
	// CanExec reports whether the adapter of the run starts processes for it.
	CanExec(ctx context.Context, held picket.LeaseCredential) (bool, error)
	// OrderExec asks for a process; the same CallID again is the same order.
	OrderExec(ctx context.Context, held picket.LeaseCredential, order picket.ExecRequest) error
	// AwaitExec waits for its result; done is false when the wait ran out or none
	// can come any more. It needs no lease that still holds.
	AwaitExec(ctx context.Context, held picket.LeaseCredential, callID string,
		wait time.Duration) (r picket.ExecResult, done bool, err error)
	// ExecResult is the adapter's answer, up to the call's deadline.
	ExecResult(ctx context.Context, held picket.LeaseCredential, callID string, r picket.ExecResult) error
}

// maxExecResult bounds the body of a result: two streams of
// picket.MaxExecOutput, whose bytes may grow sixfold as JSON.
const maxExecResult = 2*6*picket.MaxExecOutput + smallBody

// handleExecResult takes the adapter's result of a process.
func handleExecResult(_ *Proxy, c echo.Context, door Backend, held picket.LeaseCredential) error {
	r, _, err := web.Decode[picket.ExecResult](c, maxExecResult)
	if err != nil {
		return err
	}
	switch {
	case len(r.Stdout) > picket.MaxExecOutput || len(r.Stderr) > picket.MaxExecOutput:
		return picket.Refuse(picket.CodeTooLarge, "Cut it and say truncated.", "a stream has more than %d bytes",
			picket.MaxExecOutput).With("limit", picket.MaxExecOutput)
	case r.DurationMs < 0 || r.DurationMs > picket.MaxNumber:
		return picket.Invalid("/durationMs", "Send milliseconds.", "durationMs %d is out of range", r.DurationMs)
	case r.Signal != nil && !signalPattern.MatchString(*r.Signal):
		return picket.Invalid("/signal", "Send a name such as SIGKILL, or null.", "signal is not the name of a signal")
	case len(r.Failed) > maxReason:
		return picket.Invalid("/failed", "Say it shorter.", "failed has %d bytes", len(r.Failed))
	case len(r.Stopped) > maxReason:
		return picket.Invalid("/stopped", "Say it shorter.", "stopped has %d bytes", len(r.Stopped))
	}
	if err := door.ExecResult(c.Request().Context(), held, c.Param("callId"), r); err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, struct{}{})
}
