package api

import (
	"net/http"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// The routes of RFC-0016. The engine decides in the same step whether a caller may change an agent.
// This file has what HTTP adds.

func registerAgent(c change[picket.Registration]) (id string, made picket.Agent, err error) {
	if err := c.body.Normalize(); err != nil {
		return "", made, err
	}
	if err := c.checkAgent(c.body.AgentID); err != nil {
		return "", made, err
	}
	if c.body.RoleID == picket.RoleAttached && !c.who.IsRunKey() {
		// Another agent could hide from discovery in this role.
		return "", made, picket.Refuse(picket.CodeForbidden,
			"Register with another role_id. `picket run` registers its worker, with a run key.",
			"only a run key may register an agent in the role %s", picket.RoleAttached).With("field", "/role_id")
	}
	made, err = c.tagged(c.engine.Register(c.ctx(), c.by, c.body))
	return made.AgentID, made, err
}

// tagged puts the version of an agent into the head of the answer. An agent that gave no endpoint is shown with that
// of the server, which is not stored: the address of the server can change.
func (r request) tagged(a picket.Agent, err error) (picket.Agent, error) {
	if err != nil {
		return a, err
	}
	r.Response().Header().Set(etagHeader, etag(a.Version))
	if r.agentEndpoint != nil && a.Endpoint == "" {
		a.Endpoint = r.agentEndpoint(r.who.Namespace, a)
	}
	return a, nil
}

// changeAgentStatus checks for If-Match before anything else, because a caller that has not read
// the record cannot know what it changes.
func changeAgentStatus(r request) error {
	match, err := r.requireIfMatch()
	if err != nil {
		return err
	}
	return changes("agent", func(c change[picket.AgentStatusChange]) (picket.Agent, error) {
		return c.tagged(c.engine.ChangeAgent(c.ctx(), c.by, c.id, match, c.body))
	})(r)
}

// deregisterAgent takes an If-Match and needs none.
func deregisterAgent(r request) error {
	match, _, err := ifMatch(r.Request().Header)
	if err != nil {
		return err
	}
	return changes("agent", func(c change[struct{}]) (picket.Agent, error) {
		return c.tagged(c.engine.Deregister(c.ctx(), c.by, c.id, match))
	})(r)
}

func heartbeat(c change[picket.Heartbeat]) (picket.HeartbeatAnswer, error) {
	return c.engine.Heartbeat(c.ctx(), c.by, c.id, c.body)
}

// commandAgent leaves a command for the agent, who gets it with its next
// heartbeat.
func commandAgent(r request) error {
	c, err := decodeChange[picket.AgentCommand](r, "agent")
	if err != nil {
		return err
	}
	made, err := c.engine.CommandAgent(c.ctx(), c.by, c.id, c.body)
	if err != nil {
		return err
	}
	return web.JSON(r.Context, http.StatusAccepted, picket.CommandAccepted{CommandID: made})
}
