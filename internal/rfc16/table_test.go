package rfc16

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/rfc16.md")

func TestThePageIsTheTable(t *testing.T) {
	const path = "../../docs/rfc16.md"
	if *update {
		if err := os.WriteFile(path, []byte(page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != page() {
		t.Error("docs/rfc16.md is not made from the table any more: make rfcdoc")
	}
}

var ruleID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,47}$`)

func TestEveryRuleIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rules() {
		if seen[r.Name()] {
			t.Errorf("%s is there twice", r.Name())
		}
		seen[r.Name()] = true
		if !ruleID.MatchString(r.ID) || !slices.Contains(Sections, r.Section) || titles[r.Section] == "" {
			t.Errorf("%s: an id of letters, digits, - and _ in a section of the document", r.Name())
		}
		if !strings.HasSuffix(r.Text, ".") {
			t.Errorf("%s: its text is not a sentence: %s", r.Name(), r.Text)
		}
		if (r.Check == nil) != (r.Why != "") {
			t.Errorf("%s: either a check, or why there is none", r.Name())
		}
	}
	for _, section := range Sections {
		if !slices.ContainsFunc(Rules(), func(r Rule) bool { return r.Section == section }) {
			t.Errorf("section %s has no rule", section)
		}
	}
}
