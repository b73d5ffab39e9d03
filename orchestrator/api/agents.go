package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// The routes of RFC-0016. The engine decides in the same step whether a caller may change an agent.
// This file has what HTTP adds.

// registerAgent answers 201 for a repeated request, too: the record is the one
// that it made.
func registerAgent(r request) error {
	_, reg, by, err := decodeMutation[picket.Registration](r, "", "")
	if err != nil {
		return err
	}
	if err := reg.Normalize(); err != nil {
		return err
	}
	if err := r.checkAgent(reg.AgentID); err != nil {
		return err
	}
	made, err := r.engine.Register(r.ctx(), by, reg)
	if err != nil {
		return err
	}
	r.Response().Header().Set(echo.HeaderLocation, agentPath(made.AgentID))
	r.setETag(made.Version)
	return web.JSON(r.Context, http.StatusCreated, made)
}

func agentPath(id string) string { return "/api/v1/agents/" + id }

// agentID is the agent in the path: the server's id or one that a client chose.
func (r request) agentID() (string, error) {
	id := r.Param("id")
	return id, picket.CheckName("id", id)
}

// decodeAgentChange is what every change of one agent starts with.
func decodeAgentChange[T any](r request) (id string, body T, by picket.Caller, err error) {
	if id, err = r.agentID(); err != nil {
		return
	}
	_, body, by, err = decodeMutation[T](r, "", "")
	return
}

// respondAgent answers an agent with its version in the head.
func (r request) respondAgent(a picket.Agent, err error) error {
	if err != nil {
		return err
	}
	r.setETag(a.Version)
	return web.JSON(r.Context, http.StatusOK, a)
}

// changeAgentStatus checks for If-Match before anything else, because a caller that has not read
// the record cannot know what it changes.
func changeAgentStatus(r request) error {
	match, err := r.requireIfMatch()
	if err != nil {
		return err
	}
	id, change, by, err := decodeAgentChange[picket.AgentStatusChange](r)
	if err != nil {
		return err
	}
	if err := change.Check(); err != nil {
		return err
	}
	return r.respondAgent(r.engine.ChangeAgent(r.ctx(), by, id, match, change))
}

// deregisterAgent takes an If-Match and needs none.
func deregisterAgent(r request) error {
	match, _, err := ifMatch(r.Request().Header)
	if err != nil {
		return err
	}
	id, _, by, err := decodeAgentChange[struct{}](r)
	if err != nil {
		return err
	}
	return r.respondAgent(r.engine.Deregister(r.ctx(), by, id, match))
}

func heartbeat(r request) error {
	id, hb, by, err := decodeAgentChange[picket.Heartbeat](r)
	if err != nil {
		return err
	}
	if err := hb.Check(); err != nil {
		return err
	}
	answer, err := r.engine.Heartbeat(r.ctx(), by, id, hb)
	return r.respond(answer, err)
}

// commandAgent leaves a command for the agent, who gets it with its next
// heartbeat.
func commandAgent(r request) error {
	id, command, by, err := decodeAgentChange[picket.AgentCommand](r)
	if err != nil {
		return err
	}
	if err := command.Check(); err != nil {
		return err
	}
	made, err := r.engine.CommandAgent(r.ctx(), by, id, command)
	if err != nil {
		return err
	}
	return web.JSON(r.Context, http.StatusAccepted, picket.CommandAccepted{CommandID: made})
}
