// Package files writes the files that Picket keeps for itself.
package files

import (
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// WritePrivateJSON replaces a file with v as indented JSON and creates the directories
// above it. Only its user can read it. A reader finds the old or the new file whole.
func WritePrivateJSON(file string, v any) error {
	b, err := json.Marshal(v, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
