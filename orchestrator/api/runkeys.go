package api

import (
	"net/http"

	"github.com/picket-dev/picket"
)

// runKeyEvents is a route that other keys need scope reviewer for. The adapter
// of `picket run` follows the events of its task there.
const runKeyEvents = "GET /api/v1/events"

// runKeyRoutes are the routes that a run key may call: to work as its one agent,
// to read tasks, and to end or renew itself. The value says where the request
// names the agent: in the path, in the body, or nowhere.
var runKeyRoutes = map[string]agentLocation{
	"POST /api/v1/leases":                         agentInBody,
	"POST /api/v1/leases/advance":                 agentInBody,
	"POST " + renewalsPath:                        agentUnnamed, // the lease names the key that acquired it
	"POST /api/v1/agents":                         agentInBody,
	"GET /api/v1/agents/:id":                      agentInPath,
	"DELETE /api/v1/agents/:id":                   agentInPath,
	"PATCH /api/v1/agents/:id/status":             agentInPath,
	"POST /api/v1/agents/:id/heartbeat":           agentInPath,
	"POST /api/v1/agents/:id/messages":            agentInPath,
	"GET /api/v1/agents/:id/messages":             agentInPath,
	"GET /api/v1/tasks":                           agentUnnamed,
	"GET /api/v1/tasks/:id":                       agentUnnamed,
	"GET /api/v1/tasks/:id/evidence":              agentUnnamed,
	"GET /api/v1/tasks/:id/bundle":                agentUnnamed,
	"GET /api/v1/tasks/:id/bundle/:digest/:piece": agentUnnamed,
	runKeyEvents:                                  taskInQuery,
	"POST /api/v1/run-keys/renew":                 agentUnnamed,
	"DELETE /api/v1/run-keys":                     agentUnnamed,
}

type agentLocation int

const (
	agentUnnamed agentLocation = iota
	agentInPath
	agentInBody // the handler checks it, see [request.checkAgent]
	taskInQuery // the query names a task
)

// checkRunKey refuses a run key on every route that is not for its one agent.
func (r request) checkRunKey(at route) error {
	if !r.who.IsRunKey() {
		return nil
	}
	where, known := runKeyRoutes[at.method+" "+at.path]
	switch {
	case !known:
		return picket.Refuse(picket.CodeForbidden, "Use a key that was made with: picket key create",
			"a run key may only act as its agent %s", r.who.AgentID)
	case where == agentInPath:
		return r.checkAgent(r.Param("id"))
	case where == taskInQuery && r.QueryParam("task") == "":
		return picket.Refuse(picket.CodeForbidden, "Add the query parameter task.",
			"a run key may read the events of one task only")
	}
	return nil
}

// checkAgent refuses a run key that acts for another agent than its own.
func (r request) checkAgent(id string) error {
	if !r.who.IsRunKey() || id == r.who.AgentID {
		return nil
	}
	return picket.Refuse(picket.CodeForbidden, "Send the agent id that the run key was made for, or use another key.",
		"this run key is for the agent %s only", r.who.AgentID)
}

// createRunKey returns the key itself, which is shown only in this answer.
func createRunKey(c change[picket.RunKeyRequest]) (string, picket.NewRunKey, error) {
	made, err := c.engine.CreateRunKey(c.ctx(), c.by, c.body)
	return made.KeyID, made, err
}

// renewRunKey extends the life of the run key of the caller.
func renewRunKey(c change[struct{}]) (picket.APIKey, error) {
	if err := c.requireRunKey(); err != nil {
		return picket.APIKey{}, err
	}
	return c.engine.RenewRunKey(c.ctx(), c.who.KeyID)
}

// endRunKey ends the key of the caller.
func endRunKey(r request) error {
	c, err := decodeChange[struct{}](r, "")
	if err == nil {
		err = c.requireRunKey()
	}
	if err == nil {
		err = c.engine.EndRunKey(c.ctx(), c.who.KeyID)
	}
	if err != nil {
		return err
	}
	return r.NoContent(http.StatusNoContent)
}

func (r request) requireRunKey() error {
	if r.who.IsRunKey() {
		return nil
	}
	return picket.Refuse(picket.CodeStateConflict, "Send the request with a run key. POST /api/v1/run-keys makes one.",
		"the key of this request is not a run key")
}
