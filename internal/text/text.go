// Package text shortens and cleans texts: those for people, and untrusted ones of
// agents, tools and callers.
package text

import (
	"strings"
	"unicode"
)

// Head returns at most the first n bytes of s. It never cuts a UTF-8 sequence in two.
func Head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}

// Tail returns at most the last n bytes of s. It never cuts a UTF-8 sequence in two.
func Tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for len(s) > 0 && s[0]&0xC0 == 0x80 {
		s = s[1:]
	}
	return s
}

// ValidHead returns at most the first n bytes of s without bytes that are not UTF-8.
func ValidHead(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }

// Shorten is ValidHead for texts that a person reads: it ends a text that it cut with "…".
func Shorten(s string, n int) string {
	if len(s) > n {
		return ValidHead(s, n) + "…"
	}
	return ValidHead(s, n)
}

// Excerpt returns at most the first n characters of s. It ends a text that it cut
// with "…". Bytes that are not UTF-8 become U+FFFD.
func Excerpt(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return strings.ToValidUTF8(s[:i], "\uFFFD") + "…"
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Printable returns untrusted text without the characters that IsUnsafe names. Line
// feeds and tabs stay. Other line separators become spaces, so that no character of a line
// can begin another line, such as a forged one of a diff. Bytes that are not UTF-8 become
// U+FFFD.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case r == '\u2028', r == '\u2029':
			return ' '
		case IsUnsafe(r):
			return -1
		}
		return r
	}, s)
}

// OneLine is Printable for text that has to stay on its line: line breaks and tabs
// become spaces.
func OneLine(s string) string { return Printable(lineBreaks.Replace(s)) }

// Quote quotes untrusted text for an agent: each of its lines is Printable, begins with "> " and ends with a line feed.
// So none of them can be taken for a line of Picket.
func Quote(lines string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(Printable(lines), "\n") {
		b.WriteString(strings.TrimRight("> "+line, " "))
		b.WriteByte('\n')
	}
	return b.String()
}

var lineBreaks = strings.NewReplacer("\n", " ", "\t", " ", "\r", " ")

// IsUnsafe reports whether a character changes what a terminal or a page shows instead
// of being shown. Such are control characters, line separators, and invisible characters,
// some of which turn the direction of the text around them. The joiners of scripts and
// emoji are safe.
func IsUnsafe(r rune) bool {
	switch {
	case unicode.IsControl(r), r == '\u2028', r == '\u2029':
		return true
	case r == '\u200c', r == '\u200d', unicode.Is(unicode.Prepended_Concatenation_Mark, r):
		return false
	}
	return unicode.Is(unicode.Cf, r)
}

// SpreadsheetCell is a text as a cell of a table for spreadsheets: in one line, with an apostrophe
// before each sign that may begin a formula. Such a sign (= + - @, also in full width) is at the
// beginning, or behind a semicolon: in many countries, spreadsheets separate cells by semicolons and
// would take the rest for a cell of its own. Spaces and quotation marks may be between. Tabs and line
// breaks become spaces. For readers of commas, the text remains one cell.
func SpreadsheetCell(s string) string {
	s = strings.TrimSpace(OneLine(s))
	var cell strings.Builder
	begins := true // nothing but spaces and quotation marks since a cell began
	for _, r := range s {
		if begins && strings.ContainsRune("=+-@＝＋－＠", r) {
			cell.WriteByte('\'')
		}
		begins = r == ';' || begins && (r == '"' || unicode.IsSpace(r))
		cell.WriteRune(r)
	}
	return cell.String()
}
