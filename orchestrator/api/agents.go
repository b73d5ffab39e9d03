package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// The routes of RFC-0016. Whose agent may be touched is decided by the engine,
// in the step that touches it; here is what HTTP adds.

// registerAgent answers 201 for a repeated request, too: the record is the one
// that it made.
func registerAgent(r request) error {
	_, reg, by, err := mutation[picket.Registration](r, "", "")
	if err != nil {
		return err
	}
	if err := reg.Normalize(); err != nil {
		return err
	}
	made, err := r.engine.Register(r.ctx(), by, reg)
	if err != nil {
		return err
	}
	r.Response().Header().Set(echo.HeaderLocation, agentPath(made.AgentID))
	r.versioned(made.Version)
	return web.JSON(r.Context, http.StatusCreated, made)
}

func agentPath(id string) string { return "/api/v1/agents/" + id }

// agentID is the agent in the path: the server's id or one that a client chose.
func (r request) agentID() (string, error) {
	id := r.Param("id")
	return id, picket.CheckName("id", id)
}

// agentChange is what every change of one agent starts with.
func agentChange[T any](r request) (id string, body T, by picket.Caller, err error) {
	if id, err = r.agentID(); err != nil {
		return
	}
	_, body, by, err = mutation[T](r, "", "")
	return
}

// record answers an agent with its version in the head.
func (r request) record(a picket.Agent, err error) error {
	if err != nil {
		return err
	}
	r.versioned(a.Version)
	return web.JSON(r.Context, http.StatusOK, a)
}

func heartbeat(r request) error {
	id, hb, by, err := agentChange[picket.Heartbeat](r)
	if err != nil {
		return err
	}
	if err := hb.Check(); err != nil {
		return err
	}
	answer, err := r.engine.Heartbeat(r.ctx(), by, id, hb)
	return r.answer(answer, err)
}
