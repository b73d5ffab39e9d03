package term

import "testing"

func TestNearest(t *testing.T) {
	for word, want := range map[string]string{"lits": "list", "aprove": "approve", "zzzzzz": ""} {
		if got := Nearest(word, []string{"list", "approve", "reject"}); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestSuggestionsWithoutPicketOnThePath(t *testing.T) {
	got := withName("./my bin/picket", "picket task retry task_1 && picket adapter -- sh -c 'picket tool'")
	if want := "'./my bin/picket' task retry task_1 && './my bin/picket' adapter -- sh -c 'picket tool'"; got != want {
		t.Errorf("suggested %s, want %s", got, want)
	}
	if got := withName("bin/picket", "export PICKET_API_KEY=<the key>"); got != "export PICKET_API_KEY=<the key>" {
		t.Errorf("suggested %s", got)
	}
}

func TestShellWords(t *testing.T) {
	for word, want := range map[string]string{
		"plain":     "plain",
		"two words": "'two words'",
		"it's":      `'it'\''s'`,
		"":          "''",
		"a\x1b[2Jb": `$'a\x1b[2Jb'`,
		"a'\n\\":    `$'a\'\n\\'`,
		"a\u009bb":  `$'a\xc2\x9bb'`,
		"a\u202eb":  `$'a\xe2\x80\xaeb'`,
	} {
		if got := ShellQuote(word); got != want {
			t.Errorf("quoted(%q) = %s, want %s", word, got, want)
		}
	}
}
