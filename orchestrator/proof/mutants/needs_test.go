package mutants

import (
	"slices"
	"strings"
	"testing"

	gopher "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A planted bug uses no name that its script does not have: the script would break
// instead of misbehaving.
func TestPlantedBugsUseKnownNames(t *testing.T) {
	texts, defined, needs := map[string]string{}, map[string][]string{}, map[string][]string{}
	for _, f := range kit.LuaSources(t) {
		texts[f.Name] = f.Text
		needs[f.Name] = append(f.Needs(), "_base", "_records", "_writes", "_store", "_prelude", "_identity", "_clock",
			"_run")
		if f.Shared() {
			defined[f.Name] = kit.DefinedNames(kit.CompileLua(t, f.Name, f.Text))
		}
	}
	known := func(file, name string) bool {
		return slices.Contains(kit.LuaGlobals, name) ||
			slices.ContainsFunc(needs[file], func(part string) bool { return slices.Contains(defined[part], name) })
	}
	for _, m := range allMutants() {
		for _, e := range m.edits {
			file, changed, err := kit.ReplaceMarked(texts, e[0], e[1])
			kit.OK(t, err)
			chunk, err := parse.Parse(strings.NewReader(changed), file)
			if err != nil {
				continue // one of several edits, which make a file together
			}
			p, err := gopher.Compile(chunk, file)
			kit.OK(t, err)
			for _, name := range kit.FreeNames(p) {
				if !known(file, name) {
					t.Errorf("%s: in %s.lua it uses %s, which no part that the file needs defines", m.name, file, name)
				}
			}
		}
	}
}
