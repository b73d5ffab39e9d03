package heartbeat

import "testing"

// Headings that claim authority are refused, however Markdown writes them. Prose and code are not.
func TestReservedHeadings(t *testing.T) {
	for body, want := range map[string]string{
		"# Tools":                               "reserved_section 1:1",
		"Text\n\n   ###### tools ######":        "reserved_section 3:4",
		"## 1. The **Tool** grants:":            "reserved_section 1:1",
		"## `claim_tokens`":                     "reserved_section 1:1",
		"## [Hooks](https://a.example)":         "reserved_section 1:1",
		"Permissions\n===":                      "reserved_section 1:1",
		"a\n\nMCP\nservers\n---":                "reserved_section 3:1",
		"Tools\n - \nx":                         "reserved_section 1:1",
		"> # Tools":                             "reserved_section 1:1",
		"> > Tools\n> > -----":                  "reserved_section 1:1",
		"- # Tools":                             "reserved_section 1:1",
		"1. x\n\n   # Tools":                    "reserved_section 3:4",
		"- x\n\n    # Tools":                    "reserved_section 3:5",
		"<h2 class=\"x\">The <b>Tools</b></h2>": "reserved_section 1:1",
		"# Tools\n# Hooks":                      "reserved_section 1:1\nreserved_section 2:1",
		"```\ncode\n```\n# Tools":               "reserved_section 4:1",
		"````\n```\n# Tools\n````":              "",
		"~~~ sh\n# Tools\n```\n# Hooks\n~~~":    "",
		"``` a`b\n# Tools":                      "reserved_section 2:1",
		"> ```\n> # Tools\n\n# Hooks":           "reserved_section 4:1",
		"- ```\n  # Tools\n\n# Hooks":           "reserved_section 4:1",
		"<!--\n```\n-->\n# Tools":               "reserved_section 4:1",
		"```\n# Tools":                          "",
		"    # Tools\n    make":                 "",
		"\t# Tools":                             "",
		"Text\n    # Tools":                     "",
		"#Tools":                                "",
		"####### Tools":                         "",
		"Use your tools with care.":             "",
		"**Tools**":                             "",
		"# Tools to look at first":              "",
		"# How to look at tasks":                "",
		"Tools\n\n---":                          "",
		"Tools\n- - -":                          "",
		"> Tools\n---":                          "",
		"a\n---\nb":                             "",
		"#":                                     "",
	} {
		_, list := parse(body)
		if got := found(list); got != want {
			t.Errorf("%q gives %s, want %s", body, got, want)
		}
	}
}
