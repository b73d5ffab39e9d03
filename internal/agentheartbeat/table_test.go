package agentheartbeat

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket/docs"
)

var (
	ruleID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$`)
	needs  = []string{needSecondKey, needReviewer, needEvents, needLeases, needBinary, needFiles, needExact,
		settled}
	// A rule that is not run names a test, or a script.
	namedTest   = regexp.MustCompile(`(Test\w+) of ([\w/]+) checks`)
	namedScript = regexp.MustCompile(`the script ([\w/.]+) checks`)
)

// notBuilt is the reason of rules for what Picket has decided and not built.
const notBuilt = "Picket does not do this yet"

// Each row has a check, or says why it cannot be run and where it is checked. Each check has a row.
func TestTheTableIsTheSuite(t *testing.T) {
	all, seen := allChecks(), map[string]bool{}
	for _, r := range Rules() {
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
	if rows := strings.Count(docs.Heartbeat, "\n| `"); rows != len(Rules()) {
		t.Errorf("the document has %d rows, and %d are read", rows, len(Rules()))
	}
}

// The document counts its rules.
func TestTheDocumentCountsItsRules(t *testing.T) {
	marked, silent := 0, 0
	for _, r := range Rules() {
		if r.Settled() {
			marked++
		}
		if r.Check == nil {
			silent++
		}
	}
	counts := fmt.Sprintf("Of %d rules, %d are marked **settled**: the document leaves the point open, and the rule is "+
		"Picket's decision. %d are never run", len(Rules()), marked, silent)
	if !strings.Contains(docs.Heartbeat, counts) {
		t.Errorf("the document does not say: %s", counts)
	}
}

// A rule that is never run names the test that checks it, and the test exists.
func TestNamedTestsExist(t *testing.T) {
	for _, r := range Rules() {
		if r.Why == "" || r.Why == notBuilt {
			continue
		}
		test, script := namedTest.FindStringSubmatch(r.Why), namedScript.FindStringSubmatch(r.Why)
		switch {
		case test != nil && !hasTest(t, test[2], test[1]):
			t.Errorf("%s: there is no %s in %s", r.Name(), test[1], test[2])
		case script != nil:
			if _, err := os.Stat("../../" + script[1]); err != nil {
				t.Errorf("%s: %v", r.Name(), err)
			}
		case test == nil:
			t.Errorf("%s does not say where it is checked: %s", r.Name(), r.Why)
		}
	}
}

// The reasons in the code name tests, too.
func TestTheVirtualTestExists(t *testing.T) {
	if !hasTest(t, "cmd/picket", "TestHeartbeatVirtual") {
		t.Error("cmd/picket has no TestHeartbeatVirtual, which the reason of exact clock rules names")
	}
	if !hasTest(t, "orchestrator/heartbeat", "TestProjection") {
		t.Error("orchestrator/heartbeat has no TestProjection, which 12/context_projection_bytes names")
	}
}

// hasTest reports whether a folder has a test of that name.
func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob("../../" + folder + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(path string) bool {
		source, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(source), "\nfunc "+name+"(t *testing.T)")
	})
}
