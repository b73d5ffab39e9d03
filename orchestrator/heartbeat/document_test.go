package heartbeat

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/rig"
)

const document = "../../docs/operations/wake-policies.md"

// The document shows the table of what a file must not define.
func TestTheDocumentShowsWhatIsForbidden(t *testing.T) {
	var table strings.Builder
	for _, a := range Authorities() {
		fmt.Fprintf(&table, "| %s | %s | `%s` | %s |\n", a.Subject, a.Surface, strings.Join(a.Fields, "` `"),
			strings.Join(a.Headings, ", "))
	}
	rig.DocTable(t, document, "| what | belongs to | fields | headings |\n|---|---|---|---|\n", table.String(), *update,
		"policydoc")
}

// The document explains every code of a diagnostic that a text can get.
func TestTheDocumentExplainsEveryCode(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range Codes() {
		if code != CodePathEscape && !strings.Contains(string(text), "| `"+string(code)+"` |") {
			t.Errorf("%s does not explain %s", document, code)
		}
	}
}
