package kit

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
)

// mark matches the mark at the end of a line of Lua. It names the line for planted
// bugs, so that the line may change and move.
var mark = regexp.MustCompile(`(?m) -- @([a-z-]+)$`)

// Marks counts how often each mark occurs in Lua texts.
func Marks(files map[string]string) map[string]int {
	found := map[string]int{}
	for _, text := range files {
		for _, m := range mark.FindAllStringSubmatch(text, -1) {
			found[m[1]]++
		}
	}
	return found
}

// MarkedLine is a mark and the line of Lua that a planted bug puts in the place of the
// marked one. "" removes the line.
type MarkedLine [2]string

// PlantMarked returns the changes that plant a bug.
func PlantMarked(files map[string]string, lines ...MarkedLine) (LuaChanges, error) {
	changed := maps.Clone(files)
	for _, l := range lines {
		file, text, err := ReplaceMarked(changed, l[0], l[1])
		if err != nil {
			return nil, err
		}
		changed[file] = text
	}
	var changes LuaChanges
	for file, text := range changed {
		if text != files[file] {
			changes = append(changes, LuaChange{Old: files[file], New: text})
		}
	}
	return changes, nil
}

// LuaTexts returns the text of every Lua file by its name.
func LuaTexts(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, f := range LuaSources(t) {
		files[f.Name] = f.Text
	}
	return files
}

// ReplaceMarked returns the name of the Lua file that has a mark, and its text with
// line in the place of the marked line.
func ReplaceMarked(files map[string]string, name, line string) (file, text string, err error) {
	if n := Marks(files)[name]; n != 1 {
		return "", "", fmt.Errorf("%d lines of Lua are marked @%s, want 1", n, name)
	}
	for file, text := range files {
		before, after, found := strings.Cut(text, " -- @"+name+"\n")
		if !found {
			continue
		}
		start := strings.LastIndex(before, "\n") + 1
		if strings.TrimSpace(before[start:]) == line {
			return "", "", fmt.Errorf("the line marked @%s is this already: %s", name, line)
		}
		return file, before[:start] + line + "\n" + after, nil
	}
	return "", "", fmt.Errorf("the mark @%s is not at the end of a line", name)
}
