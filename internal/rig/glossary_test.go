package rig

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

var (
	glossaryRow = regexp.MustCompile(`(?m)^\| (\*\*.+\*\*) \| (.+) \| (.*) ?\|$`)
	camelWord   = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)
)

// testFunction is the name of a test, which is a sentence.
var testFunction = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)`)

// The words that the glossary of docs/architecture.md replaced are in the name of no type and of no
// exported function, method or field.
func TestNamesUseTheWordsOfTheGlossary(t *testing.T) {
	_, glossary, found := strings.Cut(readPage(t, "docs/architecture.md"), "\n## Glossary\n")
	if !found {
		t.Fatal("docs/architecture.md has no glossary")
	}
	replaced := map[string]string{} // word -> what to write
	for _, row := range glossaryRow.FindAllStringSubmatch(glossary, -1) {
		for word := range strings.SplitSeq(row[3], ",") {
			if word = strings.TrimSpace(word); word != "" {
				replaced[word] = strings.ReplaceAll(row[1], "*", "")
			}
		}
	}
	if len(replaced) < 20 {
		t.Fatalf("the glossary replaces %d words", len(replaced))
	}
	eachSource(t, func(path string, text []byte) {
		if !strings.HasSuffix(path, ".go") || strings.HasPrefix(path, "cmd/picketbench/") {
			return
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		for _, name := range namesHeld(file) {
			if name.Name == "ProcessPipelineHook" { // an interface of go-redis has it
				continue
			}
			for _, word := range camelWord.FindAllString(name.Name, -1) {
				if better := replaced[strings.ToLower(word)]; better != "" {
					t.Errorf("%s: %s has the word %q; the glossary says %q", files.Position(name.Pos()), name.Name,
						strings.ToLower(word), better)
				}
			}
		}
	})
}

// namesHeld are the names of a file that the glossary is about.
func namesHeld(file *ast.File) (names []*ast.Ident) {
	exported := func(list ...*ast.Ident) {
		for _, name := range list {
			if name.IsExported() {
				names = append(names, name)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.FuncDecl:
			if !testFunction.MatchString(n.Name.Name) {
				exported(n.Name)
			}
		case *ast.StructType:
			for _, field := range n.Fields.List {
				exported(field.Names...)
			}
		case *ast.InterfaceType:
			for _, method := range n.Methods.List {
				exported(method.Names...)
			}
		}
		return true
	})
	return names
}
