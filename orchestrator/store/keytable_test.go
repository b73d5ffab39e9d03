package store

import (
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/lua"
)

var update = flag.Bool("update", false, "write the table of keys in docs/architecture.md")

const (
	keyList   = "../lua/keys.txt"
	keyPage   = "../../docs/architecture.md"
	tableHead = "| keys | hold |\n|---|---|\n"
)

// listedKeys reads the list of key kinds. It returns the kinds and the table that is made of them.
func listedKeys(t *testing.T) (kinds []string, table string) {
	t.Helper()
	text, err := os.ReadFile(keyList)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		names, hold, ok := strings.Cut(strings.TrimSpace(line), " | ")
		if !ok {
			t.Fatalf("%s: %q is not KIND... | WHAT THEY HOLD", keyList, line)
		}
		kinds = append(kinds, strings.Fields(names)...)
		table += "| `" + strings.Join(strings.Fields(names), "` `") + "` | " + hold + " |\n"
	}
	slices.Sort(kinds)
	return kinds, table
}

// Lua and Go name exactly the kinds of keys in the list.
func TestKeysAreListed(t *testing.T) {
	files, err := lua.Read(lua.Files)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{"meta": true} // KEYS[1] of each call
	named := regexp.MustCompile(`K\('([a-z-]+:?)`)
	for _, text := range files {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			used[m[1]] = true
		}
	}
	kinds, _ := listedKeys(t)
	if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, kinds) {
		t.Errorf("the scripts name the keys\n%q, listed are\n%q", got, kinds)
	}
	for _, name := range []func(string) string{MetaKey, EventsKey, AuditKey, wakeChannel, eventChannel} {
		if kind := strings.TrimPrefix(name("ns"), keyPrefix("ns")); !slices.Contains(kinds, kind) {
			t.Errorf("Go names the key %s, which is not listed", kind)
		}
	}
}

// docs/architecture.md has the table that is made of the list.
func TestTheKeyTableIsTheList(t *testing.T) {
	_, table := listedKeys(t)
	rig.DocTable(t, keyPage, tableHead, table, *update, "keydoc")
}
