// Package agenttoagent is the conformance suite of the A2A protocol, version 1.0. The table in docs/reference/a2a.md
// has a row for what the specification asks of a server and what HTTP can show. This package has a check for each row.
//
// The suite reads the card of an endpoint, and holds each binding that the card offers against the rules: JSON-RPC,
// and HTTP+JSON. A rule runs with messages and tasks of its own. Rules about the work of an agent need one that
// follows the message ids of package scriptedworker.
package agenttoagent

import (
	"maps"

	"github.com/picket-dev/picket/docs"
	"github.com/picket-dev/picket/internal/conformance"
)

// Rule is one row of the table.
type Rule struct {
	conformance.Row
	Check func(*Trial) // nil: Why says why it cannot be run
}

// Name identifies a rule: section and id.
func (r Rule) Name() string { return r.Section + "/" + r.ID }

// What a rule can need beyond an endpoint and a key. Each is a word in the last column of the table.
const (
	needStreaming   = "streaming"     // the card says that the agent streams
	needNoStreaming = "no streaming"  // it does not say it
	needNoPush      = "no push"       // the card does not say that the agent pushes notifications
	needPush        = "push"          // it says it
	needReceiver    = "receiver"      // the suite has a receiver that the server reaches
	needNoExtended  = "no extended"   // the card does not say that there is an extended one
	needExtended    = "extended card" // it does
	needRPC         = "JSON-RPC"      // the binding
	needREST        = "HTTP+JSON"     // the binding
	needKey         = "key"           // the endpoint asks for a key
	needSecondKey   = "second key"    // a key of another client
	needWorker      = "worker"        // an agent that follows the message ids
	needPicket      = "Picket"        // the server is a Picket server
	needRequiredExt = "extension"     // the card requires an extension
)

// notRun begins the sentence of a row that says why it cannot be run.
const notRun = "Not run"

// checks are the checks of rules, by the names of the rules.
type checks map[string]func(*Trial)

// Rules is the whole table in the order of the document.
func Rules() (rules []Rule) {
	all := allChecks()
	for _, row := range conformance.Rows(docs.A2A, notRun) {
		r := Rule{Row: row}
		r.Check = all[r.Name()]
		rules = append(rules, r)
	}
	return rules
}

// allTables are the tables of checks. A name stands in one of them.
func allTables() []checks {
	return []checks{
		sendChecks, getChecks, listChecks, cancelChecks, configChecks, historyChecks, errorChecks, capabilityChecks,
		turnChecks, streamChecks, subscribeChecks, deliveryChecks, versionChecks, modelChecks, cardChecks,
		equivalenceChecks, rpcChecks, restChecks, isolationChecks, pushChecks,
	}
}

func allChecks() checks {
	all := checks{}
	for _, some := range allTables() {
		maps.Copy(all, some)
	}
	return all
}
