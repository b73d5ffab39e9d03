package cli

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// A line of a diff stays one line, whatever line separators an agent wrote into it. A
// person approves what the diff shows.
func TestADiffShowsNoForgedLines(t *testing.T) {
	ev := &picket.Evidence{Branch: "b\u2028+forged", Diffstat: "1 file\u2029+forged",
		Diff: "+a\u2028-forged\u2029diff --git a/x b/x\r+forged\n+b\n"}
	got := diffText("task", ev, term.Painter(io.Discard))
	want := []string{"branch b +forged", "1 file +forged", "+a -forged diff --git a/x b/x+forged", "+b"}
	if lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n"); !slices.Equal(lines, want) {
		t.Errorf("shown are the lines %q, want %q", lines, want)
	}
}
