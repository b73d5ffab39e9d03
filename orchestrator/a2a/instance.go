package a2a

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/picket-dev/picket"
)

// An instance is one agent of a pool. A task that is sent to it is kept for it while its incarnation lives, and goes to
// the pool after that.

// InstanceURL is the address of the endpoint of one agent, below the address of the server.
func InstanceURL(publicURL, namespace, role, agentID string) string {
	return poolURL(publicURL, namespace, role) + "/instances/" + agentID
}

// poolURL is the address of the endpoint of a pool, or of the server if there is no role.
func poolURL(publicURL, namespace, role string) string {
	if namespace != defaultNamespace {
		publicURL += "/n/" + namespace
	}
	if role != "" {
		publicURL += "/agents/" + role
	}
	return publicURL
}

// openInstance finds the instance that the address names. An agent that is not of the pool is not found.
func (x *exchange) openInstance(ctx context.Context, agentID string) error {
	a, _, err := x.engine.Agent(ctx, agentID)
	switch {
	case errors.Is(err, picket.CodeNotFound) || errors.Is(err, picket.CodeValidation) ||
		err == nil && a.RoleID != x.pool.Role:
		return noEndpoint()
	case err != nil:
		return err
	}
	x.instance = &a
	return nil
}

// unlessClosed is an error of a submission, or why the instance takes no new tasks if it was refused for that.
func unlessClosed(err, closed error) error {
	if closed != nil && errors.Is(err, picket.CodeAgentDraining) {
		return closed
	}
	return err
}

// checkTakesTasks refuses new tasks for an instance that drains, or that has left for good. A task for one that died
// waits for the pool.
func (x *exchange) checkTakesTasks() error {
	if x.instance == nil {
		return nil
	}
	remedy := "Send it to the pool: " + x.poolBase() + "/a2a"
	switch x.instance.Status {
	case picket.AgentDraining:
		return picket.Refuse(picket.CodeAgentDraining, remedy, "%s drains, so it takes no new tasks",
			x.instance.AgentID)
	case picket.AgentDeregistered:
		return picket.Refuse(picket.CodeAgentGone, remedy, "%s is deregistered", x.instance.AgentID)
	}
	return nil
}

// instanceHealth is the health of the instance, and the status of its answer.
func (x *exchange) instanceHealth() (healthAnswer, int) {
	status := http.StatusOK
	switch x.instance.Status {
	case picket.AgentDead:
		status = http.StatusServiceUnavailable
	case picket.AgentDeregistered:
		status = http.StatusGone
	}
	return healthAnswer{Status: string(x.instance.Status)}, status
}

// instanceName is the name of the instance on its card.
func (x *exchange) instanceName(pool string) string {
	return pool + ", " + cmp.Or(x.instance.Name, x.instance.AgentID)
}
