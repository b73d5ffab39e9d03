package toolproxy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// exitRequest reports how the process ended.
type exitRequest struct {
	picket.Exit
	Containment string  `json:"containment"`
	LastEventID *string `json:"lastEventId"`
}

func handleExit(c echo.Context, runs evidenceRecorder, held picket.LeaseCredential, body exitRequest) (any, error) {
	body.LastEvent = body.LastEventID
	if err := cmp.Or(checkExit("", body.Exit, picket.EvidenceClasses),
		checkContainment("/containment", body.Containment)); err != nil {
		return nil, err
	}
	return struct{}{}, runs.RunExit(c.Request().Context(), held, body.Exit, body.Containment)
}

func checkContainment(field, containment string) error {
	if containment == "" || slices.Contains(picket.Containments, containment) {
		return nil
	}
	return picket.Invalid(field, "Send "+strings.Join(picket.Containments, ", ")+", or leave it out.",
		"%s is not a way to hold a process tree", field)
}

// evidenceRequest is what the adapter knows of picket.Evidence.
type evidenceRequest struct {
	Repository string               `json:"repository"`
	Branch     string               `json:"branch"`
	Base       string               `json:"base"`
	Diffstat   string               `json:"diffstat"`
	Diff       string               `json:"diff"`
	Truncated  bool                 `json:"truncated"`
	Files      []picket.ChangedFile `json:"files"`
}

func handleEvidence(c echo.Context, runs evidenceRecorder, held picket.LeaseCredential,
	body evidenceRequest) (any, error) {
	ev := picket.Evidence{Repository: body.Repository, Branch: body.Branch, Base: body.Base,
		Diffstat: body.Diffstat, Diff: body.Diff, Truncated: body.Truncated, Files: body.Files}
	if err := ev.Check(); err != nil {
		return nil, err
	}
	return struct{}{}, runs.RunEvidence(c.Request().Context(), held, ev)
}

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
	case r.Signal != nil && !signalPattern().MatchString(*r.Signal):
		return nil, picket.Invalid("/signal", "Send a name such as SIGKILL, or null.",
			"signal is not the name of a signal")
	case len(r.Failed) > maxReason:
		return nil, picket.Invalid("/failed", "Say it shorter.", "failed has %d bytes", len(r.Failed))
	case len(r.Stopped) > maxReason:
		return nil, picket.Invalid("/stopped", "Say it shorter.", "stopped has %d bytes", len(r.Stopped))
	}
	return struct{}{}, results.ExecResult(c.Request().Context(), held, c.Param("callId"), r)
}
