package term

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-json-experiment/json/jsontext"
)

// OneLine keeps text from outside on its own line and away from the terminal's
// control sequences.
func OneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case isUnsafeRune(r):
			return -1
		}
		return r
	}, text)
	if text == "" {
		return "-"
	}
	return text
}

// Printable keeps lines and drops what could steer a terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && isUnsafeRune(r) {
			return -1
		}
		return r
	}, text)
}

// isUnsafeRune reports whether a character changes what a terminal does or shows
// instead of being shown: control characters, line separators, and invisible
// ones, some of which turn the direction of the text around them. The joiners
// of scripts and emoji stay.
func isUnsafeRune(r rune) bool {
	switch {
	case unicode.IsControl(r), r == '\u2028', r == '\u2029':
		return true
	case r == '\u200c', r == '\u200d', unicode.Is(unicode.Prepended_Concatenation_Mark, r):
		return false
	}
	return unicode.Is(unicode.Cf, r)
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

func isUnsafeInJSON(r rune) bool { return r >= 0x7f && isUnsafeRune(r) }

// hasUnsafeText reports whether a string in a JSON value could steer a terminal once
// its escapes are resolved.
func hasUnsafeText(v jsontext.Value) bool {
	tokens := jsontext.NewDecoder(bytes.NewReader(v))
	for {
		t, err := tokens.ReadToken()
		if err != nil {
			return false
		}
		if t.Kind() == '"' && t.String() != Printable(t.String()) {
			return true
		}
	}
}

// colorSequence are the only sequences that pass from an agent's output to a
// terminal: they change how text looks and nothing else.
var colorSequence = regexp.MustCompile("\x1b\\[[0-9;:]*m")

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
	text := append(t.rest, p...)
	whole := len(text)
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if b := text[len(text)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(text[len(text)-i:]) {
				whole -= i
			}
			break
		}
	}
	t.rest = bytes.Clone(text[whole:])
	_, err := io.WriteString(t.w, safeText(string(text[:whole]), bool(Painter(t.w))))
	return len(p), err
}

// safeText keeps lines and, if asked, colours. A carriage return starts a line:
// the text before it would be overwritten.
func safeText(text string, coloured bool) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	var b strings.Builder
	from := 0
	for _, at := range colorSequence.FindAllStringIndex(text, -1) {
		b.WriteString(Printable(ansi.Strip(text[from:at[0]])))
		if coloured {
			b.WriteString(text[at[0]:at[1]])
		}
		from = at[1]
	}
	b.WriteString(Printable(ansi.Strip(text[from:])))
	if from > 0 && coloured {
		b.WriteString("\x1b[m")
	}
	return b.String()
}
