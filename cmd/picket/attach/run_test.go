package attach

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

func TestCommandTitles(t *testing.T) {
	if got := titleOf(term.ShellJoin([]string{"sh", "-c", "echo 'hi'", ""})); got != `sh -c 'echo '\''hi'\''' ''` {
		t.Errorf("title %s", got)
	}
	if n := len([]rune(titleOf(strings.Repeat("ä", 2000)))); n != picket.MaxTitle {
		t.Errorf("a long title has %d characters", n)
	}
}
