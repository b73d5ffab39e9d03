package rig

import (
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// passage is a piece of prose: a comment, a text of the program, or a paragraph, an item or a
// cell of a document. Its words are on one line.
type passage struct {
	line int
	text string
}

// idiom is a habit of language that makes a reader read twice.
type idiom struct {
	name   string
	found  *regexp.Regexp
	better string
}

var idioms = []idiom{
	{"is no …", regexp.MustCompile(`(?i)\b(is|are|was|were|be) (no|none)\b`), "is not a …, or say what it is"},
	{"anew", regexp.MustCompile(`(?i)\banew\b`), "again"},
	{"says so", regexp.MustCompile(`(?i)\b(say|says|said|saying|told) so\b`), "reports it"},
	{"mend", regexp.MustCompile(`(?i)\bmend(s|ed|ing)?\b`), "fix, repair"},
	{"but for", regexp.MustCompile(`(?i)\bbut for\b`), "except"},
	{"by itself", regexp.MustCompile(`(?i)\bby (it|them)sel(f|ves)\b|\bof (its|their) own accord\b`), "automatically"},
	{"who comes second", regexp.MustCompile(`(?i)\bwho comes (first|second|late)\b`), "the winner, the loser"},
	{"whoever", regexp.MustCompile(`(?i)\bwho(so)?ever\b|\bwhatever (it|they) (was|is|were|are)\b`),
		"name the person or the thing"},
	{"nor will", regexp.MustCompile(`(?i)\bnor (will|does|do|is|are|was|can|has)\b`), "a sentence of its own"},
	{"tells of", regexp.MustCompile(`(?i)\b(tells?|told|telling) of\b|\b(hears|heard) of\b`), "reports, gets, knows"},
	{"for want of", regexp.MustCompile(`(?i)\bfor want of\b`), "for lack of, because … is spent"},
	{"in vain", regexp.MustCompile(`(?i)\bin vain\b`), "without effect"},
	{"is to be", regexp.MustCompile(`(?i)\b(is|are|was|were) to (be|have)\b|\bwhat (becomes|is to become) of\b`),
		"must be, has to be; what happens to"},
	{"who …, the one who", regexp.MustCompile(`(^|[.:;!?] )Who(se|m)? [^?]*?([.:;!]|$)|; who |\b(for|of) who \w+s `),
		"name the person or the thing"},
	{"inverted condition", regexp.MustCompile(`(^|[.:;!?] )(Is|Are|Was|Were|Has|Have|Had|Does|Did|Should|Can|Could) ` +
		`[^.?!]*?([,:.!;]|$)|, (should|had|were) (it|they|this|that|the) `), "If …"},
}

// Idioms of other words: "there is no route" and "is no longer valid" are plain English.
var (
	plainNegation = regexp.MustCompile(`(?i)\bthere (is|are|was|were|(will|may|can|must) be) (no|none)\b|\bno longer\b`)
	otherTexts    = []string{"Did you mean", "but for example", "Is makes errors.", "appendfsync is no",
		"appendonly is no"}
)

// idiomsIn returns the idioms in a text, with what to write instead.
func idiomsIn(text string) (found []string) {
	text = plainNegation.ReplaceAllString(strings.Join(strings.Fields(text), " "), "not")
	for _, other := range otherTexts {
		text = strings.ReplaceAll(text, other, "")
	}
	for _, i := range idioms {
		for _, m := range i.found.FindAllString(text, -1) {
			found = append(found, strconv.Quote(m)+": "+i.name+"; better: "+i.better)
		}
	}
	return found
}

// proseReaders find the prose of a file by the end of its name.
var proseReaders = map[string]func(text string) []passage{
	".go":   proseOfGo,
	".lua":  func(text string) []passage { return proseOfComments(text, "--") },
	".js":   func(text string) []passage { return proseOfComments(text, "//") },
	".html": proseOfTemplate,
	".md":   proseOfMarkdown,
	".yaml": proseOfDescriptions,
	".json": proseOfDescriptions,
}

// Comments, messages, help texts, pages of the console and documents avoid the idioms.
func TestProseIsPlainEnglish(t *testing.T) {
	root, seen := repoRoot(t), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
			return filepath.SkipDir
		}
		read := proseReaders[filepath.Ext(name)]
		if d.IsDir() || read == nil || name == "plainenglish_test.go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, p := range read(string(text)) {
			seen++
			for _, found := range idiomsIn(p.text) {
				t.Errorf("%s:%d: %s", strings.TrimPrefix(path, root+"/"), p.line, found)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 20_000 {
		t.Errorf("only %d passages were read", seen)
	}
}

// Each reader finds an idiom where people read it, also one that is broken over two lines, and
// finds none in code.
func TestProseReaders(t *testing.T) {
	for ext, texts := range map[string]struct {
		text  string
		found int
	}{
		".go":   {"package p\n\n// An id that is\n// no number.\nvar anew = f(\"the id was made anew\", \"anew\")\n", 2},
		".lua":  {"-- Is the lease gone,\n-- it ends.\nlocal anew = t.anew\nrefuse('it is none of them', \"anew\")\n", 2},
		".js":   {"// It is mended\n// by itself.\nconst anew = 1;\n", 2},
		".html": {"<p title=\"anew\">The page says so{{if .}}\n<b>anew</b>", 2},
		".md":   {"Who reads events\nmisses none.\n```\nanew\n```\n- Is it used up, `anew` ends.\n\n| anew | b |\n", 3},
		".yaml": {"paths:\n  anew:\n    description: 'This is no id.'\n", 1},
		".json": {"{\"anew\": 1,\n \"description\": \"This is no id.\"}\n", 1},
	} {
		var found []string
		for _, p := range proseReaders[ext](texts.text) {
			found = append(found, idiomsIn(p.text)...)
		}
		if len(found) != texts.found {
			t.Errorf("%s: found %d idioms, want %d: %q", ext, len(found), texts.found, found)
		}
	}
	for _, plain := range []string{"There is no such task.", "It is no longer on.", "Did you mean up?", "Is it on?"} {
		if found := idiomsIn(plain); found != nil {
			t.Errorf("%s: %q", plain, found)
		}
	}
}

// proseOfGo reads comments and literals of at least three words.
func proseOfGo(text string) (passages []passage) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	add := func(pos token.Pos, text string) {
		passages = append(passages, passage{line: files.Position(pos).Line, text: withoutCode(text)})
	}
	for _, group := range file.Comments {
		for paragraph := range strings.SplitSeq(group.Text(), "\n\n") {
			add(group.Pos(), paragraph)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			value, _ := strconv.Unquote(literal.Value)
			for line := range strings.SplitSeq(value, "\n") {
				if strings.Count(line, " ") >= 2 {
					add(literal.Pos(), line)
				}
			}
		}
		return true
	})
	return passages
}

// proseOfComments reads the comments of Lua or JavaScript, and literals of at least three words.
func proseOfComments(text, mark string) (passages []passage) {
	open := false
	for i, line := range strings.Split(text, "\n") {
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), mark)
		if comment = withoutCode(comment); ok && open && strings.TrimSpace(comment) != "" {
			passages[len(passages)-1].text += " " + comment
			continue
		} else if ok {
			passages = append(passages, passage{line: i + 1, text: comment})
		} else {
			code, comment, _ := strings.Cut(line, " "+mark+" ")
			for _, literal := range append(literalsOf(code), comment) {
				passages = append(passages, passage{line: i + 1, text: literal})
			}
		}
		open = ok && strings.TrimSpace(comment) != ""
	}
	return passages
}

// literalsOf returns the quoted texts of a line of Lua or JavaScript that have at least three words.
func literalsOf(line string) (literals []string) {
	for {
		start := strings.IndexAny(line, `'"`)
		if start < 0 {
			return literals
		}
		literal, rest, _ := strings.Cut(line[start+1:], line[start:start+1])
		if strings.Count(literal, " ") >= 2 {
			literals = append(literals, literal)
		}
		line = rest
	}
}

var (
	templateAction = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	templateTag    = regexp.MustCompile(`(?s)<[^>]*>`)
)

// proseOfTemplate reads the texts between the tags of a page.
func proseOfTemplate(text string) (passages []passage) {
	lines := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }
	text = templateAction.ReplaceAllStringFunc(text, func(action string) string { return " X " + lines(action) })
	text = templateTag.ReplaceAllStringFunc(text, func(tag string) string { return "\x00" + lines(tag) })
	line := 1
	for part := range strings.SplitSeq(text, "\x00") {
		passages = append(passages, passage{line: line, text: html.UnescapeString(part)})
		line += strings.Count(part, "\n")
	}
	return passages
}

var listItem = regexp.MustCompile(`^\s*([-*]|\d+\.) `)

// proseOfMarkdown reads the paragraphs, items and cells of a document, without its code.
func proseOfMarkdown(text string) (passages []passage) {
	open, code := false, false
	for i, line := range strings.Split(text, "\n") {
		fence := strings.HasPrefix(line, "```")
		code = code != fence
		line = withoutCode(line)
		switch {
		case code || fence || strings.TrimSpace(line) == "":
			open = false
		case strings.HasPrefix(line, "|"):
			open = false
			for cell := range strings.SplitSeq(line, "|") {
				passages = append(passages, passage{line: i + 1, text: cell})
			}
		case !open || strings.HasPrefix(line, "#") || listItem.MatchString(line):
			text := listItem.ReplaceAllString(strings.TrimLeft(line, "# "), "")
			passages = append(passages, passage{line: i + 1, text: text})
			open = !strings.HasPrefix(line, "#")
		default:
			passages[len(passages)-1].text += " " + line
		}
	}
	return passages
}

var (
	description = regexp.MustCompile(`"?(description|summary|title)"?: *["']?(.*)`)
	otherMember = regexp.MustCompile(`^[{ -]*["']?[^ ]+["']?:( |$)`)
)

// proseOfDescriptions reads the descriptions of a schema, and the lines that continue them.
func proseOfDescriptions(text string) (passages []passage) {
	for i, line := range strings.Split(text, "\n") {
		if m := description.FindStringSubmatch(line); m != nil {
			line = m[2]
		} else if otherMember.MatchString(line) {
			continue
		}
		passages = append(passages, passage{line: i + 1, text: withoutCode(strings.TrimSpace(line))})
	}
	return passages
}

// withoutCode replaces code between backquotes with a name.
func withoutCode(text string) string {
	return inlineCode.ReplaceAllString(text, "X")
}
