package files

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWritePrivateJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a", "b", "c.json")
	for _, v := range []any{map[string]int{"a": 1}, []string{"x"}} {
		if err := WritePrivateJSON(file, v); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "[\n  \"x\"\n]\n" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		t.Errorf("the file has the mode %v, %v", info.Mode(), err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(file)); len(entries) != 1 {
		t.Errorf("%d files are left, want 1", len(entries))
	}
}
