package tools

import (
	"os"
	"strings"
	"testing"
)

// The manual has the table and the statement of the marks, for those who write past
// the proxy.
func TestTheManualHasTheStatementsOfTheMarks(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations/money.md")
	if err != nil {
		t.Fatal(err)
	}
	marks := fenceMarks{table: "picket_fence"}
	manual := strings.Join(strings.Fields(string(text)), " ")
	for _, statement := range []string{marks.createSQL(), marks.raiseSQL()} {
		if !strings.Contains(manual, statement) {
			t.Errorf("docs/operations/money.md does not have\n%s", statement)
		}
	}
}
