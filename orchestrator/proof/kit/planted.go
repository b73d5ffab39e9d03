package kit

import (
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/orchestrator"
)

// PlantedVariable names a file of [LuaChanges] that every fixture makes in its store:
// the test of another program shows that it finds a planted bug.
const PlantedVariable = "PICKET_PLANTED"

// LuaChange replaces one text of the scripts by another.
type LuaChange struct {
	Old string
	New string
}

// LuaChanges are made together.
type LuaChanges []LuaChange

func (c LuaChanges) Apply(source string) string {
	for _, change := range c {
		source = strings.Replace(source, change.Old, change.New, 1)
	}
	return source
}

// WriteChanges writes the file that [PlantedVariable] names.
func WriteChanges(t *testing.T, path string, changes LuaChanges) {
	t.Helper()
	text, err := json.Marshal(changes)
	OK(t, err)
	OK(t, os.WriteFile(path, text, 0o600))
}

func plantFromEnv(t *testing.T, s *orchestrator.Store) {
	t.Helper()
	path := os.Getenv(PlantedVariable)
	if path == "" {
		return
	}
	text, err := os.ReadFile(path)
	OK(t, err)
	var changes LuaChanges
	OK(t, json.Unmarshal(text, &changes))
	if len(changes) == 0 {
		t.Fatalf("%s changes nothing", path)
	}
	(&ScriptPatch{Of: changes.Apply}).Apply(s, DefaultBatches)
}
