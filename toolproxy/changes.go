package toolproxy

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// changeRecorder takes what a run has changed, as long as other evidence.
type changeRecorder interface {
	// RunEvidence keeps it in place of what the run handed in before.
	RunEvidence(ctx context.Context, held picket.LeaseCredential, ev picket.Evidence) error
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

func handleEvidence(_ *Proxy, c echo.Context, door Backend, held picket.LeaseCredential) error {
	body, _, err := web.Decode[evidenceRequest](c, picket.MaxPayload)
	if err != nil {
		return err
	}
	ev := picket.Evidence{Repository: body.Repository, Branch: body.Branch, Base: body.Base,
		Diffstat: body.Diffstat, Diff: body.Diff, Truncated: body.Truncated, Files: body.Files}
	if err := ev.Check(); err != nil {
		return err
	}
	if err := changeRecorder(door).RunEvidence(c.Request().Context(), held, ev); err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, struct{}{})
}
