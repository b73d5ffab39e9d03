package cli

import (
	"errors"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
)

// flagOf names the flag that fills a field of a request.
var flagOf = map[string]string{
	"/agent":                             "agent",
	"/agentId":                           "agent-id",
	"/answer":                            "text",
	"/assignee":                          "assign",
	"?assignee":                          "assignee",
	"/budgetEnvelope":                    "budget",
	"/capabilities":                      "capability",
	"/client/maxOpen":                    "max-open",
	"/client/ratePerMinute":              "rate-per-minute",
	"/client/roles":                      "role",
	"/escalate":                          "escalate",
	"/expiresAt":                         "expires",
	"/fixes":                             "fixes",
	"/input":                             "input",
	"/labels":                            "label",
	"/leaseWindowSeconds":                "lease-window",
	"/max":                               "max",
	"/needs":                             "need",
	"/note":                              "note",
	"/notBefore":                         "not-before",
	"/onExit":                            "on-exit",
	"/option":                            "option",
	"/output":                            "result",
	"/priority":                          "priority",
	"/reason":                            "reason",
	"/retry/backoffSeconds":              "backoff",
	"/retry/maxAttempts":                 "retries",
	"/retry/on":                          "retry-on",
	"/review":                            "review",
	"/role":                              "role",
	"/scopes":                            "scope",
	"/timeoutSeconds":                    "timeout",
	"/stallAfterSeconds":                 "stall-after",
	"Env":                                "env",
	"/agent_id":                          "agent-id",
	"/role_id":                           "role",
	"/name":                              "name",
	"/endpoint":                          "endpoint",
	"/metadata":                          "metadata",
	"/drain_timeout_seconds":             "drain-timeout",
	"/capacity/max_concurrent_tasks":     "max",
	"/heartbeat_config/interval_seconds": "heartbeat",
	"/heartbeat_config/unhealthy_after_seconds": "unhealthy-after",
	"/heartbeat_config/dead_after_seconds":      "dead-after",
	"/task_id":                                  "task",
	"/tasks_in_progress":                        "task",
	"/handled_commands":                         "handled",
	"/current_load":                             "load",
	"/incarnation":                              "incarnation",
	"?capabilities":                             "capability",
	"?status":                                   "status",
	"?role_id":                                  "role",
	"?min_available_capacity":                   "min-available",
	"?agent":                                    "agent",
	"?cursor":                                   "cursor",
	"?after":                                    "after",
	"?label":                                    "label",
	"?limit":                                    "limit",
	"?role":                                     "role",
	"?since":                                    "since",
	"?state":                                    "state",
	"?task":                                     "task",
	"?type":                                     "type",
	"?run":                                      "run",
	"?stream":                                   "stream",
	"/types":                                    "type",
	"/format":                                   "format",
}

// argumentOf names the argument that fills a field of a request.
var argumentOf = map[string]string{"/url": "URL", "/command": "the command"}

// inFlagTerms names the flag instead of the field in a refusal: somebody who typed --retry-on does
// not know the field /retry/on/0.
func inFlagTerms(cmd *cobra.Command, err error) error {
	var e *picket.Error
	if !errors.As(err, &e) {
		return err
	}
	field, _ := e.Facts["field"].(string)
	if argument := argumentOf[field]; argument != "" {
		return withFieldNamed(e, field, argument)
	}
	name := flagOf[withoutIndex(field)]
	f := cmd.Flags().Lookup(name)
	if f == nil || !f.Changed {
		return err
	}
	spoken := "--" + name
	if f.Value.Type() == "duration" {
		spoken += " (in seconds)"
	}
	said := withFieldNamed(e, field, spoken)
	said.Facts["field"] = "--" + name
	if query, ok := strings.CutPrefix(field, "?"); ok {
		if strings.Contains(query, "_") { // no word of a sentence
			said.Message = strings.ReplaceAll(said.Message, query, spoken)
		}
		said.Remedy = strings.ReplaceAll(said.Remedy, query+"=", "--"+name+" ")
	}
	return said
}

// withFieldNamed is a refusal in which a field is called as people know it.
func withFieldNamed(e *picket.Error, field, spoken string) *picket.Error {
	said := *e
	said.Facts = maps.Clone(e.Facts)
	said.Facts["field"] = spoken
	said.Message = strings.ReplaceAll(e.Message, field, spoken)
	if rest, ok := strings.CutPrefix(said.Message, strings.TrimPrefix(field, "/")+" "); ok {
		said.Message = spoken + " " + rest
	}
	if !strings.Contains(said.Message, spoken) && strings.HasPrefix(field, "/") {
		said.Message = spoken + ": " + said.Message
	}
	said.Remedy = strings.ReplaceAll(e.Remedy, field, strings.TrimSuffix(spoken, " (in seconds)"))
	if rest, ok := strings.CutPrefix(said.Remedy, "Send "); ok {
		said.Remedy = "Give " + rest
	}
	return &said
}

// withoutIndex turns /retry/on/0 and /labels/team into the field that a flag
// fills.
func withoutIndex(field string) string {
	for field != "" && flagOf[field] == "" {
		field = field[:max(strings.LastIndexByte(field, '/'), 0)]
	}
	return field
}

// seenValue is the value of a flag that limits a command to what a person has seen. An empty one is
// refused. It is often that of a shell variable that is not set, and must not lift the limit.
type seenValue string

// String implements [pflag.Value].
func (v *seenValue) String() string { return string(*v) }

// Type implements [pflag.Value].
func (v *seenValue) Type() string { return "string" }

// Set implements [pflag.Value].
func (v *seenValue) Set(text string) error {
	if text == "" {
		return errors.New("it is empty")
	}
	*v = seenValue(text)
	return nil
}
