package toolproxy

import (
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// maxExecResult bounds the body of a result: two streams of
// picket.MaxExecOutput, whose bytes may grow sixfold as JSON.
const maxExecResult = 2*6*picket.MaxExecOutput + smallBody

// handleExecResult takes the adapter's result of a process.
func handleExecResult(c echo.Context, results execResultRecorder, held picket.LeaseCredential,
	r picket.ExecResult) (any, error) {
	switch {
	case len(r.Stdout) > picket.MaxExecOutput || len(r.Stderr) > picket.MaxExecOutput:
		return nil, picket.Refuse(picket.CodeTooLarge, "Cut it and say truncated.", "a stream has more than %d bytes",
			picket.MaxExecOutput).With("limit", picket.MaxExecOutput)
	case r.DurationMs < 0 || r.DurationMs > picket.MaxNumber:
		return nil, picket.Invalid("/durationMs", "Send milliseconds.", "durationMs %d is out of range", r.DurationMs)
	case r.Signal != nil && !signalPattern.MatchString(*r.Signal):
		return nil, picket.Invalid("/signal", "Send a name such as SIGKILL, or null.",
			"signal is not the name of a signal")
	case len(r.Failed) > maxReason:
		return nil, picket.Invalid("/failed", "Say it shorter.", "failed has %d bytes", len(r.Failed))
	case len(r.Stopped) > maxReason:
		return nil, picket.Invalid("/stopped", "Say it shorter.", "stopped has %d bytes", len(r.Stopped))
	}
	return struct{}{}, results.ExecResult(c.Request().Context(), held, c.Param("callId"), r)
}
