package rig

import (
	"os"
	"strings"
	"testing"
)

// DocTable compares a table in a document with what the code says. The table begins
// after head, which is its first two lines, and ends at the first empty line. With
// update it writes the table instead; otherwise the error names the make target that
// does so.
func DocTable(t testing.TB, page, head, table string, update bool, target string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), head)
	shown, after, ends := strings.Cut(rest, "\n\n")
	if !found || !ends {
		t.Fatalf("%s has no table that begins with %q", page, head)
	}
	switch {
	case shown+"\n" == table:
	case update:
		if err := os.WriteFile(page, []byte(before+head+table+"\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("a table in %s is not what the code says: run make %s", page, target)
	}
}
