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
	known, texts := slices.Clone(kit.LuaGlobals), map[string]string{}
	for _, f := range kit.LuaSources(t) {
		texts[f.Name] = f.Text
		if f.Shared() {
			known = append(known, kit.DefinedNames(kit.CompileLua(t, f.Name, f.Text))...)
		}
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
				if !slices.Contains(known, name) {
					t.Errorf("%s: in %s.lua it uses %s, which no part defines", m.name, file, name)
				}
			}
		}
	}
}
