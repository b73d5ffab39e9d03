package rig

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every attack that docs/security.md names has a test, and that test exists.
func TestDocumentedAttacksAreTested(t *testing.T) {
	SkipShort(t)
	text, err := os.ReadFile(filepath.Join(repoRoot(t), "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, attacks, ok := strings.Cut(string(text), "## Attacks that the tests carry out")
	if !ok {
		t.Fatal("docs/security.md has no list of attacks")
	}
	command := regexp.MustCompile(`go test (\.[a-z0-9/]*) -run '([^']+)'`)
	for _, section := range strings.Split(attacks, "\n### ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		rows := 0
		for line := range strings.Lines(body) {
			if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| attack |") {
				continue
			}
			rows++
			line = strings.ReplaceAll(line, `\|`, "\x00")
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			if len(cells) != 4 {
				t.Errorf("%s: this row has %d cells, want 4: %s", heading, len(cells), line)
				continue
			}
			line = strings.ReplaceAll(line, "\x00", "|")
			commands := command.FindAllStringSubmatch(line, -1)
			promised := strings.TrimSpace(cells[1]) != ""
			if promised && len(commands) == 0 {
				t.Errorf("%s: this attack names no test: %s", heading, line)
			}
			for _, c := range commands {
				checkTestExists(t, heading, c[1], c[2])
			}
		}
		if rows == 0 {
			t.Errorf("docs/security.md lists no attack under %q", heading)
		}
	}
}

// Every promise about endpoints, agent sessions and wakes in docs/guarantees.md names a test, and that test exists.
func TestPromisesAreTested(t *testing.T) {
	SkipShort(t)
	for _, heading := range []string{"A2A endpoints", "Foreign agents as workers", "Agent sessions and wakes",
		"Batches of tasks"} {
		checkPromises(t, heading)
	}
}

// checkPromises checks the table below a heading of docs/guarantees.md.
func checkPromises(t *testing.T, heading string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repoRoot(t), "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## "+heading+"\n")
	section, _, ok := strings.Cut(section, "\n## ")
	if !ok {
		t.Fatalf("docs/guarantees.md has no section %q", heading)
	}
	command := regexp.MustCompile("^\\| .+ \\| `go test (\\.[a-z0-9/]*) -run '([^']+)'` \\|$")
	rows := 0
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| promise |") {
			continue
		}
		rows++
		c := command.FindStringSubmatch(strings.TrimSpace(line))
		if c == nil {
			t.Errorf("this promise names no test: %s", line)
			continue
		}
		checkTestExists(t, "docs/guarantees.md", c[1], strings.ReplaceAll(c[2], `\|`, "|"))
	}
	if rows == 0 {
		t.Errorf("docs/guarantees.md lists no promise below %q", heading)
	}
}

// checkTestExists looks for the tests that a command of the documents runs. The
// second part of a pattern of TestScripts names a script.
func checkTestExists(t *testing.T, heading, dir, pattern string) {
	t.Helper()
	first, script, hasScript := strings.Cut(pattern, "/")
	names := testFunctions(t, dir)
	for _, alternative := range alternatives(t, first) {
		if !slices.ContainsFunc(names, alternative.MatchString) {
			t.Errorf("%s: %s has no test %s", heading, dir, alternative)
		}
	}
	if hasScript && strings.Contains(first, "TestScripts") {
		path := filepath.Join(repoRoot(t), dir, "testdata", strings.Trim(script, "^$")+".txt")
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", heading, err)
		}
	}
}

// alternatives are the patterns of the tests that a pattern such as ^(TestA|TestB)$ or ^TestA$|^TestB names.
func alternatives(t *testing.T, pattern string) (list []*regexp.Regexp) {
	t.Helper()
	before, after := "", ""
	if inner, grouped := strings.CutPrefix(pattern, "^("); grouped && strings.HasSuffix(inner, ")$") {
		pattern, before, after = strings.TrimSuffix(inner, ")$"), "^", "$"
	}
	for one := range strings.SplitSeq(pattern, "|") {
		matches, err := regexp.Compile(before + one + after)
		if err != nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		list = append(list, matches)
	}
	return list
}

// testFunctions are the names of the tests and fuzz tests of a package.
func testFunctions(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(repoRoot(t), dir, "*_test.go"))
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil {
				continue
			}
			if name := fn.Name.Name; strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") {
				names = append(names, name)
			}
		}
	}
	return names
}
