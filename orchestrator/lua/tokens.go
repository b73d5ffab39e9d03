package lua

import "strings"

// tokenKind tells words, texts and comments from the rest.
type tokenKind int

const (
	otherToken tokenKind = iota // an operator, a bracket or white space
	wordToken                   // a name, a keyword or a number
	textToken                   // a string with its quotes
	commentToken
)

// token is a piece of a Lua file. All tokens together are the file.
type token struct {
	kind tokenKind
	text string
}

// blank reports whether a token is white space or a comment.
func (t token) blank() bool { return t.kind == commentToken || strings.TrimSpace(t.text) == "" }

// tokens cuts a Lua file into tokens. It knows the Lua of this package: it has no
// texts and comments in long brackets.
func tokens(source string) []token {
	out := make([]token, 0, len(source)/3)
	for len(source) > 0 {
		kind, n := nextToken(source)
		out = append(out, token{kind, source[:n]})
		source = source[n:]
	}
	return out
}

// nextToken returns the kind and the length of the first token of a source.
func nextToken(source string) (tokenKind, int) {
	switch c := source[0]; {
	case strings.HasPrefix(source, "--"):
		return commentToken, lengthOf(source, func(c byte) bool { return c != '\n' })
	case c == '\'' || c == '"':
		return textToken, textLength(source)
	case isLetter(c):
		return wordToken, lengthOf(source, isLetter)
	case c == ' ' || c == '\n':
		return otherToken, lengthOf(source, func(c byte) bool { return c == ' ' || c == '\n' })
	}
	for _, operator := range []string{"...", "..", "==", "~=", "<=", ">="} {
		if strings.HasPrefix(source, operator) {
			return otherToken, len(operator)
		}
	}
	return otherToken, 1
}

func isLetter(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func lengthOf(source string, in func(c byte) bool) int {
	n := 0
	for n < len(source) && in(source[n]) {
		n++
	}
	return n
}

// textLength is the length of the string that a source begins with, with its quotes.
func textLength(source string) int {
	for i := 1; i < len(source); i++ {
		switch source[i] {
		case '\\':
			i++
		case source[0]:
			return i + 1
		}
	}
	return len(source)
}

// withoutComments is a source without its comments, which Redis would keep. Lines keep
// their numbers, so that a number in an error is that of the source.
func withoutComments(source string) string {
	var out strings.Builder
	out.Grow(len(source))
	for line := range strings.Lines(source) {
		code := line[:commentAt(line)]
		if len(code) < len(line) {
			code = strings.TrimRight(code, " \t") + "\n"
		}
		out.WriteString(code)
	}
	return out.String()
}

// commentAt is the offset at which the comment of a line begins; its length if it has none.
func commentAt(line string) int {
	at := 0
	for at < len(line) {
		kind, n := nextToken(line[at:])
		if kind == commentToken {
			return at
		}
		at += n
	}
	return at
}
