package store

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/picket-dev/picket/orchestrator/lua"
)

// Scripts refuse with the reasons that have a wording, and with all of them.
func TestConflictReasonsAreWorded(t *testing.T) {
	files, err := lua.Read(lua.Files)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	reason := regexp.MustCompile(`'state_conflict\.?([a-z_]*)'`)
	for _, text := range files {
		for _, m := range reason.FindAllStringSubmatch(text, -1) {
			used[m[1]] = true
		}
	}
	if got, want := slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(conflictTexts)); !slices.Equal(got, want) {
		t.Errorf("scripts refuse with the reasons %q, worded are %q", got, want)
	}
}

func TestParseRefusal(t *testing.T) {
	for line, want := range map[string]string{
		"state_conflict.wrong_state state=queued need=review": "this needs state review, but it is queued",
		"state_conflict.webhook_limit kind=webhook limit=100": "there are 100 webhooks already, and more are not kept",
		"state_conflict state=queued need=review":             "",
		"state_conflict.unknown":                              "",
		"not_found.webhook_limit kind=key":                    "",
		"no_such_code":                                        "",
	} {
		got := ""
		if e := ParseRefusal(line); e != nil {
			got = e.Message
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
