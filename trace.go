package picket

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Trace is a W3C trace context: the trace that a task is a part of, as its submission named it. Its
// agents get it in their environment.
type Trace struct {
	// Parent is 00-<trace id>-<parent id>-<flags>, 55 lower-case characters.
	Parent string `json:"traceparent"`
	// State is a list of at most 32 vendors' key=value, at most 512 characters.
	State string `json:"tracestate"`
}

// Bounds of a tracestate.
const (
	maxTraceMembers = 32
	maxTraceState   = 512
	longMemberSize  = 128 // longer ones are the first to go
)

// ParseTrace reads the values of the headers traceparent and tracestate, one
// for each time that the header was sent. A traceparent that is not valid, or
// not the only one, is ignored with its tracestate: the answer is nil. A
// tracestate that is not valid is ignored alone; one that is too long is
// shortened. A traceparent of a later version is read as one of version 00.
func ParseTrace(parents, states []string) *Trace {
	if len(parents) != 1 {
		return nil
	}
	parent, ok := parseTraceParent(parents[0])
	if !ok {
		return nil
	}
	return &Trace{Parent: parent, State: parseTraceState(strings.Join(states, ","))}
}

// ID is the trace id, 32 hexadecimal digits; empty where there is no trace.
func (t *Trace) ID() string {
	if t == nil || len(t.Parent) < 35 {
		return ""
	}
	return t.Parent[3:35]
}

func parseTraceParent(s string) (string, bool) {
	const size = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(s) < size || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return "", false
	}
	version, id, parent, flags := s[:2], s[3:35], s[36:52], s[53:55]
	for _, part := range []string{version, id, parent, flags} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return "", false
		}
	}
	if version == "ff" || strings.Trim(id, "0") == "" || strings.Trim(parent, "0") == "" {
		return "", false
	}
	if len(s) > size && (version == "00" || s[size] != '-') {
		return "", false
	}
	// Of the flags only these have a meaning: sampled, and that the id is random;
	// of a later version only the first.
	known := uint64(0b11)
	if version != "00" {
		known = 0b01
	}
	bits, _ := strconv.ParseUint(flags, 16, 8)
	return fmt.Sprintf("00-%s-%s-%02x", id, parent, bits&known), true
}

// parseTraceState is the list without blanks around its members; empty when it is
// not valid.
func parseTraceState(s string) string {
	var members []string
	seen := map[string]bool{}
	for member := range strings.SplitSeq(s, ",") {
		member = strings.Trim(member, " \t")
		if member == "" {
			continue // allowed, and says nothing
		}
		key, value, found := strings.Cut(member, "=")
		if !found || !validTraceKey(key) || !validTraceValue(value) || seen[key] || len(members) == maxTraceMembers {
			return ""
		}
		seen[key] = true
		members = append(members, member)
	}
	return strings.Join(dropMembers(members), ",")
}

// dropMembers leaves members out until the list is short enough: long ones first,
// then from the end.
func dropMembers(members []string) []string {
	size := len(members) - 1
	for _, m := range members {
		size += len(m)
	}
	for i := len(members) - 1; i >= 0 && size > maxTraceState; i-- {
		if len(members[i]) > longMemberSize {
			size -= len(members[i]) + 1
			members = slices.Delete(members, i, i+1)
		}
	}
	for size > maxTraceState {
		last := len(members) - 1
		size -= len(members[last]) + 1
		members = members[:last]
	}
	return members
}

// validTraceKey is that of a vendor, or of one at a tenant's: tenant@vendor.
func validTraceKey(s string) bool {
	tenant, vendor, found := strings.Cut(s, "@")
	if !found {
		return validKeyPart(s, 256, false)
	}
	return validKeyPart(tenant, 241, true) && validKeyPart(vendor, 14, false)
}

func validKeyPart(s string, most int, digitFirst bool) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	first := letters
	if digitFirst {
		first += "0123456789"
	}
	return len(s) >= 1 && len(s) <= most && strings.IndexByte(first, s[0]) >= 0 &&
		strings.Trim(s, letters+"0123456789_-*/") == ""
}

func validTraceValue(s string) bool {
	if len(s) < 1 || len(s) > 256 || s[len(s)-1] == ' ' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '=' || r == ',' })
}
