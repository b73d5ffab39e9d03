package heartbeat

import (
	"strings"
	"testing"
)

func TestInstructionsAreRead(t *testing.T) {
	for source, want := range map[string]string{
		"":                                      "",
		" \n\n":                                 "",
		"Never push to main.\n":                 "Never push to main.",
		"\ufeffOne.\r\nTwo.\r":                  "One.\nTwo.",
		"---\nname: x\n---\nText":               "---\nname: x\n---\nText",
		strings.Repeat("a", MaxInstructions):    strings.Repeat("a", MaxInstructions),
		"pkl_ and pks_ are prefixes of secrets": "pkl_ and pks_ are prefixes of secrets",
	} {
		text, refused := ParseInstructions([]byte(source), "ann/AGENT.md")
		if text != want || len(refused) > 0 {
			t.Errorf("%.40q: %.40q, %v", source, text, refused)
		}
	}
}

func TestInstructionsAreRefused(t *testing.T) {
	for source, code := range map[string]Code{
		strings.Repeat("a", MaxInstructions+1): CodeFileTooLarge,
		"a\x00b":                               CodeInvalidEncoding,
		"a\xffb":                               CodeInvalidEncoding,
		"use pks_abcdef1234 for this":          CodeSecret,
	} {
		text, refused := ParseInstructions([]byte(source), "ann/AGENT.md")
		if text != "" || len(refused) != 1 || refused[0].Code != code || refused[0].SourcePath != "ann/AGENT.md" ||
			refused[0].Severity != SeverityError || strings.Contains(refused[0].Message, "abcdef") {
			t.Errorf("%.40q: %.40q, %v", source, text, refused)
		}
	}
}
