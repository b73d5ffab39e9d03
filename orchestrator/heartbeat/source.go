package heartbeat

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

var (
	byteOrderMark = []byte("\ufeff")
	lineEnds      = strings.NewReplacer("\r\n", "\n", "\r", "\n")
)

// normalize removes a byte order mark and gives every line the end LF. A file that is not UTF-8,
// or that has NUL bytes, is refused at the first such byte.
func (f *findings) normalize(source []byte) (string, bool) {
	source = bytes.TrimPrefix(source, byteOrderMark)
	text := lineEnds.Replace(string(source))
	if at := strings.IndexByte(text, 0); at >= 0 && utf8.ValidString(text[:at]) {
		f.refuse(CodeInvalidEncoding, placeIn(text, at), "the file has a NUL byte")
		return "", false
	}
	if utf8.ValidString(text) {
		return text, true
	}
	at := 0
	for at < len(text) {
		r, n := utf8.DecodeRuneInString(text[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	f.refuse(CodeInvalidEncoding, placeIn(text, at), "the file is not UTF-8")
	return "", false
}

// sections are the two parts of a file.
type sections struct {
	front    string // between the lines ---; empty without front matter
	body     string
	bodyLine int // the line on which the body begins
}

// split separates front matter and body. Front matter begins with a line --- that is the first of
// the file, and ends with the next line ---.
func (f *findings) split(text string) (sections, bool) {
	first, rest, _ := strings.Cut(text, "\n")
	if !isDelimiter(first) {
		return sections{body: text, bodyLine: 1}, f.beginsOnFirstLine(text)
	}
	line, size := 2, 0
	for l := range strings.Lines(rest) {
		if isDelimiter(strings.TrimSuffix(l, "\n")) {
			s := sections{front: rest[:size], body: rest[size+len(l):], bodyLine: line + 1}
			return s, f.frontMatterSize(s.front)
		}
		line, size = line+1, size+len(l)
	}
	f.refuse(CodeMalformedFrontMatter, place{line: 1, column: 1}, "the front matter has no end; add a line with ---")
	return sections{}, false
}

func isDelimiter(line string) bool { return strings.TrimRight(line, " \t") == "---" }

// beginsOnFirstLine refuses front matter below empty lines, which would be read as a body.
func (f *findings) beginsOnFirstLine(text string) bool {
	below := strings.TrimLeft(text, " \t\n")
	line, _, _ := strings.Cut(below, "\n")
	if !isDelimiter(line) {
		return true
	}
	f.refuse(CodeMalformedFrontMatter, placeIn(text, len(text)-len(below)),
		"front matter begins on the first line of the file")
	return false
}

func (f *findings) frontMatterSize(front string) bool {
	if len(front) <= MaxFrontMatter {
		return true
	}
	f.refuse(CodeMalformedFrontMatter, place{line: 1, column: 1},
		"the front matter has %d bytes, at most %d are allowed", len(front), MaxFrontMatter)
	return false
}

// normalizeBody drops empty lines at the beginning, and white space at the end. It returns how many
// lines it dropped at the beginning.
func normalizeBody(body string) (normal string, dropped int) {
	body = strings.TrimRight(body, " \t\n")
	for {
		line, rest, found := strings.Cut(body, "\n")
		if !found || strings.TrimSpace(line) != "" {
			return body, dropped
		}
		body, dropped = rest, dropped+1
	}
}
