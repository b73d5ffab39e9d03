//go:build linux

package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The go command reuses the result of a test as long as the files that it has
// looked at are the same. The binary under test is built by a process of its
// own, so what it is built from is looked at here.
func TestResultsAreOfTheseSources(t *testing.T) {
	looked := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && (d.Name() == ".git" || d.Name() == "bin") {
				return fs.SkipDir
			}
			return err
		}
		if strings.HasSuffix(path, "_test.go") || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".lua") {
			return nil
		}
		looked++
		_, err = os.Stat(path)
		return err
	})
	if err != nil || looked < 100 {
		t.Fatalf("looked at %d sources: %v", looked, err)
	}
}
