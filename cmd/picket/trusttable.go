package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// How a file is shown to a person who may trust it. Its author may be hostile, so
// nothing in it may hide a part of it: every name and value that is more than a
// plain word is quoted, and what could not be seen is written in octets.

// trustedKey is the key of a setting; names in it are the author's choice.
func trustedKey(key string) string {
	if !strings.Contains(key, settings.PathSep) {
		return settings.DisplayKey(key)
	}
	parts := strings.Split(key, settings.PathSep)
	for i, part := range parts {
		parts[i] = visibleWord(part)
	}
	return strings.Join(parts, ".")
}

// trustedValue is a value: a command as a shell reads it, the words of any other
// list apart.
func trustedValue(key string, v settings.Value) string {
	switch {
	case key == "redis" && v.Text != "":
		return visibleWord(settings.RedactedRedisURL(v.Text))
	case v.Items == nil && v.Text == "":
		return ""
	case v.Items == nil:
		return visibleWord(v.Text)
	}
	words := make([]string, len(v.Items))
	for i, item := range v.Items {
		words[i] = visibleWord(item)
	}
	if strings.HasSuffix(key, settings.PathSep+"command") || strings.HasSuffix(key, "launch.command") {
		return strings.Join(words, " ")
	}
	return strings.Join(words, ", ")
}

// visibleWord writes a word so that nothing of it is unseen.
func visibleWord(word string) string {
	spaces := strings.Contains(word, "  ") // many of them could look like the end of a column or line
	hidden := func(r rune) bool { return isInvisible(r) || spaces && r == ' ' }
	if strings.ContainsFunc(word, hidden) {
		return term.ShellQuoteHiding(word, hidden)
	}
	return term.ShellQuote(word)
}

// isInvisible reports whether a character steers a terminal or shows nothing.
func isInvisible(r rune) bool {
	switch r {
	case '\u115f', '\u1160', '\u2800', '\u3164', '\uffa0': // letters and a sign that are blank
		return true
	}
	return !strconv.IsPrint(r)
}

// What a table shows of one value, and the widths that its columns are padded to.
// Neither a long value nor the blanks beside it may push other lines out of sight.
const (
	maxTrustedValue = 400
	maxTrustedPad   = 60
)

// printTrustTable shows what a file sets. Unlike other tables it is never cut to
// the width of the terminal.
func printTrustTable(w io.Writer, all []trustRow, wide bool) {
	p := term.Painter(w)
	rows := [][]string{{"KEY", "VALUE", "CHANGE"}}
	if wide {
		rows[0] = append(rows[0], "LINE")
	}
	for _, s := range all {
		row := []string{s.Key, shortValue(s), s.Change}
		if wide {
			row = append(row, s.Line)
		}
		rows = append(rows, row)
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], min(ansi.StringWidth(cell), maxTrustedPad))
		}
	}
	for n, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			if cell = term.OneLine(cell); n == 0 {
				cell = p.Dim(cell)
			}
			b.WriteString(cell + strings.Repeat(" ", max(0, widths[i]-ansi.StringWidth(cell))+2))
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// shortValue is a value, or its beginning and where the rest can be read.
func shortValue(s trustRow) string {
	more := utf8.RuneCountInString(s.Value) - maxTrustedValue
	if more <= 0 {
		return s.Value
	}
	return fmt.Sprintf("%s… (%d more characters at %s; -o json shows them)", string([]rune(s.Value)[:maxTrustedValue]),
		more, s.Line)
}
