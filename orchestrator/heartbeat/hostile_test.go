package heartbeat

import (
	"strings"
	"testing"
	"time"
)

// The work for a file is bounded, however it is written.
func TestHostileFilesCostLittle(t *testing.T) {
	within := func(n int, s string) string { return "---\n" + strings.Repeat(s, n/len(s)) + "\n---\n" }
	for what, source := range map[string]string{
		"megabytes":      strings.Repeat("# Tools\n", 1<<20),
		"headings":       strings.Repeat("# Tools\n", MaxSource/8),
		"paragraph":      strings.Repeat("a\n", MaxSource/2-2) + "---",
		"quotes":         strings.Repeat(">", MaxSource),
		"lists":          strings.Repeat("- ", MaxSource/2),
		"lists of lines": strings.Repeat(strings.Repeat("- ", 500)+"\n", 1000),
		"fences":         strings.Repeat("```\n", MaxSource/4),
		"secrets":        strings.Repeat("pkl_aaaa ", MaxSource/9),
		"sequences":      within(MaxFrontMatter, "["),
		"mappings":       within(MaxFrontMatter, "{a: "),
		"items":          within(MaxFrontMatter, "- "),
		"colons":         within(MaxFrontMatter, "a: "),
		"quotation":      within(MaxFrontMatter, "'"),
		"anchors":        within(MaxFrontMatter, "a: &a [*a,*a,*a]\n"),
		"keys":           within(MaxFrontMatter, "? "),
		"pipes":          within(MaxFrontMatter, "a: |\n"),
		"tabs":           within(MaxFrontMatter, "\t"),
		"duplicates":     within(MaxFrontMatter, "a: 1\n"),
		"comments":       within(MaxFrontMatter, "#\n"),
		"zones":          within(MaxFrontMatter, "preferences: {active_hours: [{timezone: Europe/X}]}\n"),
	} {
		began := time.Now()
		_, list := parse(source)
		took := time.Since(began)
		t.Logf("%s: %s", what, took)
		if took > 10*time.Second { // on a busy machine; work that grows with the square takes minutes
			t.Errorf("%s took %s", what, took)
		}
		if len(list) > maxDiagnostics {
			t.Errorf("%s: %d diagnostics", what, len(list))
		}
	}
}
