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
	Hard   bool   `json:"hard"`
	Reason string `json:"reason"`
}

// pause stops granting; hard ends every run as well.
func pause(r request) error {
	_, body, by, err := decodeMutation[pauseBody](r, "", "")
	if err != nil {
		return err
	}
	if err := checkReason("/reason", body.Reason); err != nil {
		return err
	}
	state, err := r.engine.Pause(r.ctx(), by, body.Hard, body.Reason)
	return r.respond(state, err)
}

func resume(r request) error {
	_, body, by, err := decodeMutation[reasonBody](r, "", "")
	if err != nil {
		return err
	}
	if err := body.check(); err != nil {
		return err
	}
	state, err := r.engine.Resume(r.ctx(), by, body.Reason)
	return r.respond(state, err)
}

func stats(r request) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	counts, err := r.engine.Stats(r.ctx())
	return r.respond(counts, err)
}

// inspect looks at the next part of a pass over the invariants.
func inspect(r request) error {
	_, body, by, err := decodeMutation[picket.InspectRequest](r, "", "")
	if err != nil {
		return err
	}
	part, err := r.engine.Inspect(r.ctx(), by, body)
	return r.respond(part, err)
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
