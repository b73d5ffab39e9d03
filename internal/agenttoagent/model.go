package agenttoagent

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	majorMinor = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)
	utcInstant = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`)
	mediaType  = regexp.MustCompile(`^[A-Za-z0-9*!#$&^_.+-]+(/[A-Za-z0-9*!#$&^_.+-]+)?(;.*)?$`)
	webAddress = regexp.MustCompile(`^https?://[^/]+`)
)

// contents are the members of a part of which it has exactly one.
var contents = []string{"text", "raw", "url", "data"}

// wrongPart says what is wrong with a part; empty: nothing.
func wrongPart(p fields) string {
	n := 0
	for _, c := range contents {
		if has(p, c) {
			n++
		}
	}
	if n != 1 {
		return fmt.Sprintf("a part with %d of text, raw, url and data", n)
	}
	return ""
}

// wrongParts says what is wrong with the parts of a message or an artifact.
func wrongParts(in fields) string {
	parts := list(in, "parts")
	if len(parts) == 0 {
		return "no parts"
	}
	for _, p := range parts {
		if wrong := wrongPart(p); wrong != "" {
			return wrong
		}
	}
	return ""
}

// wrongMessage says what is wrong with a message.
func wrongMessage(m fields) string {
	switch role := text(m, "role"); {
	case text(m, "messageId") == "":
		return "a message without messageId"
	case role != "ROLE_USER" && role != "ROLE_AGENT":
		return "a message with the role " + role
	}
	return wrongParts(m)
}

// messagesOf are the messages in a task.
func messagesOf(task fields) []fields {
	all := history(task)
	if said := object(task, "status.message"); said != nil {
		all = append(slices.Clone(all), said)
	}
	return all
}

// names are the names of all members in a value, with their paths. Members whose content is free are not entered.
func names(v any, path string, visit func(path, name string)) {
	switch v := v.(type) {
	case fields:
		for name, member := range v {
			visit(path, name)
			if !slices.Contains([]string{"metadata", "params", "data", "header", "securitySchemes", "schemes"}, name) {
				names(member, path+"/"+name, visit)
			}
		}
	case []any:
		for _, one := range v {
			names(one, path, visit)
		}
	}
}

// expectNames expects that the name of each member in a value is allowed.
func (t *Trial) expectNames(v any, what string, allowed func(name string) bool) {
	names(v, "", func(path, name string) {
		t.Assert(allowed(name), t.Last, "%s, and not %s/%s", what, path, name)
	})
}

func camelCase(name string) bool { return !strings.Contains(name, "_") }
