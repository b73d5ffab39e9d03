package term

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/internal/text"
)

// OneLine keeps untrusted text on its own line and away from the terminal's control
// sequences. Nothing becomes "-".
func OneLine(s string) string { return cmp.Or(text.OneLine(s), "-") }

// Indented writes the lines of an untrusted text, each as [OneLine] and below two spaces. Empty lines stay
// empty, and those at the end are left out.
func Indented(w io.Writer, s string) {
	for line := range strings.SplitSeq(strings.TrimRight(s, "\r\n"), "\n") {
		line = strings.TrimRight("  "+text.OneLine(strings.TrimRight(line, "\r")), " ")
		fmt.Fprintln(w, line)
	}
}

// safeJSON writes characters that could steer a terminal as \u escapes. Valid
// JSON has such characters only inside strings.
func safeJSON(v jsontext.Value) jsontext.Value {
	if !bytes.ContainsFunc(v, isUnsafeInJSON) {
		return v
	}
	var b []byte
	for _, r := range string(v) {
		switch {
		case !isUnsafeInJSON(r):
			b = utf8.AppendRune(b, r)
		case r > 0xffff:
			r -= 0x10000
			b = fmt.Appendf(b, "\\u%04x\\u%04x", 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b = fmt.Appendf(b, "\\u%04x", r)
		}
	}
	return b
}

func isUnsafeInJSON(r rune) bool { return r >= 0x7f && text.IsUnsafe(r) }

// hasUnsafeText reports whether a string in a JSON value could steer a terminal once
// its escapes are resolved.
func hasUnsafeText(v jsontext.Value) bool {
	tokens := jsontext.NewDecoder(bytes.NewReader(v))
	for {
		t, err := tokens.ReadToken()
		if err != nil {
			return false
		}
		if t.Kind() == '"' && t.String() != text.Printable(t.String()) {
			return true
		}
	}
}

// colorSequence are the only sequences that pass from an agent's output to a
// terminal: they change how text looks and nothing else.
var colorSequence = lazyregexp.New("\x1b\\[[0-9;:]*m")

// conceals reports whether a sequence may hide the text behind it: 8 is one of its numbers. That is also so for one of
// the 256 colours, which is lost.
func conceals(sequence string) bool {
	numbers := strings.FieldsFunc(sequence, func(r rune) bool { return r < '0' || r > '9' })
	return slices.ContainsFunc(numbers, func(n string) bool { return strings.TrimLeft(n, "0") == "8" })
}

// safeWriter is a writer that shows an agent's bytes on a terminal. A
// sequence that is cut between two writes loses its beginning and is harmless.
type safeWriter struct {
	w    io.Writer
	rest []byte // the beginning of a character
}

// SafeOutput shows an agent's output: on a terminal only as text, elsewhere as
// it is.
func SafeOutput(w io.Writer) io.Writer {
	if IsTerminal(w) {
		return &safeWriter{w: w}
	}
	return w
}

func (t *safeWriter) Write(p []byte) (int, error) {
	b := append(t.rest, p...)
	whole := len(b)
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			if !utf8.FullRune(b[len(b)-i:]) {
				whole -= i
			}
			break
		}
	}
	t.rest = bytes.Clone(b[whole:])
	_, err := io.WriteString(t.w, safeText(string(b[:whole]), bool(Painter(t.w))))
	return len(p), err
}

// safeText keeps lines and, if asked, colours. A carriage return starts a line:
// the text before it would be overwritten.
func safeText(s string, coloured bool) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	var b strings.Builder
	from := 0
	for _, at := range colorSequence().FindAllStringIndex(s, -1) {
		b.WriteString(text.Printable(ansi.Strip(s[from:at[0]])))
		if coloured && !conceals(s[at[0]:at[1]]) {
			b.WriteString(s[at[0]:at[1]])
		}
		from = at[1]
	}
	b.WriteString(text.Printable(ansi.Strip(s[from:])))
	if from > 0 && coloured {
		b.WriteString("\x1b[m")
	}
	return b.String()
}
