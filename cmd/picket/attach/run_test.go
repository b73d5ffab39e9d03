package attach

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

func TestCommandTitles(t *testing.T) {
	if got := commandTitle([]string{"sh", "-c", "echo 'hi'", ""}); got != `sh -c 'echo '\''hi'\''' ''` {
		t.Errorf("title %s", got)
	}
	if n := len([]rune(commandTitle([]string{strings.Repeat("ä", 2000)}))); n != picket.MaxTitle {
		t.Errorf("a long title has %d characters", n)
	}
}
