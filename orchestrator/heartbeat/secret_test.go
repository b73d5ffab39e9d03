package heartbeat

import (
	"fmt"
	"strings"
	"testing"
)

func TestMessagesAndPathsAreRedacted(t *testing.T) {
	f := newFindings("pkl_aaaaaaaa")
	f.refuse(CodeInvalid, place{path: "a.pk\u200bs_bbbbbbbb"}, "the value is %s", "pkk_default_cccccccc")
	want := Diagnostic{Code: CodeInvalid, Severity: SeverityError, Message: "the value is [redacted]",
		Path: "a.[redacted]", SourcePath: "[redacted]"}
	if f.list[0] != want {
		t.Errorf("%+v", f.list[0])
	}
}

// Tokens and keys are refused anywhere, and no diagnostic repeats them.
func TestSecrets(t *testing.T) {
	const tail = "Secr3t-Part.of_it"
	for source, want := range map[string]string{
		"Use pkl_TAIL now":                                "secret 1:5",
		"a\n`pks_TAIL`":                                   "secret 2:2",
		"```\nkey=pkk_default_TAIL\n```":                  "secret 2:5",
		"pkl\\_TAIL":                                      "secret 1:1",
		"---\nsummary: pkl_TAIL\n---\n":                   "secret 2:10",
		"---\n# pkl_TAIL\nversion: 1\n---\n":              "secret 2:3",
		"---\npkl_TAIL: 1\n---\n":                         "secret 2:1\nunsupported_field [redacted] 2:1",
		"---\nsummary: \"p\\x6bl_TAIL\"\n---\n":           "secret summary 2:10",
		"---\nx: [\"\\x70ks_TAIL\"]\n---\n":               "unsupported_field x 2:1\nsecret x[0] 2:5",
		"---\n\"p\\x6bl_TAIL\": 1\n---\n":                 "secret [redacted] 2:1\nunsupported_field [redacted] 2:1",
		"---\nenabled: pkk_TAIL\n---\n":                   "secret 2:10\ninvalid enabled 2:10",
		"---\npreferences: {min_interval: pkl_TAIL}\n---": "secret 2:29\ninvalid_min_interval preferences.min_interval 2:29",
		"---\nsummary: \"pkl_TAIL\n---\n":                 "malformed_frontmatter 2:10\nsecret 2:11",
		"# Tools pkl_TAIL":                                "secret 1:9",
		"The prefix is `pkl_`, or pks_ or pkk_ .":         "",
	} {
		p, list := parse(strings.ReplaceAll(source, "TAIL", tail))
		if got := found(list); got != want || p.Valid != (want == "") {
			t.Errorf("%q gives %s, want %s", source, got, want)
		}
		if strings.Contains(fmt.Sprint(list), "Secr3t") {
			t.Errorf("%q: a diagnostic has the secret: %v", source, list)
		}
	}
}
