package lua

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Read returns the text of every Lua file in the folders of from, by its base name
// without ".lua". The base names of all files have to be unique.
func Read(from fs.FS) (map[string]string, error) {
	paths, err := fs.Glob(from, "*/*.lua")
	if err != nil {
		return nil, err
	}
	texts := make(map[string]string, len(paths))
	for _, p := range paths {
		text, err := fs.ReadFile(from, p)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(path.Base(p), ".lua")
		if _, twice := texts[name]; twice {
			return nil, fmt.Errorf("two Lua files are named %s", name)
		}
		texts[name] = string(text)
	}
	return texts, nil
}

// file is one Lua file: what its header says, and which names it defines and uses.
type file struct {
	name     string
	header   []string // the comment lines that it starts with, without their dashes
	needs    []string // names of the parts in its header
	tokens   []token
	defines  []string        // names of local variables that live until its end
	declares map[string]bool // names of all local variables and parameters
	mutates  map[string]bool // names that a function of it may assign to
	uses     map[string]bool // every name that is not the field of a table
}

func isPart(name string) bool { return strings.HasPrefix(name, "_") }

// newFile reads a file. It does not check that the file is correct Lua, which Redis does.
func newFile(name, text string) *file {
	f := &file{name: name, tokens: tokens(text), declares: map[string]bool{}, mutates: map[string]bool{},
		uses: map[string]bool{}}
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(line, "--")
		if !ok {
			break
		}
		f.header = append(f.header, strings.TrimSpace(comment))
	}
	for _, need := range strings.Fields(f.headerLine("needs:")) {
		f.needs = append(f.needs, "_"+need)
	}
	f.readNames()
	return f
}

// headerLine finds "word rest" in the header, and returns the rest.
func (f *file) headerLine(word string) string {
	for _, line := range f.header {
		if rest, ok := strings.CutPrefix(line, word); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// hasFlag reports whether a line of the header is this word alone.
func (f *file) hasFlag(word string) bool { return slices.Contains(f.header, word) }

// readNames finds the names of a file.
func (f *file) readNames() {
	s := scanner{tokens: f.tokens}
	for s.next() {
		switch {
		case s.word() == "local" && s.after(1) == "function":
			f.declare(s.after(2), s.depth() == 0)
		case s.word() == "local", s.word() == "for":
			for _, name := range s.list(1) {
				f.declare(name, s.word() == "local" && s.depth() == 0)
			}
		case s.word() == "function":
			for _, name := range s.parameters() {
				f.declare(name, false)
			}
		case s.isName() && s.before(1) != "local":
			f.uses[s.word()] = true
			if s.after(1) == "=" && s.depth() > 0 {
				f.mutates[s.word()] = true
			}
		}
	}
}

func (f *file) declare(name string, untilEnd bool) {
	f.declares[name] = true
	if untilEnd {
		f.defines = append(f.defines, name)
	}
}

// scanner goes through the tokens of a file that are not blank.
type scanner struct {
	tokens []token
	at     int      // of the next token
	now    int      // of this token
	open   []string // the words and braces that are open: function, do, if, repeat, {
}

// next goes on to the next token. It returns false at the end.
func (s *scanner) next() bool {
	if s.at > 0 {
		s.leave()
	}
	for s.at < len(s.tokens) && s.tokens[s.at].blank() {
		s.at++
	}
	s.now = s.at
	s.at++
	return s.now < len(s.tokens)
}

// leave opens or closes a block with the token that was read last.
func (s *scanner) leave() {
	switch t := s.tokens[s.now]; {
	case t.kind == textToken:
	case slices.Contains([]string{"function", "do", "if", "repeat", "{"}, t.text):
		s.open = append(s.open, t.text)
	case slices.Contains([]string{"end", "until", "}"}, t.text) && len(s.open) > 0:
		s.open = s.open[:len(s.open)-1]
	}
}

// depth is how many blocks and tables are open around this token.
func (s *scanner) depth() int { return len(s.open) }

// word is the text of this token, or "" if it is a string.
func (s *scanner) word() string { return s.textAt(s.now) }

func (s *scanner) textAt(i int) string {
	if i < 0 || i >= len(s.tokens) || s.tokens[i].kind == textToken {
		return ""
	}
	return s.tokens[i].text
}

// after is the nth token after this one that is not blank, and before the nth before it.
func (s *scanner) after(n int) string  { return s.textAt(s.step(n, 1)) }
func (s *scanner) before(n int) string { return s.textAt(s.step(n, -1)) }

func (s *scanner) step(n, direction int) int {
	i := s.now
	for ; n > 0; n-- {
		i += direction
		for i >= 0 && i < len(s.tokens) && s.tokens[i].blank() {
			i += direction
		}
	}
	return i
}

// list is the list of names that begins n tokens after this one: a, b, c.
func (s *scanner) list(n int) []string {
	names := []string{s.after(n)}
	for ; s.after(n+1) == ","; n += 2 {
		names = append(names, s.after(n+2))
	}
	return names
}

// parameters are those of the function that begins with this token.
func (s *scanner) parameters() []string {
	n := 1
	for s.after(n) != "(" {
		n++
	}
	if s.after(n+1) == ")" {
		return nil
	}
	return s.list(n + 1)
}

var keywords = []string{"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in",
	"local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while"}

// isName reports whether this token names a variable: it is neither a keyword, nor a
// number, nor the field of a table.
func (s *scanner) isName() bool {
	t := s.tokens[s.now]
	if t.kind != wordToken || t.text[0] <= '9' || slices.Contains(keywords, t.text) {
		return false
	}
	if before := s.before(1); before == "." || before == ":" {
		return false
	}
	inTable := len(s.open) > 0 && s.open[len(s.open)-1] == "{"
	return !inTable || s.after(1) != "=" || s.before(1) != "{" && s.before(1) != ","
}
