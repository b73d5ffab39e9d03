package term

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/picket-dev/picket/internal/text"
)

// ShellJoin writes words so that a shell reads exactly them.
func ShellJoin(words []string) string {
	quotedWords := make([]string, len(words))
	for i, w := range words {
		quotedWords[i] = ShellQuote(w)
	}
	return strings.ToValidUTF8(strings.Join(quotedWords, " "), "?")
}

// ShellQuote writes a word so that a shell reads it as one. It never holds a
// character that could steer the terminal it is shown on or pasted into: such
// a word is written in the $'…' form of bash, zsh and ksh.
func ShellQuote(word string) string {
	if word != "" && strings.Trim(word,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:@%+,") == "" {
		return word
	}
	return ShellQuoteHiding(word, text.IsUnsafe)
}

// ShellQuoteHiding quotes a word and writes the characters that are hidden as octets.
func ShellQuoteHiding(word string, hidden func(rune) bool) string {
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

// WithProgramName writes a suggested command so that it works where it is read: with
// the name this program was called by when the PATH does not know it.
func WithProgramName(command string) string {
	if OnPath() {
		return command
	}
	return withName(os.Args[0], command)
}

func withName(self, command string) string {
	if rest, ok := strings.CutPrefix(command, "picket "); ok {
		return strings.ReplaceAll(ShellQuote(self)+" "+rest, "&& picket ", "&& "+ShellQuote(self)+" ")
	}
	return command
}

// OnPath is asked once, before addSelfToPath adds to the PATH.
var OnPath = sync.OnceValue(func() bool {
	_, err := exec.LookPath("picket")
	return err == nil
})

// Nearest is the name that word was probably meant to be, or "".
func Nearest(word string, names []string) string {
	best, bestAt := "", len(word)/2+1
	for _, n := range names {
		if d := distance(word, n); d < bestAt {
			best, bestAt = n, d
		}
	}
	return best
}

// distance is the number of letters to change, add or drop (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
