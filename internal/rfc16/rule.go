// Package rfc16 is the conformance suite of RFC-0016, Agent Lifecycle & Health. The table in
// docs/rfc16.md has a row for every rule of the document. This package has a check for each row,
// and a runner that checks any server over HTTP.
//
// A rule runs with agents of its own, side by side with others, and takes away
// what it made. Where the RFC leaves something open, Picket's decision is a row
// too, marked as settled; what needs routes of Picket's own (tasks, leases,
// events, commands, pools) reports it.
package rfc16

import (
	"maps"
	"strings"

	"github.com/picket-dev/picket/docs"
	"github.com/picket-dev/picket/internal/conformance"
)

// Rule is one row: a sentence, number, code or table row of the document.
type Rule struct {
	Section string // of the document, such as "4.4"; "Security" for its considerations
	ID      string // unique in the section
	Text    string // what must hold, for a reader
	Needs   Needs
	Check   func(*Trial) // nil: Why says why HTTP cannot show it
	Why     string
}

// Name identifies a rule: section and id.
func (r Rule) Name() string { return r.Section + "/" + r.ID }

// Needs is what a rule uses beyond one key and the routes of the RFC.
type Needs uint

// What a rule can need. Settled is not a need but a mark: the RFC leaves the point
// open and this is Picket's decision.
const (
	Stranger Needs = 1 << iota // a second agent key, which owns nothing of the first
	Operator                   // an operator's key beside the agent's
	Events                     // GET /api/v1/events
	Tasks                      // tasks, leases and the tool proxy
	Commands                   // POST /api/v1/agents/{id}/commands
	Pools                      // GET /api/v1/pools
	Reviewer                   // a key that may read, but not the registry
	Keys                       // an administrator's key and POST /api/v1/keys
	Exact                      // a clock on which requests take no time
	Settled
)

var needNames = []struct {
	need Needs
	name string
}{
	{Stranger, "second key"}, {Operator, "operator"}, {Events, "events"}, {Tasks, "leases"}, {Commands, "commands"},
	{Pools, "pools"}, {Reviewer, "reviewer"}, {Keys, "keys"}, {Exact, "exact clock"},
}

// String lists the needs, without the mark Settled.
func (n Needs) String() string {
	var names []string
	for _, of := range needNames {
		if n&of.need != 0 {
			names = append(names, of.name)
		}
	}
	return strings.Join(names, ", ")
}

// beyondRFC are the needs that only Picket's own routes meet.
const beyondRFC = Events | Tasks | Commands | Pools | Reviewer | Keys

// RFCOnly reports whether a server that speaks the RFC and nothing else can be
// held against the rule.
func (r Rule) RFCOnly() bool { return r.Needs&(beyondRFC|Settled) == 0 }

// checks are the checks of rules, by the names of the rules.
type checks map[string]func(*Trial)

// Rules is the whole table in the order of the document.
func Rules() []Rule { return parseRules(docs.RFC16, allChecks()) }

func allChecks() checks {
	all := checks{}
	for _, some := range []checks{
		recordChecks, stateChecks, transitionChecks, patchChecks(), eventChecks,
		registrationChecks, reregistrationChecks,
		heartbeatChecks, silenceChecks, driftChecks, partitionChecks,
		drainChecks, drainEndChecks, commandChecks,
		listChecks, poolChecks, leaseChecks, otherChecks, routeChecks(), securityChecks,
	} {
		maps.Copy(all, some)
	}
	return all
}

// parseRules reads the rows of the document: a rule, what must hold, and what the rule needs.
// A sentence in italics says why HTTP cannot show it.
func parseRules(document string, all checks) (rules []Rule) {
	for _, row := range conformance.Rows(document, "Not run over HTTP") {
		r := Rule{Section: row.Section, ID: row.ID, Text: row.Text, Why: row.Why}
		for _, name := range row.Needs {
			if name == "settled" {
				r.Needs |= Settled
			}
			for _, n := range needNames {
				if n.name == name {
					r.Needs |= n.need
				}
			}
		}
		r.Check = all[r.Name()]
		rules = append(rules, r)
	}
	return rules
}
