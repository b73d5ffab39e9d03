package heartbeat

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
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
		{"version: 2", "invalid_field version 2:10"},
		{"version: '1'", "invalid_field version 2:10"},
		{"version: 1.0", "invalid_field version 2:10"},
		{"version: 0x1", "invalid_field version 2:10"},
		{"version:", "invalid_field version 2:1"},
		{"enabled: yes", "invalid_field enabled 2:10"},
		{"enabled: 'true'", "invalid_field enabled 2:10"},
		{"enabled: [true]", "invalid_field enabled 2:1"},
		{"summary: 5", "invalid_field summary 2:10"},
		{"summary: \"a\\0b\"", "invalid_field summary 2:10"},
		{"summary: " + strings.Repeat("é", 501), "invalid_field summary 2:10"},
		{"preferences: 5", "invalid_field preferences 2:14"},
		{"preferences: []", "invalid_field preferences 2:1"},
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
		{"context: {include: [self, moon]}", "invalid_field context.include[1] 2:27"},
		{"context: {include: self}", "invalid_field context.include 2:20"},
		{"context: {include: [[self]]}", "invalid_field context.include[0] 2:21"},
		{"context: {exclude: [self]}", "unsupported_field context.exclude 2:11"},
		{"context: {include: [self]}\npreferences:\n  context:\n    include: [task]",
			"invalid_field preferences.context.include 5:5"},
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
	if want := []Source{"manual", "agent", "scheduler"}; !slices.Equal(Sources(), want) {
		t.Errorf("sources = %v", Sources())
	}
}

func TestWindowDiagnostics(t *testing.T) {
	const path = "preferences.quiet_windows"
	for window, want := range map[string]string{
		`timezone: UTC, start: "08:00", end: "20:00"`:             "",
		`timezone: UTC, start: 08:00, end: 20:00`:                 "",
		`timezone: US/Eastern, start: "23:59", end: "00:00"`:      "",
		`timezone: Local, start: "08:00", end: "20:00"`:           "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: "+01:00", start: "08:00", end: "20:00"`:        "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: UTC+1, start: "08:00", end: "20:00"`:           "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: EST, start: "08:00", end: "20:00"`:             "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: CET, start: "08:00", end: "20:00"`:             "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: GMT, start: "08:00", end: "20:00"`:             "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: EST5EDT, start: "08:00", end: "20:00"`:         "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: Etc/UTC, start: "08:00", end: "20:00"`:         "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: Etc/GMT+3, start: "08:00", end: "20:00"`:       "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: "", start: "08:00", end: "20:00"`:              "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: 3, start: "08:00", end: "20:00"`:               "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: Europe/Atlantis, start: "08:00", end: "20:00"`: "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: Europe/../UTC, start: "08:00", end: "20:00"`:   "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: /etc/localtime, start: "08:00", end: "20:00"`:  "invalid_timezone " + path + "[0].timezone 4:18",
		`timezone: posix/Europe/Berlin, start: "1:00", end: "2:00"`: "invalid_timezone " + path +
			"[0].timezone 4:18\ninvalid_time_window " + path + "[0].start 4:46\ninvalid_time_window " + path + "[0].end 4:59",
		`start: "08:00", end: "20:00"`:                             "invalid_timezone " + path + "[0].timezone 4:7",
		`timezone: UTC, end: "20:00"`:                              "invalid_time_window " + path + "[0].start 4:7",
		`timezone: UTC, start: "20:00"`:                            "invalid_time_window " + path + "[0].end 4:7",
		`timezone: UTC, start: "08:00", end: "24:00"`:              "invalid_time_window " + path + "[0].end 4:44",
		`timezone: UTC, start: "8:00", end: "20:00"`:               "invalid_time_window " + path + "[0].start 4:30",
		`timezone: UTC, start: "08:60", end: "20:00"`:              "invalid_time_window " + path + "[0].start 4:30",
		`timezone: UTC, start: "08:00:00", end: "20:00"`:           "invalid_time_window " + path + "[0].start 4:30",
		`timezone: UTC, start: " 08:00", end: "20:00"`:             "invalid_time_window " + path + "[0].start 4:30",
		`timezone: UTC, start: 800, end: "20:00"`:                  "invalid_time_window " + path + "[0].start 4:30",
		`timezone: UTC, start: "08:00", end: "08:00"`:              "invalid_time_window " + path + "[0].end 4:44",
		`timezone: UTC, start: "08:00", end: "09:00", days: [mon]`: "unsupported_field " + path + "[0].days 4:53",
		`timezone: UTC, start: "08:00", end: "09:00", claim: 1`:    "forbidden_field " + path + "[0].claim 4:53",
	} {
		_, list := parse("---\npreferences:\n  quiet_windows:\n    - {" + window + "}\n---\n")
		if got := found(list); got != want {
			t.Errorf("%s\ngives %s\nwant  %s", window, got, want)
		}
	}
	for windows, want := range map[string]string{
		"active_hours: []":     "invalid_time_window preferences.active_hours 3:3",
		"quiet_windows: []":    "",
		"quiet_windows: {}":    "invalid_time_window preferences.quiet_windows 3:3",
		"active_hours: always": "invalid_time_window preferences.active_hours 3:17",
		"quiet_windows: [x]":   "invalid_time_window preferences.quiet_windows[0] 3:19",
		"quiet_windows:\n    - timezone: UTC\n      start: '01:00'\n      end: '1'": "invalid_time_window " +
			"preferences.quiet_windows[0].end 6:12",
		"quiet_windows:\n    - timezone: UTC\n      start: '01:00'": "invalid_time_window preferences.quiet_windows[0].end 4:7",
	} {
		_, list := parse("---\npreferences:\n  " + windows + "\n---\n")
		if got := found(list); got != want {
			t.Errorf("%s\ngives %s\nwant  %s", windows, got, want)
		}
	}
}

func TestAtMost32Windows(t *testing.T) {
	windows := func(n int) string {
		return "[" + strings.Repeat(`{timezone: UTC, start: "01:00", end: "02:00"}, `, n) + "]"
	}
	for _, c := range []struct {
		active, quiet int
		want          string
	}{
		{32, 0, ""},
		{16, 16, ""},
		{33, 0, "invalid_time_window preferences.active_hours[32] 3:1522"},
		{31, 2, "invalid_time_window preferences.quiet_windows[1] 4:66"},
	} {
		p, list := parse("---\npreferences:\n  active_hours: " + windows(c.active) +
			"\n  quiet_windows: " + windows(c.quiet) + "\n---\n")
		if got := found(list); got != c.want {
			t.Errorf("%d and %d windows: %s, want %s", c.active, c.quiet, got, c.want)
		}
		if p.Valid && len(p.Windows.Active) != 1 {
			t.Errorf("the same window is there %d times", len(p.Windows.Active))
		}
	}
}

// Forbidden fields are found at any depth, in any spelling, with the surface that owns them.
func TestForbiddenFields(t *testing.T) {
	for _, c := range []struct{ front, want, surface string }{
		{"lease_duration: 5m", "forbidden_field lease_duration 2:1", "the lease API"},
		{"leaseDuration: 5m", "forbidden_field leaseDuration 2:1", "the lease API"},
		{"Lease-Duration: 5m", "forbidden_field Lease-Duration 2:1", "the lease API"},
		{"tasks: []", "forbidden_field tasks 2:1", "the task CLI and API"},
		{"preferences:\n  queue: mine", "forbidden_field preferences.queue 3:3", "the task CLI and API"},
		{"preferences:\n  cadence: 5m", "forbidden_field preferences.cadence 3:3", "the wake: settings of picket.yaml"},
		{"network: {greet: 1}", "forbidden_field network 2:1\nforbidden_field network.greet 2:11",
			"the agent registry and A2A"},
		{"model: big", "forbidden_field model 2:1", "agents.NAME.launch in picket.yaml"},
		{"tools: [sql]", "forbidden_field tools 2:1", "tools: in picket.yaml"},
		{"permissions: all", "forbidden_field permissions 2:1", "agents.NAME in picket.yaml"},
		{"mcp_servers: {}", "forbidden_field mcp_servers 2:1", "tools.upstreams in picket.yaml"},
		{"recurring: true", "forbidden_field recurring 2:1", "not supported"},
		{"context:\n  include:\n    - self\n  hooks: 1", "forbidden_field context.hooks 5:3",
			"agents.NAME in picket.yaml"},
		{"x:\n  - y:\n      - {z: {claim_token: 1}}",
			"unsupported_field x 2:1\nforbidden_field x[0].y[0].z.claim_token 4:14", "the lease API"},
		{"summary: {provider: x}", "invalid_field summary 2:1\nforbidden_field summary.provider 2:11",
			"agents.NAME.launch in picket.yaml"},
		{"version: {ttl: 1}", "invalid_field version 2:1\nforbidden_field version.ttl 2:11", "the lease API"},
	} {
		_, list := parse("---\n" + c.front + "\n---\n")
		if got := found(list); got != c.want {
			t.Errorf("%s\ngives %s\nwant  %s", c.front, got, c.want)
		}
		for _, d := range list {
			if (d.Code == CodeForbiddenField) != (d.OwnerSurface == c.surface) {
				t.Errorf("%s: owner surface %q of %s", c.front, d.OwnerSurface, d.Code)
			}
		}
	}
}

// Every name of the table is refused, and no name is in two rows or is a field of the format.
func TestTableOfAuthorities(t *testing.T) {
	fields, headings := map[string]bool{}, map[string]bool{}
	for _, a := range Authorities() {
		if a.Subject == "" || a.Surface == "" || len(a.Fields) == 0 || len(a.Headings) == 0 {
			t.Errorf("row %+v is not complete", a)
		}
		for _, name := range a.Fields {
			if fields[fieldName(name)] {
				t.Errorf("the field %s is there twice", name)
			}
			fields[fieldName(name)] = true
			_, list := parse("---\n" + name + ": 1\n---\n")
			if got := found(list); got != "forbidden_field "+name+" 2:1" || list[0].OwnerSurface != a.Surface {
				t.Errorf("field %s: %s", name, got)
			}
		}
		for _, name := range a.Headings {
			if headings[headingName(name)] {
				t.Errorf("the heading %s is there twice", name)
			}
			headings[headingName(name)] = true
			_, list := parse("Text\n\n## " + name + "\n")
			if got := found(list); got != "reserved_section 3:1" || list[0].OwnerSurface != a.Surface {
				t.Errorf("heading %s: %s", name, got)
			}
		}
	}
	for _, name := range strings.Fields("version enabled summary preferences min_interval active_hours quiet_windows " +
		"context include timezone start end") {
		if fields[fieldName(name)] {
			t.Errorf("the table forbids the field %s", name)
		}
	}
	Authorities()[0].Fields[0] = "changed"
	if authorities[0].Fields[0] == "changed" {
		t.Error("a caller can change the table")
	}
}

func TestMalformedFiles(t *testing.T) {
	for source, want := range map[string]string{
		"---\nversion: 1\n":                       "malformed_frontmatter 1:1",
		"---":                                     "malformed_frontmatter 1:1",
		"\n\n  \n---\nversion: 1\n---\n":          "malformed_frontmatter 4:1",
		"--- \nversion: 1\n---\t\nText":           "",
		"---\r\nversion: 2\r\n---\r\n# Tools\r\n": "invalid_field version 2:10\nreserved_section 4:1",
		"---\rversion: 2\r---\r":                  "invalid_field version 2:10",
		"\ufeff---\nversion: 2\n---\n":            "invalid_field version 2:10",
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
		"---\nenabled: pkk_TAIL\n---\n":                   "secret 2:10\ninvalid_field enabled 2:10",
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

func TestSourcePathIsRelative(t *testing.T) {
	_, list := Parse([]byte("# Tools"), Options{Settings: Defaults(), SourcePath: "/home/me/agents/a/HEARTBEAT.md"})
	if list[0].SourcePath != "HEARTBEAT.md" {
		t.Errorf("source path = %q", list[0].SourcePath)
	}
}

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
