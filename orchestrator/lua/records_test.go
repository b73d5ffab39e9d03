package lua

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The part that packs records is made from records.go.
func TestRecordsPartIsMadeFromTheList(t *testing.T) {
	const file = "part/_records.lua"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(RecordsPart()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != RecordsPart() {
		t.Errorf("%s is not what records.go says (%v): run `make recordlua`", file, err)
	}
}

// The first four bytes of a key tell its kind, and a field has one place. Names that begin with "_" are those of
// _store.lua.
func TestFieldsOfRecordsHaveOnePlace(t *testing.T) {
	kinds := map[string]bool{}
	for _, r := range Records {
		short := (r.Kind + ":")[:4]
		if kinds[short] {
			t.Errorf("the keys of two kinds begin with %s", short)
		}
		kinds[short] = true
		fields := map[string]bool{}
		for _, f := range slices.Concat(r.Fields, r.Others) {
			if fields[f] || strings.HasPrefix(f, "_") {
				t.Errorf("%s has the field %s twice, or not as a name of its own", r.Kind, f)
			}
			fields[f] = true
		}
	}
}
