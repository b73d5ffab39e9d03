package lua

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// base are the parts that every verb uses, in their order. Their names are known in
// every file. What any other part defines is known in the files that need it.
var base = []string{"_base", "_records", "_writes", "_store", "_prelude", "_identity", "_clock", "_run"}

// Verb is one transition, or one look at the state.
type Verb struct {
	Name  string
	Flags []string // those that Redis knows, such as allow-oom: run although Redis is over its maxmemory
	// StoresMore is set if the verb stores more, and leaves the headroom of a full store
	// free. A verb that is marked as essential does not: a server registers its admin key,
	// people sign in and decide, operators top up, retry and command agents on a full store.
	StoresMore bool
	// Urgent is set if a deadline waits for the verb, so that it goes before others.
	Urgent bool

	// Alone is set if the verb is not called in a batch with others: it takes long,
	// answers much, or changes what a call knows from its beginning.
	Alone bool

	clockless bool   // it runs without store time
	reads     string // what it reads in any case, as a Lua table of kinds and places among its arguments
	body      string
	source    func() string
	script    func() (text, digest string)
}

// Source returns the script that runs this verb alone, for a store without functions.
func (v *Verb) Source() string { return v.source() }

// Script returns what the store gets of Source: it is without comments.
func (v *Verb) Script() string {
	text, _ := v.script()
	return text
}

// Digest is the name under which a store keeps Script.
func (v *Verb) Digest() string {
	_, digest := v.script()
	return digest
}

// Program is all Lua files, ready to be put together. It does not change.
type Program struct {
	Verbs map[string]*Verb // by name

	texts   map[string]string // of the files, by base name
	files   map[string]*file
	shared  map[string][]string // by part: the names in it that other files use
	parts   []string            // without those of base, each after those that it needs
	stands  map[string]string   // by part: how it stands in a script
	library func() *Library
}

// NewProgram reads files by their base names. An error names a file and what is wrong
// with its names or its header.
func NewProgram(texts map[string]string) (*Program, error) {
	files := make(map[string]*file, len(texts))
	for name, text := range texts {
		files[name] = newFile(name, text)
	}
	return compose(texts, files)
}

// Change returns the program whose files are changed. It is for tests that watch verbs at
// work or plant a bug.
func (p *Program) Change(change func(name, text string) string) (*Program, error) {
	texts, files := make(map[string]string, len(p.texts)), maps.Clone(p.files)
	for name, text := range p.texts {
		texts[name] = change(name, text)
		if texts[name] != text {
			files[name] = newFile(name, texts[name])
		}
	}
	return compose(texts, files)
}

func compose(texts map[string]string, files map[string]*file) (*Program, error) {
	p := &Program{Verbs: map[string]*Verb{}, texts: texts, files: files, shared: map[string][]string{},
		stands: map[string]string{}}
	for _, name := range base {
		if p.files[name] == nil {
			return nil, fmt.Errorf("no Lua file is named %s", name)
		}
		p.stands[name] = join(inline(p.files[name].tokens))
	}
	names := slices.Sorted(maps.Keys(texts))
	for _, add := range []func(name string) error{p.addFile, p.noteShared} {
		for _, name := range names {
			if err := add(name); err != nil {
				return nil, fmt.Errorf("compose %s: %w", name, err)
			}
		}
	}
	for _, name := range p.parts {
		p.stands[name] = p.part(name)
	}
	for _, name := range names {
		if !isPart(name) {
			p.Verbs[name] = p.newVerb(p.files[name])
		}
	}
	p.library = sync.OnceValue(p.newLibrary)
	return p, nil
}

// Library returns the library of all verbs.
func (p *Program) Library() *Library { return p.library() }

func (p *Program) newVerb(f *file) *Verb {
	v := &Verb{
		Name:      f.name,
		Flags:     strings.Fields(f.headerLine("flags:")),
		Urgent:    f.hasFlag("urgent"),
		Alone:     f.hasFlag("alone") || f.hasFlag("clockless"),
		clockless: f.hasFlag("clockless"),
		reads:     readsTable(f.headerLine("reads:")),
		body:      p.code(f),
	}
	v.StoresMore = !slices.Contains(v.Flags, "allow-oom") && !f.hasFlag("essential")
	v.source = sync.OnceValue(func() string { return p.script(f, v) })
	v.script = sync.OnceValues(func() (text, digest string) {
		text = withoutComments(v.source())
		sum := sha1.Sum([]byte(text))
		return text, hex.EncodeToString(sum[:])
	})
	return v
}

// readsTable turns "task 1, run 2" into a Lua table.
func readsTable(line string) string {
	if line == "" {
		return "nil"
	}
	var out []string
	for _, read := range strings.Split(line, ",") {
		if kind, place, ok := strings.Cut(strings.TrimSpace(read), " "); ok {
			out = append(out, "'"+kind+":'", place)
		}
	}
	return "{ " + strings.Join(out, ", ") + " }"
}

// addFile adds a part, or the parts that a verb needs, to the order of the parts.
func (p *Program) addFile(name string) error { return p.addPart(name, nil) }

// addPart adds a part to the order, after all that it needs. Of a verb it adds what the
// verb needs. above are the parts that need it.
func (p *Program) addPart(name string, above []string) error {
	if slices.Contains(above, name) {
		return fmt.Errorf("parts need each other: %s", strings.Join(append(above, name), " "))
	}
	if slices.Contains(p.parts, name) || slices.Contains(base, name) {
		return nil
	}
	f := p.files[name]
	if f == nil {
		return fmt.Errorf("no Lua file is named %s", name)
	}
	for _, need := range f.needs {
		if err := p.addPart(need, append(slices.Clone(above), name)); err != nil {
			return err
		}
	}
	if isPart(name) {
		p.parts = append(p.parts, name)
	}
	return nil
}

// imports are the names that a file uses of the parts in its header, with the part of each.
func (p *Program) imports(f *file) map[string]string {
	from := map[string]string{}
	for _, need := range f.needs {
		for _, name := range p.files[need].defines {
			if f.uses[name] {
				from[name] = need
			}
		}
	}
	return from
}

// noteShared notes what a file uses of others. A name that it also declares would be
// ambiguous, and so would a name whose value changes after others have got it.
func (p *Program) noteShared(file string) error {
	f := p.files[file]
	for name, part := range p.imports(f) {
		if f.declares[name] {
			return fmt.Errorf("it declares %s, which is also a name of %s", name, part)
		}
		if p.files[part].mutates[name] {
			return fmt.Errorf("%s changes %s while it runs, so share a function or a table", part, name)
		}
		if !slices.Contains(p.shared[part], name) {
			p.shared[part] = append(p.shared[part], name)
		}
	}
	return nil
}

// code is the text of a file. A name of another part becomes a field of that part.
func (p *Program) code(f *file) string {
	from := p.imports(f)
	out := inline(f.tokens)
	s := scanner{tokens: f.tokens}
	for s.next() {
		if s.isName() && from[s.word()] != "" {
			out[s.now].text = from[s.word()] + "." + s.word()
		}
	}
	return join(out)
}

// inline does without a call of a function where verbs ask for one most. K of a kind of keys, which is a text, looks a
// key without an id up, or puts one with an id together. call of a command that is not just run becomes a call of what
// _store.lua has for it in special. Lines stay as they are.
func inline(list []token) []token {
	out := slices.Clone(list)
	s := scanner{tokens: list}
	for s.next() {
		open, kind := s.step(1, 1), s.step(2, 1)
		if !s.isName() || s.after(1) != "(" || kind >= len(list) || list[kind].kind != textToken ||
			s.before(1) == "function" {
			continue
		}
		command := strings.Trim(list[kind].text, "'")
		switch {
		case s.word() == "call" && s.after(3) == "," && slices.Contains(special, command):
			out[s.now].text, out[kind].text, out[s.step(3, 1)].text = "special."+command, "", ""
		case s.word() != "K":
		case s.after(3) == ")":
			out[s.now].text, out[open].text, out[s.step(3, 1)].text = "key_of", "[", "]"
		case s.after(3) == ",":
			out[s.now].text, out[open].text, out[s.step(3, 1)].text = "", "(P .. ", " .. (("
			out[closing(list, open)].text = ") or ''))"
		}
	}
	return out
}

// special are the commands that _store.lua does not just run.
var special = []string{"ZADD", "ZREM", "RPUSH", "SET", "PUBLISH", "XADD", "GET", "HGET", "HMGET", "HGETALL", "DEL",
	"EXISTS", "ZSCORE", "PEXPIRE", "HSET", "HINCRBY", "HSTRLEN"}

// closing is the token that closes the bracket which a token opens.
func closing(list []token, open int) int {
	depth := 0
	for i := open; i < len(list); i++ {
		switch {
		case list[i].kind == textToken:
		case list[i].text == "(":
			depth++
		case list[i].text == ")":
			depth--
		}
		if depth == 0 {
			return i
		}
	}
	return open
}

func join(list []token) string {
	var out strings.Builder
	for _, t := range list {
		out.WriteString(t.text)
	}
	return out.String()
}

// part is a part as it stands in what Redis gets: a table of what others use of it.
func (p *Program) part(name string) string {
	var fields []string
	for _, shared := range slices.Sorted(slices.Values(p.shared[name])) {
		fields = append(fields, shared+" = "+shared)
	}
	return "local " + name + " do " + strings.TrimSuffix(p.code(p.files[name]), "\n") + "\n" +
		name + " = { " + strings.Join(fields, ", ") + " } end\n"
}

// script runs one verb, with the parts that it needs.
func (p *Program) script(f *file, v *Verb) string {
	var out strings.Builder
	for _, name := range base {
		out.WriteString(p.stands[name])
	}
	needed := p.neededBy(f, nil)
	for _, name := range p.parts {
		if slices.Contains(needed, name) {
			out.WriteString(p.stands[name])
		}
	}
	fmt.Fprintf(&out, "return run(function() %s\nend, %t, %s)\n", v.body, v.clockless, v.reads)
	return out.String()
}

func (p *Program) neededBy(f *file, known []string) []string {
	for _, need := range f.needs {
		if !slices.Contains(known, need) {
			known = p.neededBy(p.files[need], append(known, need))
		}
	}
	return known
}
