// Package agentheartbeat is the conformance suite of Agent Heartbeat: wake policies, the health of agent
// sessions, and wakes. The table in docs/reference/heartbeat.md has a row for every rule of the document, and
// for what Picket has settled. This package has a check for each row.
//
// A rule runs with agents, names and sessions of its own. The suite speaks HTTP with the server, and plays
// the adapter of the sessions itself. Rules about the command line execute the picket binary.
package agentheartbeat

import (
	"maps"

	"github.com/picket-dev/picket/docs"
	"github.com/picket-dev/picket/internal/conformance"
)

// Rule is one row of the table: a sentence, number, code or table row of the document.
type Rule struct {
	conformance.Row
	Check func(*Trial) // nil: Why says why it cannot be run, and where it is checked
}

// Name identifies a rule: section and id.
func (r Rule) Name() string { return r.Section + "/" + r.ID }

// What a rule can need beyond one operator's key. Each is a word in the last column of the table.
const (
	needSecondKey = "second key"  // an agent key that owns nothing of the first, and differs from the operator's
	needReviewer  = "reviewer"    // a key that may read, but not change
	needEvents    = "events"      // GET /api/v1/events
	needLeases    = "leases"      // tasks, leases and the tool proxy
	needBinary    = "binary"      // the picket binary
	needFiles     = "files"       // the directory with the files of the server's policies
	needExact     = "exact clock" // a clock on which waiting takes no time
	settled       = "settled"     // no need: the document leaves the point open, and this is Picket's decision
)

// notRun begins the sentence of a row that says why it cannot be run.
const notRun = "Not run"

// checks are the checks of rules, by the names of the rules.
type checks map[string]func(*Trial)

// Rules is the whole table in the order of the document.
func Rules() (rules []Rule) {
	all := allChecks()
	for _, row := range conformance.Rows(docs.Heartbeat, notRun) {
		r := Rule{Row: row}
		r.Check = all[r.Name()]
		rules = append(rules, r)
	}
	return rules
}

func allChecks() checks {
	all := checks{}
	for _, some := range []checks{
		formatChecks, windowChecks, forbiddenChecks(), digestChecks, healthChecks, factChecks, decisionChecks,
		reasonChecks, wakeChecks, authoringChecks, commandChecks, conditionChecks, diagnosticChecks, boundaryChecks,
		errorChecks, sessionChecks, settingChecks, memberChecks, schedulerChecks, capabilityChecks, fileChecks,
		programChecks,
	} {
		maps.Copy(all, some)
	}
	return all
}
