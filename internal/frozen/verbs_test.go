package frozen

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The name of a script is a label of a metric, so moving a file is free and
// renaming it is not.
func TestVerbs(t *testing.T) {
	var verbs []string
	folder := os.DirFS(filepath.Join(root, "orchestrator"))
	err := fs.WalkDir(folder, "lua", func(path string, entry fs.DirEntry, err error) error {
		name, isLua := strings.CutSuffix(entry.Name(), ".lua")
		if err == nil && isLua && !strings.HasPrefix(name, "_") {
			verbs = append(verbs, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "verbs", verbs)
}
