package api_test

import (
	"testing"

	"github.com/picket-dev/picket"
)

// The messages of a task are not for keys of agents, also not by the routes of agents.
func TestTheRoutesOfAgentsTakeNoTask(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		task := p.want(201, "POST", "/api/v1/tasks", "operator", `{"title":"t"}`).text("taskId")
		for _, scope := range []string{"agent", "operator"} {
			p.wantCode(picket.CodeNotFound, "POST", "/api/v1/agents/"+task+"/messages", scope, `{"body":"x"}`)
			p.wantCode(picket.CodeNotFound, "GET", "/api/v1/agents/"+task+"/messages", scope, "")
		}
		page := p.want(200, "GET", "/api/v1/tasks/"+task+"/messages", "operator", "").body
		if list, _ := page["messages"].([]any); len(list) > 0 {
			t.Errorf("the task was told %v", list)
		}
	})
}

// An agent with the id of a task would read the inbox of the task.
func TestNoAgentHasTheIDOfATask(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		task := p.want(201, "POST", "/api/v1/tasks", "operator", `{"title":"t"}`).text("taskId")
		p.wantCode(picket.CodeValidation, "POST", "/api/v1/agents", "agent",
			`{"agent_id":"`+task+`","role_id":"r","capabilities":[]}`)
	})
}
