package orchestrator_test

import (
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/orchestrator"
)

// plantedVariable names a file of [luaChanges] that every fixture makes in its store:
// the test of another program shows that it finds a planted bug.
const plantedVariable = "PICKET_PLANTED"

// luaChange replaces one text of the scripts by another.
type luaChange struct {
	Old string
	New string
}

// luaChanges are made together.
type luaChanges []luaChange

func (c luaChanges) apply(source string) string {
	for _, change := range c {
		source = strings.Replace(source, change.Old, change.New, 1)
	}
	return source
}

// writeChanges writes the file that [plantedVariable] names.
func writeChanges(t *testing.T, path string, changes luaChanges) {
	t.Helper()
	text, err := json.Marshal(changes)
	ok(t, err)
	ok(t, os.WriteFile(path, text, 0o600))
}

func plantFromEnv(t *testing.T, s *orchestrator.Store) {
	t.Helper()
	path := os.Getenv(plantedVariable)
	if path == "" {
		return
	}
	text, err := os.ReadFile(path)
	ok(t, err)
	var changes luaChanges
	ok(t, json.Unmarshal(text, &changes))
	if len(changes) == 0 {
		t.Fatalf("%s changes nothing", path)
	}
	(&scriptPatch{of: changes.apply}).apply(s, defaultBatches)
}
