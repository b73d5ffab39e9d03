package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// A copy that would be too large is refused with what to do instead.
func TestBoundsOfACopy(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("12345"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		files int
		bytes int64
		good  bool
	}{{2, 10, true}, {1, 10, false}, {2, 9, false}} {
		from, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		to, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		err = (&copier{maxFiles: c.files, left: c.bytes}).copy(t.Context(), dir, from, to)
		var refusal *picket.Error
		if c.good != (err == nil) ||
			err != nil && (!errors.As(err, &refusal) || !strings.Contains(refusal.Remedy, "worktree")) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
