package adapter_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
)

// A worker that cannot keep a run reports it before it takes a task.
func TestStateDirMustBeWritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{
		"below a file": filepath.Join(file, "state"),
		"a file":       file,
		"in /proc":     "/proc/picket",
	} {
		_, err := adapter.New(adapter.Config{BaseURL: "http://127.0.0.1:1", Command: []string{"true"}, StateDir: dir})
		var e *picket.Error
		if !errors.As(err, &e) || e.Code != picket.CodeValidation || !strings.Contains(e.Remedy, "XDG_STATE_HOME") {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := filepath.Join(t.TempDir(), "new", "state")
	if _, err := adapter.New(adapter.Config{
		BaseURL:  "http://127.0.0.1:1",
		Command:  []string{"true"},
		StateDir: dir,
	}); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
