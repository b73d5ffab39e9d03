package rig

import (
	"testing"

	"github.com/picket-dev/picket"
)

func TestDocumentedInvariantKinds(t *testing.T) {
	want := map[string]string{}
	for kind, repaired := range picket.InvariantKinds {
		want[kind] = map[bool]string{true: "repaired", false: "alarm"}[repaired]
	}
	got := map[string]string{}
	for _, row := range table(t, "docs/invariants.md", "| kind | what is wrong | repair |") {
		got[row[0]] = "repaired"
		if row[2] == "none" {
			got[row[0]] = "alarm"
		}
	}
	expectSame(t, "docs/invariants.md, kinds", got, want)
}
