package rig

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/moves"
)

// The tables of the documents are held against the code they speak of, so a
// new word cannot go undocumented and an old one cannot linger.

func TestDocumentedErrorCodes(t *testing.T) {
	want := map[string]string{}
	for _, code := range picket.Codes() {
		want[string(code)] = strconv.Itoa(code.Status())
	}
	got := map[string]string{}
	for _, row := range table(t, "docs/protocol.md", "| code | status |") {
		got[row[0]] = row[1]
	}
	expectSame(t, "docs/protocol.md, codes", got, want)
}

func TestDocumentedEvents(t *testing.T) {
	want := map[string]string{}
	for name, value := range stringConstants(t, "event.go") {
		if strings.HasPrefix(name, "Event") {
			want[value] = ""
		}
	}
	got := map[string]string{}
	for _, row := range table(t, "docs/protocol.md", "| event | when |") {
		got[row[0]] = ""
	}
	expectSame(t, "docs/protocol.md, events", got, want)
}

func TestDocumentedTaskTransitions(t *testing.T) {
	want := map[string]string{}
	moves.TaskTransitions(func(from picket.TaskState, verb string, to picket.TaskState) {
		start := string(from)
		if start == "" {
			start = "-"
		}
		want[start+" "+verb+" "+string(to)] = ""
	})
	got := map[string]string{}
	for _, row := range table(t, "docs/guarantees.md", "| from | verb | to |") {
		for to := range strings.SplitSeq(row[2], ", ") {
			got[row[0]+" "+row[1]+" "+to] = ""
		}
	}
	expectSame(t, "docs/guarantees.md, moves", got, want)
}

func TestDocumentedAgentTransitions(t *testing.T) {
	want := map[string]string{}
	moves.AgentTransitions(func(from picket.AgentStatus, reason picket.LifecycleReason, to picket.AgentStatus) {
		want[string(from)+" "+string(reason)+" "+string(to)] = ""
	})
	got := map[string]string{}
	for _, row := range table(t, "docs/protocol.md", "| status | reason | next status |") {
		got[row[0]+" "+row[1]+" "+row[2]] = ""
	}
	expectSame(t, "docs/protocol.md, moves of agents", got, want)
}

func TestDocumentedExitClasses(t *testing.T) {
	want := map[string]string{}
	for name, value := range stringConstants(t, "run.go") {
		if strings.HasPrefix(name, "Exit") {
			want[value] = ""
		}
	}
	got := map[string]string{}
	for _, row := range table(t, "docs/protocol.md", "| class | set by |") {
		got[row[0]] = ""
	}
	expectSame(t, "docs/protocol.md, exit classes", got, want)
}

func expectSame(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if len(want) == 0 {
		t.Fatalf("%s: the code has none, so this test looks in the wrong place", what)
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if v, ok := got[k]; !ok {
			t.Errorf("%s: %q is missing", what, k)
		} else if v != want[k] {
			t.Errorf("%s: %q has %q, the code has %q", what, k, v, want[k])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[k]; !ok {
			t.Errorf("%s: %q is not in the code", what, k)
		}
	}
}

// table reads the rows of the one table of a document whose head starts with
// head. Backquotes are taken off the cells.
func table(t *testing.T, document, head string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repoRoot(t), document))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "\n"+head)
	if !found {
		t.Fatalf("%s has no table %q", document, head)
	}
	var rows [][]string
	for i, line := range strings.Split(after, "\n")[1:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if i == 0 {
			continue // |---|
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for j := range cells {
			cells[j] = strings.ReplaceAll(strings.TrimSpace(cells[j]), "`", "")
		}
		rows = append(rows, cells)
	}
	return rows
}

// stringConstants reads the string constants of a file of this house.
func stringConstants(t *testing.T, path string) map[string]string {
	t.Helper()
	found := map[string]string{}
	ast.Inspect(parseFile(t, path), func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				found[spec.Names[0].Name] = text(lit)
			}
		}
		return true
	})
	return found
}

func parseFile(t *testing.T, path string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repoRoot(t), path), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// text is the value of a string literal; empty for anything else.
func text(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	s, _ := strconv.Unquote(lit.Value)
	return s
}
