package rfc16

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket/docs"
)

// sections are the sections that have rules, in the order of the document.
var sections = strings.Fields("1 1.1 2.1 2.2 2.3 3.1 3.2 3.3 3.4 4.1 4.2 4.3 4.4 4.5 4.6 5.1 5.2 5.3 6.1 6.2 6.3 7.1 7.2 7.3 8.1 8.2 8.3 9.1 9.2 9.3 10.1 10.2 10.3 10.4 11 12 Security Rationale")

// The page says of every rule what the table says, and counts the rules.
func TestThePageIsTheTable(t *testing.T) {
	settled, silent := 0, 0
	for _, r := range Rules() {
		if r.Needs&Settled != 0 {
			settled++
		}
		if r.Check == nil {
			silent++
		}
		row := fmt.Sprintf("| `%s` | %s | %s |\n", r.ID, r.cell(), r.kind())
		if !strings.Contains(docs.RFC16, row) {
			t.Errorf("%s is not the row %s", r.Name(), row)
		}
	}
	rules := strings.Count(docs.RFC16, "\n| `")
	counts := fmt.Sprintf("Of %d rules, %d are marked **settled**: the RFC leaves the point open, and the rule is Picket's decision. %d cannot",
		rules, settled, silent)
	if rules != len(Rules()) || !strings.Contains(docs.RFC16, counts) {
		t.Errorf("the page has %d rows, the table has %d, and the page does not say: %s", rules, len(Rules()), counts)
	}
}

func (r Rule) cell() string {
	if r.Check == nil {
		return r.Text + " *Not run over HTTP: " + r.Why + ".*"
	}
	return r.Text
}

func (r Rule) kind() string {
	needs := r.Needs.String()
	if r.Needs&Settled == 0 {
		return needs
	}
	return strings.TrimSuffix("settled, "+needs, ", ")
}

var ruleID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,47}$`)

func TestEveryRuleIsComplete(t *testing.T) {
	seen := map[string]bool{}
	found := []string{}
	for _, r := range Rules() {
		if seen[r.Name()] {
			t.Errorf("%s is there twice", r.Name())
		}
		seen[r.Name()] = true
		found = append(found, r.Section)
		if !ruleID.MatchString(r.ID) {
			t.Errorf("%s: its id is not made of letters, digits, - and _", r.Name())
		}
		if !strings.HasSuffix(r.Text, ".") {
			t.Errorf("%s: its text is not a sentence: %s", r.Name(), r.Text)
		}
		if (r.Check == nil) != (r.Why != "") {
			t.Errorf("%s: either a check, or why there is none", r.Name())
		}
	}
	for name := range allChecks() {
		if !seen[name] {
			t.Errorf("there is a check of %s, and no such rule", name)
		}
	}
	if found = slices.Compact(found); !slices.Equal(found, sections) {
		t.Errorf("the sections are %v, want %v", found, sections)
	}
}
