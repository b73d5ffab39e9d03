package agentheartbeat

import (
	"regexp"
	"strconv"
	"strings"
)

var numbers = regexp.MustCompile(`\d+`)

func number(n int) string { return strconv.Itoa(n) }

// owners are the fields of each row of the table of forbidden fields, by the surface that owns them.
var owners = map[string]map[string]string{
	"3/leases": {
		"lease_duration claim_token lease_ttl fencing_token": "the lease API",
	},
	"3/tasks": {
		"task_status transitions queue queue_ownership task_runs": "the task CLI and API",
	},
	"3/cadence": {
		"sweep_interval claim_cadence scheduler cron interval": "the wake: settings of picket.yaml",
	},
	"3/network": {
		"network_membership presence peers greet_interval liveness": "the agent registry and A2A",
	},
	"3/provider": {
		"provider model temperature": "agents.NAME.launch in picket.yaml",
		"tool_grants allowed_tools":  "tools: in picket.yaml",
	},
	"3/capabilities": {
		"capabilities hooks permissions": "agents.NAME in picket.yaml",
		"mcp_servers":                    "tools.upstreams in picket.yaml",
	},
	"3/loops": {
		"pings recurring loop persistent_session": "not supported",
	},
}

// forbiddenChecks are those of section 3.
func forbiddenChecks() checks {
	all := checks{
		"3/any-depth": func(t *Trial) {
			d := t.invalid(front("preferences:", "  context:", "    model: large"), "heartbeat_forbidden_field")
			t.ExpectEqual("path", d["path"], "preferences.context.model")
			t.ExpectEqual("line", d["line"], 4)
			t.ExpectEqual("column", d["column"], 5)
			d = t.invalid(front("x: [{y: {lease: 1}}]"), "heartbeat_forbidden_field")
			t.ExpectEqual("owner_surface", d["owner_surface"], "the lease API")
		},
		"3/spelling": func(t *Trial) {
			for _, field := range []string{"Claim-Token", "CLAIM_TOKEN", "claimToken"} {
				t.invalid(front(field+": x"), "heartbeat_forbidden_field")
			}
		},
	}
	for name, surfaces := range owners {
		all[name] = func(t *Trial) {
			for names, surface := range surfaces {
				for field := range strings.FieldsSeq(names) {
					d := t.invalid(front(field+": x"), "heartbeat_forbidden_field")
					t.ExpectEqual("owner_surface of "+field, d["owner_surface"], surface)
					t.ExpectEqual("path", d["path"], field)
				}
			}
		}
	}
	return all
}
