package heartbeat

import (
	"unicode/utf8"

	"github.com/picket-dev/picket/internal/lazyregexp"
)

var (
	// rawSecret is a lease token, a session capability or an API key. Markdown may escape the underscore.
	rawSecret = lazyregexp.New(`pk[lks]\\?_[A-Za-z0-9][A-Za-z0-9._\\-]{3,}`)
	// anySecret also finds the beginning of one, for messages.
	anySecret = lazyregexp.New(`pk[lks]\\*_[A-Za-z0-9._\\-]*`)
)

// redact replaces tokens and keys.
func redact(s string) string { return anySecret().ReplaceAllString(s, "[redacted]") }

// secretsIn refuses every token and key in the text of a file.
func (f *findings) secretsIn(source string) {
	for _, at := range rawSecret().FindAllStringIndex(source, maxDiagnostics) {
		f.refuseSecret(placeIn(source, at[0]))
	}
}

func (f *findings) refuseSecret(at place) {
	f.refuse(CodeSecret, at, "the file contains a token or an API key; remove it and revoke it")
}

// placeIn returns the line and the column of an offset.
func placeIn(source string, offset int) place {
	line, begin := 1, 0
	for i := range offset {
		if source[i] == '\n' {
			line, begin = line+1, i+1
		}
	}
	return place{line: line, column: 1 + utf8.RuneCountInString(source[begin:offset])}
}
