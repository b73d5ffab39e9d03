package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// shellJoin writes words so that a shell reads exactly them.
func shellJoin(words []string) string {
	quotedWords := make([]string, len(words))
	for i, w := range words {
		quotedWords[i] = shellQuote(w)
	}
	return strings.ToValidUTF8(strings.Join(quotedWords, " "), "?")
}

// shellQuote writes a word so that a shell reads it as one. It never holds a
// character that could steer the terminal it is shown on or pasted into: such
// a word is written in the $'…' form of bash, zsh and ksh.
func shellQuote(word string) string {
	if word != "" && strings.Trim(word,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:@%+,") == "" {
		return word
	}
	return shellQuoteHiding(word, isUnsafeRune)
}

// shellQuoteHiding quotes a word and writes the characters that are hidden as octets.
func shellQuoteHiding(word string, hidden func(rune) bool) string {
	if !strings.ContainsFunc(word, hidden) {
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
		case hidden(r):
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

// withProgramName writes a suggested command so that it works where it is read: with
// the name this program was called by when the PATH does not know it.
func withProgramName(command string) string {
	if onPath() {
		return command
	}
	return withName(os.Args[0], command)
}

func withName(self, command string) string {
	if rest, ok := strings.CutPrefix(command, "picket "); ok {
		return strings.ReplaceAll(shellQuote(self)+" "+rest, "&& picket ", "&& "+shellQuote(self)+" ")
	}
	return command
}

// onPath is asked once, before addSelfToPath adds to the PATH.
var onPath = sync.OnceValue(func() bool {
	_, err := exec.LookPath("picket")
	return err == nil
})
