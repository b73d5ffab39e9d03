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
