package store

import "strings"

// withoutComments is a script without its comments, which are a quarter of it and which Redis would
// keep. Lines keep their numbers, so those in an error are the lines of the source.
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

// commentAt is the offset at which the comment of a line begins; its length if it has none. Scripts
// have no text in long brackets.
func commentAt(line string) int {
	quote := byte(0) // of the text that is open
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case strings.HasPrefix(line[i:], "--"):
			return i
		}
	}
	return len(line)
}
