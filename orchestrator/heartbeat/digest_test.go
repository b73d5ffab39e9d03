package heartbeat

import (
	"strings"
	"testing"
	"time"
)

func digestWith(t *testing.T, source string, s Settings) string {
	t.Helper()
	p, list := Parse([]byte(source), Options{Settings: s})
	if !p.Valid || !strings.HasPrefix(p.Digest, "sha256:") || len(p.Digest) != len("sha256:")+64 {
		t.Fatalf("%q has the digest %q; %s", source, p.Digest, found(list))
	}
	return p.Digest
}

// Files that mean the same have one digest, and other files have another one.
func TestDigestIsOfTheMeaning(t *testing.T) {
	const same = `---
version: 1
summary: Look
preferences:
  min_interval: 30m
  quiet_windows:
    - {timezone: UTC, start: "01:00", end: "02:00"}
    - {timezone: UTC, start: "03:00", end: "04:00"}
  context: {include: [self, task]}
---
Body
`
	want := digestWith(t, same, Defaults())
	for _, replace := range [][]string{
		{"version: 1\nsummary: Look", "# comment\n'summary': \"Look\"\nenabled: True\nversion: 1"},
		{"version: 1\n", ""},
		{"version: 1\n", "enabled: true\n"},
		{"30m", "\"1800s\""},
		{"[self, task]", "[task, self, task]"},
		{"{timezone: UTC, start: \"01:00\", end: \"02:00\"}", "end: 02:00\n      timezone: UTC\n      start: '01:00'"},
		{"\"03:00\", end: \"04:00\"}", "\"03:00\", end: \"04:00\"}\n    - {timezone: UTC, start: \"01:00\", end: \"02:00\"}"},
		{"\n", "\r\n"},
		{"---\nBody\n", "---\n\n \nBody  \n\n"},
		{"---\nver", "\ufeff---\nver"},
		{"summary: Look", "summary: |\n  Look"},
	} {
		source := strings.ReplaceAll(same, replace[0], replace[1])
		if source == same {
			t.Fatalf("%q is not in the file", replace[0])
		}
		if got := digestWith(t, source, Defaults()); got != want {
			t.Errorf("%s has another digest", source)
		}
	}
	for _, replace := range [][]string{
		{"Body", "body"},
		{"Body", "Body\n\nMore"},
		{"Look", "look"},
		{"30m", "31m"},
		{"version: 1", "enabled: false"},
		{"quiet_windows", "active_hours"},
		{"UTC", "Europe/London"},
		{"[self, task]", "[self]"},
		{"04:00", "04:01"},
	} {
		if digestWith(t, strings.ReplaceAll(same, replace[0], replace[1]), Defaults()) == want {
			t.Errorf("%v has the same digest", replace)
		}
	}
}

// The settings that change the meaning of a file are in its digest. The others are not.
func TestDigestCoversSettings(t *testing.T) {
	want := digestWith(t, "Body", Defaults())
	for name, change := range map[string]func(*Settings){
		"enabled":                         func(s *Settings) { s.Enabled = false },
		"max_body_bytes":                  func(s *Settings) { s.MaxBodyBytes++ },
		"min_interval":                    func(s *Settings) { s.MinInterval += time.Second },
		"default_interval":                func(s *Settings) { s.DefaultInterval += time.Second },
		"allow_active_hours_preferences":  func(s *Settings) { s.AllowActiveHoursPreferences = false },
		"-context_projection_bytes":       func(s *Settings) { s.ContextProjectionBytes++ },
		"-wake_cooldown":                  func(s *Settings) { s.WakeCooldown++ },
		"-max_wakes_per_cycle":            func(s *Settings) { s.MaxWakesPerCycle++ },
		"-session_health_stale_after":     func(s *Settings) { s.SessionHealthStaleAfter++ },
		"-when_idle, dir, budget and all": func(s *Settings) { s.WhenIdle, s.Dir, s.Budget = true, "x", 1 },
	} {
		s := Defaults()
		change(&s)
		if changed := digestWith(t, "Body", s) != want; changed == strings.HasPrefix(name, "-") {
			t.Errorf("%s: the digest changed: %v", name, changed)
		}
	}
}

func TestRawDigestIsOfTheBytes(t *testing.T) {
	p, _ := parse("---\n- broken\n")
	const want = "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
	if RawDigest([]byte("hello\n")) != want || p.RawDigest != RawDigest([]byte("---\n- broken\n")) || p.Digest != "" {
		t.Errorf("raw digest %s, digest %q", p.RawDigest, p.Digest)
	}
}

// The digest of a file must not change between versions of Picket. If this test fails, all stored
// digests are void.
func TestDigestIsPinned(t *testing.T) {
	const want = "sha256:87b15367905bbb68121d8e28c3fc0aea4368dbf7d332fc11a18f27bed9850f35"
	p, _ := parse(fullFile)
	if p.Digest != want {
		t.Errorf("digest is %s, front matter %s", p.Digest, p.CanonicalJSON())
	}
}
