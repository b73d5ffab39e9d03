package agents

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// People see what agents say and do, and nothing of the wire.
func TestWhatAgentsPrintIsMadeReadable(t *testing.T) {
	for _, p := range Presets {
		if !p.CodingAgent() {
			continue
		}
		text, err := os.ReadFile(filepath.Join("testdata", string(p)+"-done.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		var to bytes.Buffer
		if _, err := p.Readable(&to).Write(text); err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSpace(to.String()), "\n")
		want := []string{`> report_progress {"summary":"half way"}`, `> http_request {"url":"http://127.0.0.1:1/"}`,
			`> mark_complete {`, "All done."}
		if len(got) != len(want) {
			t.Errorf("%s is shown as %q", p, got)
			continue
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("%s shows %q, want %q", p, got[i], want[i])
			}
		}
	}
}

func TestWhatIsNotUnderstoodIsShown(t *testing.T) {
	var to bytes.Buffer
	_, _ = PresetCodex.Readable(&to).Write([]byte("a warning\n{\"x\":1}\n{broken\n{\"type\":\"turn.started\"}\n"))
	if to.String() != "a warning\n{\"x\":1}\n{broken\n" {
		t.Errorf("shown: %q", to.String())
	}
	if PresetExec.Readable(&to) != &to {
		t.Error("a plain program's output is touched")
	}
}
