package rfc16

import (
	"fmt"
	"strings"
)

// titles are the sections of the document that have rules.
var titles = map[string]string{
	"1":         "Agent Record",
	"1.1":       "Fields",
	"2.1":       "State Definitions",
	"2.2":       "Valid Transitions",
	"2.3":       "Status Events",
	"3.1":       "Registration Request",
	"3.2":       "Registration Response",
	"3.3":       "Registration Semantics",
	"3.4":       "Uniform Registration",
	"4.1":       "Heartbeat Request",
	"4.2":       "Heartbeat Response",
	"4.3":       "Heartbeat Fields",
	"4.4":       "Heartbeat Semantics",
	"4.5":       "Jitter Tolerance and Drift Detection",
	"4.6":       "Network Partition Behavior",
	"5.1":       "Initiating a Drain",
	"5.2":       "Drain Semantics",
	"5.3":       "Server-Initiated Drain",
	"6.1":       "Listing Agents",
	"6.2":       "Query Parameters",
	"6.3":       "Single Agent Lookup",
	"7.1":       "Agent Pools: Concept",
	"7.2":       "Agent Pools: Protocol Semantics",
	"7.3":       "Assignment Logic (Out of Scope)",
	"8.1":       "Instance and Role: Definitions",
	"8.2":       "Memory Continuity",
	"8.3":       "Audit Trail",
	"9.1":       "Lifecycle Death Triggers Lease Expiry",
	"9.2":       "Unhealthy Agents and Leases",
	"9.3":       "Draining Agents and Leases",
	"10.1":      "RFC-0011 (Access Control)",
	"10.2":      "RFC-0013 (Coordinator Governance)",
	"10.3":      "RFC-0014 (Credential Vaults)",
	"10.4":      "RFC-0015 (Agent Memory)",
	"11":        "API Summary",
	"12":        "YAML Workflow Integration",
	"Security":  "Security Considerations",
	"Rationale": "Rationale",
}

// Sections are the sections that have rules, in the order of the document.
var Sections = strings.Fields("1 1.1 2.1 2.2 2.3 3.1 3.2 3.3 3.4 4.1 4.2 4.3 4.4 4.5 4.6 5.1 5.2 5.3 6.1 6.2 6.3 7.1 7.2 7.3 8.1 8.2 8.3 9.1 9.2 9.3 10.1 10.2 10.3 10.4 11 12 Security Rationale")

// page is docs/rfc16.md.
func page() string {
	var b strings.Builder
	rules := Rules()
	settled, silent := 0, 0
	for _, r := range rules {
		if r.Needs&Settled != 0 {
			settled++
		}
		if r.Check == nil {
			silent++
		}
	}
	fmt.Fprintf(&b, pageHead, len(rules), settled, silent)
	for _, section := range Sections {
		fmt.Fprintf(&b, "\n## %s %s\n| rule | what must hold | needs |\n|---|---|---|\n", section, titles[section])
		for _, r := range rules {
			if r.Section == section {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.ID, r.cell(), r.kind())
			}
		}
	}
	return b.String()
}

func (r Rule) cell() string {
	text := r.Text
	if r.Check == nil {
		text += " *Not run over HTTP: " + r.Why + ".*"
	}
	return strings.ReplaceAll(text, "|", `\|`)
}

func (r Rule) kind() string {
	needs := r.Needs.String()
	if r.Needs&Settled == 0 {
		return needs
	}
	return strings.TrimSuffix("settled, "+needs, ", ")
}

const pageHead = `# RFC-0016, rule by rule
<!-- Made from the table in internal/rfc16 by "make rfcdoc"; a test compares it with the table. -->
This is Agent Lifecycle & Health as a conformance suite. Every sentence, number, code and table row of the document is a rule. The suite
checks a running server against the rules, only over HTTP. It works on any server that implements the RFC:
` + "```sh" + `
picket conformance rfc16                                   # the server that picket talks to, all rules
picket conformance rfc16 --url http://host:8000 --key @admin.key
picket conformance rfc16 --url http://host:8000 --rfc-only --agent-key @a.key --other-key @b.key
picket conformance rfc16 --only 4.4 -o json
` + "```" + `
A run takes about half a minute, because silent agents have thresholds of 1, 2 and 4 seconds. The suite uses ids of its own. At its end it
deregisters its agents, cancels its tasks and revokes its keys. With an administrator's key it makes the keys
that it needs. If a rule cannot be run, it is reported as *not run* with the reason, never as passed. If the machine
was too slow for a rule, the rule is tried again with longer thresholds. The exit code is 1 if a rule failed.
The suite is a binary of its own, picket-conformance. The command looks for it beside picket and then on PATH.

Of %d rules, %d are marked **settled**: the RFC leaves the point open, and the rule is Picket's decision. %d cannot be seen over
HTTP, and they name the place where they are checked. The last column lists what a rule needs beyond an agent's key and the RFC's own routes.
Leases (Picket's tasks, leases and tool proxy), events, commands and pools are routes of Picket. ` + "`--rfc-only`" +
	` leaves out these
and the settled rules. *Exact clock* rules test boundaries to the millisecond, which is possible only on a virtual clock. Picket's own
tests do this, with the RFC's defaults of 30, 90 and 300 seconds.
`
