package scriptedworker

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/rig"
)

var update = flag.Bool("update", false, "write the table of messages in docs/reference/a2a.md")

// docs/reference/a2a.md shows what the worker does for which messages.
func TestTheDocumentShowsTheScript(t *testing.T) {
	var table strings.Builder
	for _, s := range Script {
		fmt.Fprintf(&table, "| `%s` | %s |\n", s.Prefix, s.Does)
	}
	table.WriteString("| anything else | completes the task with the text `Unhandled messageId prefix` |\n")
	rig.DocTable(t, "../../docs/reference/a2a.md", "| the id begins with | the worker |\n|---|---|\n", table.String(), *update,
		"a2adoc")
}

// Of two prefixes that fit, the longer one counts.
func TestTheLongerPrefixCounts(t *testing.T) {
	for id, want := range map[string]string{
		"tck-artifact-file-url-1":  "tck-artifact-file-url",
		"tck-artifact-file-1":      "tck-artifact-file",
		"tck-artifact-file":        "tck-artifact-file",
		"tck-stream-artifact-text": "tck-stream-artifact-text",
		"tck-artifact":             "",
		"":                         "",
	} {
		if got := StepOf(id); got.Prefix != want || got.do == nil {
			t.Errorf("%q: %q, want %q", id, got.Prefix, want)
		}
	}
}
