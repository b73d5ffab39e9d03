package term

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestTextFromOutsideCannotSteerTheTerminal(t *testing.T) {
	if got := OneLine("a\x1b[2Jb\nc\u009bd"); got != "a[2Jb cd" {
		t.Errorf("oneLine: %q", got)
	}
	if got := OneLine("\x07"); got != "-" {
		t.Errorf("oneLine of nothing: %q", got)
	}
}

func TestAgentOutputOnATerminal(t *testing.T) {
	for text, want := range map[string]string{
		"a\x1b]0;title\x07b\x1b[2Jc\u009b1Ad":      "abc1Ad",
		"10%\r20%\r\n":                             "10%\n20%\n",
		"\x1b[1;31mred\x1b[0m":                     "\x1b[1;31mred\x1b[0m\x1b[m",
		"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\": "link",
		"\x1bPq#0\x1b\\x":                          "x",
		"é\u202ea":                                 "éa",
		"a\x1b[8mb\x1b[0;08mc\x1b[31;8md\x1b[38mx": "abcd\x1b[38mx\x1b[m", // nothing is hidden
	} {
		if got := safeText(text, true); got != want {
			t.Errorf("legible(%q) = %q, want %q", text, got, want)
		}
	}
	if got := safeText("\x1b[31mred\x1b[0m", false); got != "red" {
		t.Errorf("without colours: %q", got)
	}
	var out bytes.Buffer
	w := &safeWriter{w: &out}
	for _, b := range []byte("a\x1b[2Jäb→\u202ec") { // cut everywhere
		_, _ = w.Write([]byte{b})
	}
	if got := out.String(); got != "a[2Jäb→c" {
		t.Errorf("byte by byte: %q", got)
	}
}

func TestJSONCannotSteerTheTerminal(t *testing.T) {
	for raw, want := range map[string]string{
		"{\"a\": \"x\u009b2J\u202e\"}": `{"a": "x\u009b2J\u202e"}`,
		"\"\U000E0001\"":               `"\udb40\udc01"`,
		`"plain é"`:                    `"plain é"`,
	} {
		if got := safeJSON(jsontext.Value(raw)); string(got) != want || !got.IsValid() {
			t.Errorf("plainJSON(%q) = %s, want %s", raw, got, want)
		}
	}
	for raw, want := range map[string]bool{
		`{"a":["\u001b"]}`:   true,
		`{"a\u0007":1}`:      true,
		`{"a":"two\nlines"}`: false,
	} {
		if got := hasUnsafeText(jsontext.Value(raw)); got != want {
			t.Errorf("steered(%s) = %v", raw, got)
		}
	}
}

func TestTablesFit(t *testing.T) {
	rows := [][]string{{"ID", "TEXT"}, {"1234", strings.Repeat("x", 90)}}
	if fitWidth(rows, 20); rows[1][1] != strings.Repeat("x", 13)+"…" {
		t.Errorf("fitted: %q", rows[1][1])
	}
	rows = [][]string{{strings.Repeat("x", 90), "short"}}
	if fitWidth(rows, 20); rows[0][1] != "short" {
		t.Errorf("a column was emptied: %q", rows[0][1])
	}
}
