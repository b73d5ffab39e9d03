package agenttoagent

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket/docs"
)

var (
	ruleID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$`)
	needs  = []string{needStreaming, needNoStreaming, needNoPush, needPush, needReceiver,
		needNoExtended, needExtended, needRPC, needREST,
		needKey,
		needSecondKey, needWorker, needPicket, needRequiredExt}
)

// Each row has a check, or says why it cannot be run. Each check has a row.
func TestTheTableIsTheSuite(t *testing.T) {
	all, seen, rows := allChecks(), map[string]bool{}, 0
	for _, r := range Rules() {
		rows++
		switch {
		case seen[r.Name()]:
			t.Errorf("%s is there twice", r.Name())
		case !ruleID.MatchString(r.ID):
			t.Errorf("%s: its id is not made of letters, digits, ., - and _", r.Name())
		case !strings.HasSuffix(r.Text, "."):
			t.Errorf("%s: its text is not a sentence: %s", r.Name(), r.Text)
		case (r.Check == nil) != (r.Why != ""):
			t.Errorf("%s: either a check, or why there is none", r.Name())
		}
		for _, need := range r.Needs {
			if !slices.Contains(needs, need) {
				t.Errorf("%s needs %q, which is unknown", r.Name(), need)
			}
		}
		seen[r.Name()] = true
	}
	for name := range all {
		if !seen[name] {
			t.Errorf("there is a check of %s, and no such rule", name)
		}
	}
	sections := 0
	for _, some := range allTables() {
		sections += len(some)
	}
	if sections != len(all) {
		t.Errorf("the tables of checks have %d entries, and %d names", sections, len(all))
	}
}

// The document counts its rules.
func TestTheDocumentCountsItsRules(t *testing.T) {
	silent := 0
	for _, r := range Rules() {
		if r.Check == nil {
			silent++
		}
	}
	if counts := fmt.Sprintf("Of %d rules, %d are never run", len(Rules()), silent); !strings.Contains(docs.A2A,
		counts) {
		t.Errorf("the document does not say: %s", counts)
	}
}

// The pool of an endpoint is in its address.
func TestPoolOf(t *testing.T) {
	for url, want := range map[string][2]string{
		"http://h:1/agents/coder":             {"http://h:1", "coder"},
		"http://h:1/x/n/team/agents/coder/":   {"http://h:1/x", "coder"},
		"http://h:1":                          {"http://h:1", ""},
		"http://h:1/agents/coder/instances/a": {"http://h:1", "coder"},
	} {
		if server, role := PoolOf(url); server != want[0] || role != want[1] {
			t.Errorf("%s: %q and %q", url, server, role)
		}
	}
}
