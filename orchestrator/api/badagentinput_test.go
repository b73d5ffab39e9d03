package api_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/picket-dev/picket"
)

type badInput struct {
	method string
	path   string
	body   string
	code   picket.Code
	field  string
}

// badAgentRequests is what may not be sent, and the member that is to blame.
func badAgentRequests(agents, hb, status, commands, good string) []badInput {
	post := func(path string, code picket.Code, pairs ...string) (all []badInput) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, badInput{"POST", path, pairs[i], code, pairs[i+1]})
		}
		return all
	}
	many := func(n int) string { return `["t` + strings.Repeat(`","t`, n-1) + `"]` }
	var all []badInput
	all = append(all, post(agents, picket.CodeValidation,
		`{"agent_id":"a}b"}`, "/agent_id", `{"agent_id":"-a"}`, "/agent_id",
		`{"agent_id":"`+strings.Repeat("a", 129)+`"}`, "/agent_id", `{"agent_id":7}`, "/agent_id",
		`{"role_id":"a b"}`, "/role_id", `{"role_id":["a"]}`, "/role_id", `{"name":"`+strings.Repeat("é", 257)+`"}`,
		"/name", `{"name":{}}`, "/name",
		`{"capabilities":"billing"}`, "/capabilities", `{"capabilities":["a,b"]}`, "/capabilities/0",
		`{"capabilities":["a",""]}`, "/capabilities/1", `{"capabilities":[1]}`, "/capabilities/0",
		`{"capabilities":`+many(33)+`}`, "/capabilities",
		`{"capacity":5}`, "/capacity", `{"capacity":{"max_concurrent_tasks":-1}}`, "/capacity/max_concurrent_tasks",
		`{"capacity":{"max_concurrent_tasks":1.5}}`, "/capacity/max_concurrent_tasks",
		`{"capacity":{"max_concurrent_tasks":1000001}}`, "/capacity/max_concurrent_tasks", `{"capacity":{"max":1}}`,
		"/capacity/max",
		`{"endpoint":"agent.example.com"}`, "/endpoint", `{"endpoint":"ftp://a.example"}`, "/endpoint",
		`{"endpoint":"https://u:p@a.example"}`, "/endpoint",
		`{"endpoint":"https://a.example/`+strings.Repeat("a", 2048)+`"}`, "/endpoint",
		`{"heartbeat_config":{"interval_seconds":0}}`, "/heartbeat_config/interval_seconds",
		`{"heartbeat_config":{"interval_seconds":"30"}}`, "/heartbeat_config/interval_seconds",
		`{"heartbeat_config":{"interval_seconds":-30}}`, "/heartbeat_config/interval_seconds",
		`{"heartbeat_config":{"interval_seconds":46}}`, "/heartbeat_config/unhealthy_after_seconds",
		`{"heartbeat_config":{"unhealthy_after_seconds":59}}`, "/heartbeat_config/unhealthy_after_seconds",
		`{"heartbeat_config":{"unhealthy_after_seconds":151}}`, "/heartbeat_config/dead_after_seconds",
		`{"heartbeat_config":{"dead_after_seconds":179}}`, "/heartbeat_config/dead_after_seconds",
		`{"heartbeat_config":{"dead_after_seconds":31536001}}`, "/heartbeat_config/dead_after_seconds",
		`{"heartbeat_config":{"interval":30}}`, "/heartbeat_config/interval", `{"drain_timeout_seconds":-1}`,
		"/drain_timeout_seconds", `{"drain_timeout_seconds":604801}`, "/drain_timeout_seconds",
		`{"metadata":[]}`, "/metadata", `{"metadata":"x"}`, "/metadata", `{"metadata":{"a":{"b":1,"b":2}}}`,
		"/metadata/a/b", `{"name":"x","name":"y"}`, "/name",
		`{"agentId":"a"}`, "/agentId", `{"Name":"x"}`, "/Name", `{"owner":"me"}`, "/owner", `[]`, "", `{`, "",
		"{\"name\":\"\xff\"}", "/name",
		`{"metadata":{"d":`+strings.Repeat(`{"d":`, 128)+`1`+strings.Repeat(`}`, 128)+`}}`, "",
	)...)
	all = append(all, post(agents, picket.CodeTooLarge,
		`{"metadata":{"x":"`+strings.Repeat("x", picket.MaxMetadata-7)+`"}}`, "/metadata",
		`{"name":"`+strings.Repeat("x", 1<<20)+`"}`, "")...)
	all = append(all, post(hb, picket.CodeValidation,
		`{}`, "/status", `{"status":"active"}`, "/client_timestamp",
		`{"status":"unhealthy","client_timestamp":"2026-02-08T10:30:00Z"}`, "/status",
		`{"status":"dead","client_timestamp":"2026-02-08T10:30:00Z"}`, "/status",
		`{`+good+`,"current_load":-1}`, "/current_load", `{`+good+`,"current_load":1.5}`, "/current_load",
		`{`+good+`,"current_load":1000001}`, "/current_load",
		`{`+good+`,"tasks_in_progress":{}}`, "/tasks_in_progress", `{`+good+`,"tasks_in_progress":["a","b}"]}`,
		"/tasks_in_progress/1", `{`+good+`,"tasks_in_progress":`+many(1001)+`}`, "/tasks_in_progress",
		`{`+good+`,"handled_commands":[""]}`, "/handled_commands/0", `{`+good+`,"handled_commands":`+many(1001)+`}`,
		"/handled_commands", `{`+good+`,"incarnation":-1}`, "/incarnation",
		`{`+good+`,"incarnation":9007199254740992}`, "/incarnation", `{`+good+`,"status":"draining"}`, "/status",
		`{`+good+`,"load":1}`, "/load",
	)...)
	all = append(all, post(hb, picket.CodeTooLarge, `{`+good+`,"tasks_in_progress":["`+strings.Repeat("x", 1<<20)+`"]}`,
		"")...)
	all = append(all, post(commands, picket.CodeValidation,
		`{}`, "/command", `{"command":"restart"}`, "/command", `{"command":"stop_task"}`, "/task_id",
		`{"command":"stop_task","task_id":"a}"}`, "/task_id", `{"command":"ping","task_id":"t"}`, "/task_id",
		`{"command":"ping","drain_timeout_seconds":1}`, "/drain_timeout_seconds",
		`{"command":"drain","drain_timeout_seconds":-1}`, "/drain_timeout_seconds",
		`{"command":"ping","reason":"`+strings.Repeat("é", 1001)+`"}`, "/reason",
		`{"command":"ping","command_id":"mine"}`, "/command_id",
	)...)
	for body, field := range map[string]string{
		`{}`:                  "/status",
		`{"status":"asleep"}`: "/status",
		`{"status":"draining","drain_timeout_seconds":604801}`: "/drain_timeout_seconds",
		`{"status":"deregistered","drain_timeout_seconds":1}`:  "/drain_timeout_seconds",
		`{"status":"draining","reason":"x"}`:                   "/reason",
		`{"status":"draining","incarnation":-1}`:               "/incarnation",
	} {
		all = append(all, badInput{"PATCH", status, body, picket.CodeValidation, field})
	}
	for path, code := range map[string]picket.Code{
		"/api/v1/agents/a%7Db":                       picket.CodeValidation,
		"/api/v1/agents/" + strings.Repeat("a", 129): picket.CodeValidation,
		"/api/v1/agents/nobody":                      picket.CodeNotFound,
	} {
		field := ""
		if code == picket.CodeValidation {
			field = "id"
		}
		all = append(all, badInput{"GET", path, "", code, field}, badInput{"DELETE", path, "", code, field},
			badInput{"POST", path + "/heartbeat", `{` + good + `}`, code, field},
			badInput{"POST", path + "/commands", `{"command":"ping"}`, code, field},
			badInput{"PATCH", path + "/status", `{"status":"draining"}`, code, field})
	}
	return append(all, badInput{"DELETE", "/api/v1/agents/nobody", `{"reason":"x"}`, picket.CodeValidation, "/reason"},
		badInput{"PUT", "/api/v1/agents/nobody", `{}`, picket.CodeMethodNotAllowed, ""},
		badInput{"POST", "/api/v1/agents/nobody/status", `{}`, picket.CodeMethodNotAllowed, ""},
		badInput{"POST", fmt.Sprintf("%s?x=1", agents), `{}`, picket.CodeValidation, "?x"})
}

// teeBody gives a body again that it writes into to first.
func teeBody(body io.ReadCloser, to io.Writer) io.ReadCloser {
	defer body.Close()
	text, _ := io.ReadAll(body)
	_, _ = to.Write(text)
	return io.NopCloser(bytes.NewReader(text))
}
