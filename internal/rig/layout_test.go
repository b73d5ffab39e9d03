package rig

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// Bounds of a source file. A tab counts as four columns.
const (
	maxFileLines   = 500
	maxLineColumns = 120
	maxFolderFiles = 40 // without tests
)

// vagueNames say nothing about what a package is for.
var vagueNames = []string{"util", "utils", "common", "helpers", "helper", "base", "types", "manager", "misc", "shared"}

func TestFilesAreShort(t *testing.T) {
	eachSource(t, func(path string, text []byte) {
		if n := bytes.Count(text, []byte("\n")); n > maxFileLines {
			t.Errorf("%s has %d lines, at most %d: split it by topic", path, n, maxFileLines)
		}
	})
}

// A folder is an idea. One of many files is several.
func TestFoldersAreSmall(t *testing.T) {
	files := map[string]int{}
	eachSource(t, func(path string, _ []byte) {
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			files[filepath.Dir(path)]++
		}
	})
	if files["adapter"] < 10 {
		t.Fatalf("the folders were not read: %v", files)
	}
	for folder, n := range files {
		if n > maxFolderFiles {
			t.Errorf("%s has %d files of Go without tests, at most %d: split it by idea", folder, n, maxFolderFiles)
		}
	}
}

// A line is at most 120 columns wide. Go may exceed that with a string literal that
// is longer than a third of a line: strings are not cut to fit. The spaces with which gofmt
// aligns columns do not count.
func TestLinesAreShort(t *testing.T) {
	eachSource(t, func(path string, text []byte) {
		long := map[int]int{}
		for i, line := range strings.Split(string(text), "\n") {
			aligned := alignment.ReplaceAllString(line, " ")
			if n := utf8.RuneCountInString(strings.ReplaceAll(aligned, "\t", "    ")); n > maxLineColumns {
				long[i+1] = n
			}
		}
		if strings.HasSuffix(path, ".go") {
			for line := range linesOfLongStrings(path, text) {
				delete(long, line)
			}
		}
		for line, n := range long {
			t.Errorf("%s:%d has %d columns, at most %d", path, line, n, maxLineColumns)
		}
	})
}

var alignment = regexp.MustCompile(` {2,}`)

// linesOfLongStrings are the lines with a string literal, or a part of one, of
// more than a third of a line.
func linesOfLongStrings(path string, text []byte) map[int]bool {
	lines := map[int]bool{}
	files := token.NewFileSet()
	file := files.AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok != token.STRING {
			continue
		}
		for i, part := range strings.Split(literal, "\n") {
			if utf8.RuneCountInString(part) > maxLineColumns/3 {
				lines[file.Line(pos)+i] = true
			}
		}
	}
}

func TestPackageNamesSaySomething(t *testing.T) {
	for _, p := range packages(t) {
		for part := range strings.SplitSeq(packageOf(p.ImportPath), "/") {
			if slices.Contains(vagueNames, part) {
				t.Errorf("%s: %q says nothing about what it is for", p.ImportPath, part)
			}
		}
	}
}

// In the command only wire.go, with what it reads for the tools in wiretools.go, joins the packages of the server.
func TestOnlyWireFilesJoinPackages(t *testing.T) {
	server := []string{module + "/orchestrator", module + "/orchestrator/api", module + "/toolproxy",
		module + "/reaper"}
	eachSource(t, func(path string, text []byte) {
		if !strings.HasPrefix(path, "cmd/picket/") || strings.HasSuffix(path, "_test.go") ||
			strings.HasPrefix(filepath.Base(path), "wire") {
			return
		}
		for _, imp := range importsOf(t, path, text) {
			if slices.Contains(server, imp) {
				t.Errorf("%s imports %s: only cmd/picket/wire*.go join packages", path, imp)
			}
		}
	})
}

func importsOf(t *testing.T, path string, text []byte) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ImportsOnly)
	if err != nil {
		t.Errorf("parse %s: %v", path, err)
		return nil
	}
	var imports []string
	for _, spec := range file.Imports {
		imports = append(imports, importPath(spec))
	}
	return imports
}

func importPath(spec *ast.ImportSpec) string {
	path, _ := strconv.Unquote(spec.Path.Value)
	return path
}

// eachSource calls visit for every Go and Lua file.
func eachSource(t *testing.T, visit func(path string, text []byte)) {
	t.Helper()
	seen := 0
	root := repoRoot(t)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "out") {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(name); d.IsDir() || ext != ".go" && ext != ".lua" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		seen++
		if err == nil {
			visit(filepath.ToSlash(rel), text)
		}
		return err
	})
	if err != nil || seen < 10 {
		t.Fatalf("walk the sources: %d files, %v", seen, err)
	}
}
