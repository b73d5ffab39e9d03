package main

import (
	"fmt"
	"strings"
)

// commandLine writes words so that a shell reads exactly them.
func commandLine(words []string) string {
	quotedWords := make([]string, len(words))
	for i, w := range words {
		quotedWords[i] = quoted(w)
	}
	return strings.ToValidUTF8(strings.Join(quotedWords, " "), "?")
}

// quoted writes a word so that a shell reads it as one. It never holds a
// character that could steer the terminal it is shown on or pasted into: such
// a word is written in the $'…' form of bash, zsh and ksh.
func quoted(word string) string {
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:@%+,") == "" {
		return word
	}
	if !strings.ContainsFunc(word, steers) {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for _, r := range word {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\'' || r == '\\':
			b.WriteString(`\` + string(r))
		case steers(r):
			for _, octet := range []byte(string(r)) {
				fmt.Fprintf(&b, `\x%02x`, octet)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteString("'")
	return b.String()
}
