package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
)

// flagOf names the flag that fills a field of a request.
var flagOf = map[string]string{
	"/agent": "agent", "/agentId": "agent-id", "/answer": "text", "/budgetEnvelope": "budget", "/capabilities": "capability",
	"/escalate": "escalate", "/expiresAt": "expires", "/fixes": "fixes", "/input": "input", "/labels": "label",
	"/leaseWindowSeconds": "lease-window", "/max": "max", "/needs": "need", "/note": "note", "/notBefore": "not-before", "/onExit": "on-exit",
	"/option": "option", "/output": "result", "/priority": "priority", "/reason": "reason", "/retry/backoffSeconds": "backoff",
	"/retry/maxAttempts": "retries", "/retry/on": "retry-on", "/review": "review", "/role": "role", "/scopes": "scope",
	"/timeoutSeconds": "timeout", "/stallAfterSeconds": "stall-after", "Env": "env",
	"/agent_id": "agent-id", "/role_id": "role", "/name": "name", "/endpoint": "endpoint", "/metadata": "metadata", "/drain_timeout_seconds": "drain-timeout",
	"/capacity/max_concurrent_tasks": "max", "/heartbeat_config/interval_seconds": "heartbeat",
	"/heartbeat_config/unhealthy_after_seconds": "unhealthy-after", "/heartbeat_config/dead_after_seconds": "dead-after",
	"/task_id": "task", "/tasks_in_progress": "task", "/handled_commands": "handled", "/current_load": "load", "/incarnation": "incarnation",
	"?capabilities": "capability", "?status": "status", "?role_id": "role", "?min_available_capacity": "min-available",
	"?agent": "agent", "?cursor": "cursor", "?after": "after", "?label": "label", "?limit": "limit", "?role": "role", "?since": "since",
	"?state": "state", "?task": "task", "?type": "type",
}

// inFlags puts the refusal of a field into the words of the command line that
// filled it: who typed --retry-on does not know of /retry/on/0.
func inFlags(cmd *cobra.Command, err error) error {
	var e *picket.Error
	if !errors.As(err, &e) {
		return err
	}
	field, _ := e.Facts["field"].(string)
	name := flagOf[withoutIndex(field)]
	f := cmd.Flags().Lookup(name)
	if f == nil || !f.Changed {
		return err
	}
	spoken := "--" + name
	if f.Value.Type() == "duration" {
		spoken += " (in seconds)"
	}
	said := *e
	said.Facts = map[string]any{}
	for k, v := range e.Facts {
		said.Facts[k] = v
	}
	said.Facts["field"] = "--" + name
	said.Message = strings.ReplaceAll(e.Message, field, spoken)
	if query, ok := strings.CutPrefix(field, "?"); ok && strings.Contains(query, "_") { // no word of a sentence
		said.Message = strings.ReplaceAll(said.Message, query, spoken)
	}
	said.Remedy = strings.ReplaceAll(e.Remedy, field, "--"+name)
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
