package api

import (
	"context"
	"net/http"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/docs"
	"github.com/picket-dev/picket/internal/web"
)

type pauseBody struct {
	reasonBody
	Hard bool `json:"hard"`
}

// pause stops granting; hard ends every run as well.
func pause(c change[pauseBody]) (picket.PauseState, error) {
	return c.engine.Pause(c.ctx(), c.by, c.body.Hard, c.body.Reason)
}

// resumeBody is a picket.ResumeRequest, checked like every reason.
type resumeBody struct{ picket.ResumeRequest }

func (b resumeBody) check() error { return checkLength("/reason", b.Reason, maxReason) }

func resume(c change[resumeBody]) (picket.PauseState, error) {
	if c.body.PausedAt.IsZero() {
		return c.engine.Resume(c.ctx(), c.by, c.body.Reason)
	}
	return c.engine.ResumeUnlessChanged(c.ctx(), c.by, c.body.Reason, c.body.PausedAt)
}

func stats(r request) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	counts, err := r.engine.Stats(r.ctx())
	return r.respond(counts, err)
}

// inspect looks at the next part of a pass over the invariants.
func inspect(c change[picket.InspectRequest]) (picket.Inspection, error) {
	return c.engine.Inspect(c.ctx(), c.by, c.body)
}

type health struct {
	Status string `json:"status"`
}

// healthz says that the process runs; it asks nothing of the store.
func healthz(r request) error { return web.JSON(r.Context, http.StatusOK, health{"ok"}) }

// readyTimeout bounds how long readiness waits for the store.
const readyTimeout = 2 * time.Second

// readyz says whether every namespace of this process can be worked with.
func (a *API) readyz(r request) error {
	ctx, cancel := context.WithTimeout(r.ctx(), readyTimeout)
	defer cancel()
	engines := a.cfg.Engines()
	if len(engines) == 0 {
		return picket.Refuse(picket.CodeUnavailable, "Wait for the start to finish.", "no namespace is served yet")
	}
	for _, e := range engines {
		if err := e.Ready(ctx); err != nil {
			return err
		}
	}
	return web.JSON(r.Context, http.StatusOK, health{"ready"})
}

func openapi(r request) error {
	return r.Blob(http.StatusOK, "application/yaml", docs.OpenAPI)
}
