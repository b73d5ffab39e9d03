package store

import (
	"fmt"
	"slices"
	"testing"
	"testing/fstest"
)

// Parts stand in a script after what they need, each of them once.
func TestNeedsAreResolvedInOrder(t *testing.T) {
	parts := map[string]string{
		"_a": "-- needs: b c\n",
		"_b": "-- needs: c\n",
		"_c": "-- c has no needs.\n",
		"_x": "-- needs: y\n",
		"_y": "-- needs: a x\n",
	}
	read := func(name string) (string, error) {
		if text, ok := parts[name]; ok {
			return text, nil
		}
		return "", fmt.Errorf("no part %s", name)
	}
	got, err := withNeeds(nil, "-- needs: a b\n", read)
	if want := []string{"_c", "_b", "_a"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for body, want := range map[string]string{
		"-- needs: x\n":   "parts need each other: _x _y _x",
		"-- needs: a d\n": "no part _d",
	} {
		if _, err := withNeeds(nil, body, read); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", body, err, want)
		}
	}
}

func TestLuaFilesOfOneNameAreRefused(t *testing.T) {
	twice := fstest.MapFS{"task/a.lua": {}, "part/a.lua": {}}
	if _, err := luaFiles(twice); err == nil || err.Error() != "two Lua files are named a" {
		t.Errorf("two files of one name: got %v", err)
	}
}
