package heartbeat

import (
	"slices"
	"strings"
	"unicode"
)

// An Authority is what HEARTBEAT.md must not define, and the surface that defines it.
type Authority struct {
	Subject string // such as "Leases and claim tokens"
	Surface string // where it belongs
	// Fields are names that are forbidden in the front matter, at any depth. Upper case, hyphens
	// and underscores make no difference.
	Fields []string
	// Headings are reserved in the body.
	Headings []string
}

// authorities is the one table of forbidden fields and reserved headings.
var authorities = []Authority{
	{
		Subject: "Leases and claim tokens",
		Surface: "the lease API",
		Fields: []string{"lease", "leases", "lease_duration", "lease_seconds", "lease_token", "lease_ttl",
			"lease_window",
			"ttl", "renew", "renewal", "claim", "claims", "claim_authority", "claim_token", "claim_tokens", "token",
			"tokens", "fence", "fencing_token"},
		Headings: []string{"Lease", "Leases", "Lease duration", "Lease tokens", "Claims", "Claim authority",
			"Claim token", "Claim tokens", "Fencing tokens"},
	},
	{
		Subject: "Tasks and queues",
		Surface: "the task CLI and API",
		Fields: []string{"task", "tasks", "task_id", "task_run", "task_runs", "task_status", "task_state", "status",
			"state", "transition", "transitions", "queue", "queues", "queue_owner", "queue_ownership", "owner",
			"ownership", "assignee", "assignment", "assignments", "lane", "lanes", "backlog", "priority"},
		Headings: []string{"Task", "Tasks", "Task ownership", "Task state", "Task status", "Task transitions",
			"Task runs", "Queue", "Queues", "Task queue", "Queue ownership", "Ownership", "Assignments", "Priorities"},
	},
	{
		Subject: "Cadence, limits and money of wakes",
		Surface: "the wake: settings of picket.yaml",
		Fields: []string{"cadence", "claim_cadence", "schedule", "schedules", "scheduler", "cron", "every", "interval",
			"intervals", "default_interval", "sweep", "sweep_interval", "cooldown", "wake", "wakes", "wake_cooldown",
			"max_wakes", "max_wakes_per_cycle", "max_body_bytes", "rate_limit", "budget", "wake_budget",
			"prompt_budget"},
		Headings: []string{"Cadence", "Claim cadence", "Schedule", "Scheduler", "Cron", "Interval", "Intervals",
			"Cooldown", "Rate limits", "Budget"},
	},
	{
		Subject: "Network, presence and liveness",
		Surface: "the agent registry and A2A",
		Fields: []string{"network", "networks", "network_membership", "membership", "peer", "peers", "presence",
			"greet",
			"greet_interval", "channel", "channels", "a2a", "endpoint", "endpoints", "address", "url", "liveness",
			"health", "session_health", "stale_after", "heartbeat", "heartbeat_interval"},
		Headings: []string{"Network", "Network membership", "Peers", "Presence", "Channels", "Endpoints", "Liveness",
			"Health", "Session health"},
	},
	{
		Subject: "Providers and models",
		Surface: "agents.NAME.launch in picket.yaml",
		Fields: []string{"provider", "providers", "model", "models", "model_id", "temperature", "max_tokens",
			"reasoning",
			"api_key", "api_keys", "base_url", "launch", "command", "args", "env"},
		Headings: []string{"Provider", "Providers", "Provider config", "Model", "Models", "Model selection", "API keys",
			"Environment"},
	},
	{
		Subject:  "Tools",
		Surface:  "tools: in picket.yaml",
		Fields:   []string{"tool", "tools", "tool_grants", "allowed_tools", "disallowed_tools", "toolset", "toolsets"},
		Headings: []string{"Tool", "Tools", "Tool grants", "Allowed tools"},
	},
	{
		Subject: "Capabilities, hooks and permissions",
		Surface: "agents.NAME in picket.yaml",
		Fields: []string{"capability", "capabilities", "hook", "hooks", "permission", "permissions", "permission_mode",
			"role", "roles", "role_id", "scope", "scopes", "sandbox", "skills"},
		Headings: []string{"Capability", "Capabilities", "Hook", "Hooks", "Permission", "Permissions", "Roles",
			"Scopes", "Sandbox"},
	},
	{
		Subject:  "MCP servers",
		Surface:  "tools.upstreams in picket.yaml",
		Fields:   []string{"mcp", "mcp_server", "mcp_servers", "upstream", "upstreams"},
		Headings: []string{"MCP", "MCP server", "MCP servers", "Upstreams"},
	},
	{
		Subject: "Recurring loops and persistent sessions",
		Surface: "not supported",
		Fields: []string{"loop", "loops", "recurring", "recurrence", "repeat", "ping", "pings", "keep_alive",
			"persistent",
			"persistent_session", "session", "sessions", "daemon"},
		Headings: []string{"Loop", "Loops", "Recurring loop", "Recurring loops", "Recurring pings",
			"Persistent session", "Persistent sessions"},
	},
}

// Authorities returns the table of forbidden fields and reserved headings.
func Authorities() []Authority {
	all := slices.Clone(authorities)
	for i, a := range all {
		all[i].Fields, all[i].Headings = slices.Clone(a.Fields), slices.Clone(a.Headings)
	}
	return all
}

var (
	fieldSurfaces   = surfaces(func(a Authority) []string { return a.Fields }, fieldName)
	headingSurfaces = surfaces(func(a Authority) []string { return a.Headings }, headingName)
)

func surfaces(names func(Authority) []string, plain func(string) string) map[string]string {
	of := map[string]string{}
	for _, a := range authorities {
		for _, name := range names(a) {
			of[plain(name)] = a.Surface
		}
	}
	return of
}

// fieldName is the name of a field without what makes no difference: leaseDuration is lease_duration.
func fieldName(key string) string { return strings.Join(words(key), "") }

// headingName is a heading without what makes no difference: numbers, punctuation and a first "the" or "my".
func headingName(heading string) string {
	list := words(link().ReplaceAllString(heading, "$1"))
	for len(list) > 1 && (strings.Trim(list[0], "0123456789") == "" || slices.Contains(determiners, list[0])) {
		list = list[1:]
	}
	return strings.Join(list, " ")
}

var determiners = []string{"a", "an", "the", "my", "your", "our", "its"}

// words are the runs of letters and digits, in lower case.
func words(s string) []string {
	separates := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	return strings.FieldsFunc(strings.ToLower(s), separates)
}
