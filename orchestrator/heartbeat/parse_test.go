package heartbeat

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

const fullFile = `---
version: 1
enabled: true
summary: "Reorient, inspect assignments, and claim only through task APIs."
preferences:
  min_interval: "30m"
  active_hours:
    - timezone: "America/Sao_Paulo"
      start: "08:00"
      end: "20:00"
  quiet_windows:
    - timezone: "America/Sao_Paulo"
      start: "22:00"
      end: "08:00"
  context:
    include:
      - self
      - session_health
      - task
      - inbox_summary
---
When Picket wakes you, inspect your context and your inbox before you act.
Use ` + "`picket task next`" + ` to obtain claim authority. Do not assume that you own work.
If nothing is claimable, return a concise no-op summary.
`

func parse(source string) (*Policy, []Diagnostic) {
	return Parse([]byte(source), Options{Settings: Defaults(), SourcePath: "picket/agents/a/HEARTBEAT.md"})
}

// found writes diagnostics as "code path line:column", one a line.
func found(list []Diagnostic) string {
	var lines []string
	for _, d := range list {
		code := strings.TrimPrefix(string(d.Code), "heartbeat_")
		line := fmt.Sprintf("%s %s %d:%d", code, d.Path, d.Line, d.Column)
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func TestFullFileIsRead(t *testing.T) {
	p, list := parse(fullFile)
	if len(list) != 0 || !p.Valid {
		t.Fatalf("diagnostics: %s", found(list))
	}
	if !p.Enabled || p.Version != 1 || !strings.HasPrefix(p.Summary, "Reorient") || *p.MinInterval != 30*time.Minute {
		t.Errorf("front matter = %+v", p.FrontMatter)
	}
	active, quiet := p.Windows.Active, p.Windows.Quiet
	if len(active) != 1 || active[0].Start != 8*60 || active[0].End != 20*60 || len(quiet) != 1 ||
		quiet[0].Timezone != "America/Sao_Paulo" {
		t.Errorf("windows = %+v", p.Windows)
	}
	want := []ContextPart{PartSelf, PartSessionHealth, PartTask, PartInboxSummary}
	if !slices.Equal(p.Include, want) {
		t.Errorf("include = %v", p.Include)
	}
	if !strings.HasPrefix(p.Body, "When Picket") || !strings.HasSuffix(p.Body, "summary.") {
		t.Errorf("body = %q", p.Body)
	}
}

// A file without front matter is enabled, and an empty one is valid and inactive.
func TestEnabledByDefault(t *testing.T) {
	for source, want := range map[string]bool{
		"":                               false,
		"\n \n":                          false,
		"\ufeff":                         false,
		"---\n---\n":                     false,
		"---\n# only a comment\n---\n":   false,
		"---\n---\nLook around.\n":       true,
		"Look around.":                   true,
		"---\nversion: 1\n---":           true,
		"---\nenabled: false\n---\nText": false,
		"---\nenabled: true\n---\n":      true,
	} {
		if p, list := parse(source); !p.Valid || p.Enabled != want || len(list) > 0 || p.Digest == "" {
			t.Errorf("%q: valid %v, enabled %v, want %v; %s", source, p.Valid, p.Enabled, want, found(list))
		}
	}
}

// Each case is front matter, and what is found in it. The first line of front matter is line 2.
func TestFrontMatterDiagnostics(t *testing.T) {
	for _, c := range []struct{ front, want string }{
		{"version: 2", "invalid version 2:10"},
		{"version: '1'", "invalid version 2:10"},
		{"version: 1.0", "invalid version 2:10"},
		{"version: 0x1", "invalid version 2:10"},
		{"version:", "invalid version 2:1"},
		{"enabled: yes", "invalid enabled 2:10"},
		{"enabled: 'true'", "invalid enabled 2:10"},
		{"enabled: [true]", "invalid enabled 2:1"},
		{"summary: 5", "invalid summary 2:10"},
		{"summary: \"a\\0b\"", "invalid summary 2:10"},
		{"summary: " + strings.Repeat("é", 501), "invalid summary 2:10"},
		{"summary: " + strings.Repeat("é", 500), ""},
		{"preferences: 5", "invalid preferences 2:14"},
		{"preferences: []", "invalid preferences 2:1"},
		{"color: red", "unsupported_field color 2:1"},
		{"version: 1\nversion: 1", "malformed_frontmatter version 3:1"},
		{"enabled: true\n\"enabled\": true", "malformed_frontmatter enabled 3:1"},
		{"a: {b: 1, b: 2}", "unsupported_field a 2:1\nmalformed_frontmatter a.b 2:11"},
		{"- version: 1", "malformed_frontmatter 2:1"},
		{"just a text", "malformed_frontmatter 2:1"},
		{"summary: &a x", "malformed_frontmatter 2:10"},
		{"summary: *a", "malformed_frontmatter 2:10"},
		{"summary: !!str x", "malformed_frontmatter 2:10"},
		{"<<: {a: 1}", "malformed_frontmatter 2:1"},
		{"version: 1\n--- # again\nversion: 1", "malformed_frontmatter 3:1"},
		{"version: 1\n...", "malformed_frontmatter 3:1"},
		{"? version\n: 1", "malformed_frontmatter 2:1"},
		{"%YAML 1.2", "malformed_frontmatter 2:1"},
		{"summary: \"open", "malformed_frontmatter 2:10"},
		{"context: {include: [self", "malformed_frontmatter 2:20"},
		{"context: {include: [self, moon]}", "invalid context.include[1] 2:27"},
		{"context: {include: self}", "invalid context.include 2:20"},
		{"context: {include: [[self]]}", "invalid context.include[0] 2:21"},
		{"context: {exclude: [self]}", "unsupported_field context.exclude 2:11"},
		{"context: {include: [self]}\npreferences:\n  context:\n    include: [task]",
			"invalid preferences.context.include 5:5"},
		{"preferences: {min_interval: 30}", "invalid_min_interval preferences.min_interval 2:29"},
		{"preferences:\n  min_interval: half an hour", "invalid_min_interval preferences.min_interval 3:17"},
		{"preferences:\n  min_interval: -5m", "invalid_min_interval preferences.min_interval 3:17"},
		{"preferences:\n  min_interval: 9000h", "invalid_min_interval preferences.min_interval 3:17"},
		{"preferences:\n  min_interval: {}", "invalid_min_interval preferences.min_interval 3:3"},
		{"preferences:\n  min_interval: 1m", "preference_clamped preferences.min_interval 3:17"},
		{"preferences:\n  min_interval: 0s", "preference_clamped preferences.min_interval 3:17"},
		{"preferences:\n  min_interval: 5m", ""},
		{"preferences:\n  min_interval: \"8760h\"", ""},
		{"min_interval: 5m", "unsupported_field min_interval 2:1"},
		{"5: x\ntrue: y\n1.5: z", "unsupported_field 5 2:1\nunsupported_field true 3:1\nunsupported_field 1.5 4:1"},
		{"[a, b]: x", "malformed_frontmatter 2:7"},
		{"x: " + strings.Repeat("[", 17) + strings.Repeat("]", 17), "malformed_frontmatter 2:20"},
		{"x: " + strings.Repeat("[", 16) + strings.Repeat("]", 16), "unsupported_field x 2:1"},
		{nested(16), "unsupported_field k 2:1\nmalformed_frontmatter " + strings.Repeat("k.", 16) + "k 18:17"},
		{nested(15), "unsupported_field k 2:1"},
		{"version: 1\nenabled: TRUE\nsummary: |\n  Two\n  lines\n", ""},
	} {
		p, list := parse("---\n" + c.front + "\n---\nBody\n")
		if got := found(list); got != c.want {
			t.Errorf("%s\ngives %s\nwant  %s", c.front, got, c.want)
		}
		isError := func(d Diagnostic) bool { return d.Severity == SeverityError }
		if p.Valid == slices.ContainsFunc(list, isError) {
			t.Errorf("%s: valid = %v", c.front, p.Valid)
		}
		for _, d := range list {
			if d.SourcePath != "picket/agents/a/HEARTBEAT.md" || d.Message == "" || d.OwnerSurface != "" {
				t.Errorf("%s: %+v", c.front, d)
			}
		}
	}
}

// nested is a mapping in a mapping, and so on.
func nested(depth int) string {
	var b strings.Builder
	for i := range depth + 1 {
		b.WriteString(strings.Repeat(" ", i) + "k:\n")
	}
	return strings.TrimSuffix(b.String(), "\n") + " 1"
}

func TestListsAreClosed(t *testing.T) {
	seen := map[Code]bool{}
	for _, c := range Codes() {
		if seen[c] || !strings.HasPrefix(string(c), "heartbeat_") {
			t.Errorf("the code %s is there twice, or has another beginning", c)
		}
		seen[c] = true
	}
	if want := []picket.WakeSource{"manual", "agent", "scheduler"}; !slices.Equal(picket.WakeSources(), want) {
		t.Errorf("sources = %v", picket.WakeSources())
	}
}

func TestMalformedFiles(t *testing.T) {
	for source, want := range map[string]string{
		"---\nversion: 1\n":                       "malformed_frontmatter 1:1",
		"---":                                     "malformed_frontmatter 1:1",
		"\n\n  \n---\nversion: 1\n---\n":          "malformed_frontmatter 4:1",
		"--- \nversion: 1\n---\t\nText":           "",
		"---\r\nversion: 2\r\n---\r\n# Tools\r\n": "invalid version 2:10\nreserved_section 4:1",
		"---\rversion: 2\r---\r":                  "invalid version 2:10",
		"\ufeff---\nversion: 2\n---\n":            "invalid version 2:10",
		"a\nbc\x00d":                              "invalid_encoding 2:3",
		"é\n\xff":                                 "invalid_encoding 2:1",
		"\xff\xfea\x00":                           "invalid_encoding 1:1",
		"---\nversion: 1\n---\nText\n---\nMore\n": "",
		"Text\n\n---\nversion: 2\n---\n":          "",
		"---\n" + strings.Repeat("#", MaxFrontMatter-1) + "\n---\n": "",
		"---\n" + strings.Repeat("#", MaxFrontMatter) + "\n---\n":   "malformed_frontmatter 1:1",
		strings.Repeat("x", MaxSource+1):                            "file_too_large 0:0",
	} {
		p, list := parse(source)
		if got := found(list); got != want || p.Valid != (want == "") || (p.Digest == "") == p.Valid ||
			p.RawDigest == "" {
			t.Errorf("%.60q gives %s, want %s", source, got, want)
		}
	}
}

// A body that is too long cannot be written. That of a file is valid, and cut where it is quoted.
func TestBodySize(t *testing.T) {
	s := Defaults()
	s.MaxBodyBytes = 1024
	source := []byte("---\nversion: 1\n---\n\n" + strings.Repeat("x", 1025))
	p, list := Parse(source, Options{Settings: s, Mode: ModeWrite})
	if got := found(list); got != "body_too_large 5:1" || p.Valid ||
		!strings.Contains(list[0].Message, "1025") || !strings.Contains(list[0].Message, "1024") {
		t.Errorf("a write gives %+v", list)
	}
	p, list = Parse(source, Options{Settings: s})
	if got := found(list); got != "body_truncated 5:1" || !p.Valid || list[0].Severity != SeverityWarning {
		t.Errorf("a file gives %+v", list)
	}
	for _, mode := range []Mode{ModeFile, ModeWrite} {
		if _, list = Parse(source[:len(source)-1], Options{Settings: s, Mode: mode}); len(list) != 0 {
			t.Errorf("a body of max_body_bytes gives %+v", list)
		}
	}
}

func TestSourcePathIsRelative(t *testing.T) {
	_, list := Parse([]byte("# Tools"), Options{Settings: Defaults(), SourcePath: "/home/me/agents/a/HEARTBEAT.md"})
	if list[0].SourcePath != "HEARTBEAT.md" {
		t.Errorf("source path = %q", list[0].SourcePath)
	}
}

func TestParseIsDeterministic(t *testing.T) {
	for _, source := range []string{fullFile, "---\nb: 1\na: 2\nlease: 3\n---\n# Tools\n"} {
		p, list := parse(source)
		for range 20 {
			again, listAgain := parse(source)
			if !reflect.DeepEqual(p, again) || !reflect.DeepEqual(list, listAgain) {
				t.Fatalf("%+v\n%+v", list, listAgain)
			}
		}
	}
}

// Warnings of ignored hours, and what applies instead.
func TestActiveHoursCanBeIgnored(t *testing.T) {
	s := Defaults()
	s.AllowActiveHoursPreferences = false
	p, list := Parse([]byte(fullFile), Options{Settings: s})
	if got := found(list); got != "preference_clamped preferences.active_hours 7:3" || !p.Valid {
		t.Errorf("diagnostics: %s", got)
	}
	if hours := p.Hours(s); len(hours.Active) != 0 || len(hours.Quiet) != 1 {
		t.Errorf("hours = %+v", hours)
	}
	if hours := p.Hours(Defaults()); len(hours.Active) != 1 {
		t.Errorf("hours = %+v", hours)
	}
}

func TestOwnIntervalIsRaisedToTheBound(t *testing.T) {
	for text, want := range map[string]time.Duration{"1m": 5 * time.Minute, "5m": 5 * time.Minute, "1h": time.Hour} {
		p, _ := parse("---\npreferences: {min_interval: " + text + "}\n---\n")
		if got := p.OwnInterval(Defaults()); got != want {
			t.Errorf("min_interval %s counts as %s", text, got)
		}
	}
	if p, _ := parse("Text"); p.OwnInterval(Defaults()) != 0 {
		t.Error("a file without min_interval has one")
	}
}
