package settings

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// A file that is ignored is described in a line that holds nothing of it raw.
func TestAnIgnoredFileCannotSteerTheTerminal(t *testing.T) {
	var said bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetErr(&said)
	reportIgnored(cmd, ConfigFile{Path: "x\x1b[2J/picket.yaml", Local: true}, "unknown key \x1b]0;pwned\x07\u202e")
	if line := strings.TrimSuffix(said.String(), "\n"); line == "" || line != term.Printable(line) {
		t.Errorf("reported: %q", line)
	}
}

// loadFile resolves the settings of a picket.yaml with this text and of a command
// line, for a command that has the flag of every setting.
func loadFile(t *testing.T, file string, line ...string) (Settings, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if file != "" {
		if err := os.WriteFile("picket.yaml", []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		line = append([]string{"--config", "picket.yaml"}, line...)
	}
	c := &cobra.Command{}
	c.Flags().String("config", "", "")
	for _, s := range KnownSettings() {
		if s.Flag != "" {
			c.Flags().String(s.Flag, s.def, "")
		}
	}
	if err := c.ParseFlags(line); err != nil {
		t.Fatal(err)
	}
	return LoadSettings(c)
}

func TestOrderOfSettings(t *testing.T) {
	const file = "listen: 127.0.0.1:1\nlease:\n  window: 30s\n"
	for _, tc := range []struct {
		name   string
		file   string
		env    string
		flag   string
		value  string
		origin string
	}{
		{"default", "", "", "", "127.0.0.1:7070", "default"},
		{"file", file, "", "", "127.0.0.1:1", "picket.yaml:1:1"},
		{"environment", file, "127.0.0.1:2", "", "127.0.0.1:2", "PICKET_LISTEN"},
		{"flag", file, "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:3", "--listen"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("PICKET_LISTEN", tc.env)
			var line []string
			if tc.flag != "" {
				line = []string{"--listen", tc.flag}
			}
			got, err := loadFile(t, tc.file, line...)
			if err != nil {
				t.Fatal(err)
			}
			if v := got["listen"]; v.Text != tc.value || v.Origin != tc.origin {
				t.Errorf("listen = %q from %s, want %q from %s", v.Text, v.Origin, tc.value, tc.origin)
			}
		})
	}
}

// TestEveryDefaultPassesItsCheck also holds that each key is explained.
func TestEveryDefaultPassesItsCheck(t *testing.T) {
	for _, s := range KnownSettings() {
		if s.check != nil && s.def != "" {
			if err := s.check(s.def); err != nil {
				t.Errorf("the default of %s: %v", s.Key, err)
			}
		}
		if s.What == "" {
			t.Errorf("%s is not explained", s.Key)
		}
	}
}

func TestBadSettings(t *testing.T) {
	for file, want := range map[string]string{
		"listn: x":                      `picket.yaml:1:1: there is no key "listn"`,
		"a: b\nlisten: c":               `picket.yaml:1:1: there is no key "a"`,
		"lease: 5m":                     "picket.yaml:1:8: a mapping",
		"lease:\n  window: fast":        `lease.window (from picket.yaml:2:3): "fast" is not a duration`,
		"lease:\n  window: 25h":         "out of range",
		"retention:\n  max_events: 0":   "retention.max_events",
		"namespace: Default":            "namespace (from picket.yaml:1:1)",
		"url: not-a-url":                "url (from picket.yaml:1:1)",
		"log:\n  level: loud":           "debug, info, warn or error",
		"heartbeat: {}":                 "the key heartbeat needs wake files",
		"notify: {allow: 'http://x'}":   "is not a destination",
		"listen: [1]":                   "a single value is expected",
		"- listen":                      "a mapping",
		"listen: 'unfinished":           "picket.yaml",
		"listen: x\nlisten: y":          "picket.yaml",
		"retention: {tasks: 1h, x: 2h}": `there is no key "retention.x"`,
	} {
		_, err := loadFile(t, file)
		if err == nil || !strings.Contains(err.Error(), want) || exit.Code(err) != exit.Usage {
			t.Errorf("%q: %v (exit code %d), want %q", file, err, exit.Code(err), want)
		}
	}
}

func TestNamedFileMustExist(t *testing.T) {
	_, err := loadFile(t, "", "--config", "nowhere.yaml")
	if !errors.Is(err, exit.CodeUsage) {
		t.Errorf("err = %v", err)
	}
}

func TestRetentionAndNamespaces(t *testing.T) {
	got, err := loadFile(t,
		"retention: {tasks: 1h, events: 2h, max_events: 3, audit_age: 4h, audit_events: 5}\nnamespace: a,b-2\n")
	if err != nil {
		t.Fatal(err)
	}
	if r := got.Retention(); r.Tasks.Hours() != 1 || r.Events.Hours() != 2 || r.MaxEvents != 3 ||
		r.AuditAge.Hours() != 4 || r.AuditEvents != 5 {
		t.Errorf("retention = %+v", r)
	}
	if ns := got.Namespaces(); len(ns) != 2 || ns[1] != "b-2" {
		t.Errorf("namespaces = %v", ns)
	}
}

func FuzzSettings(f *testing.F) {
	f.Add("listen: 127.0.0.1:1\nlease:\n  window: 30s\n")
	f.Add("a: &a [*a]\n")
	f.Add("lease: {window: {x: y}}")
	f.Add("---\nlisten: x\n---\nlisten: y\n")
	f.Add("? {a: b}\n: c")
	f.Add("agents: {a: {role_id: r, retry: {on: [crash]}}, b.launch: {launch: {command: x}}}")
	f.Add(fullToolsYAML)
	f.Add("tools: {prices: {x: {call: [1], per_unit: {byte: {}}}}, upstreams: {a: {command: x}}}")
	f.Add("agents: {a: {capabilities: [[]], pool: {min_instances: 9, max_instances: 1}}}")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := ConfigFile{Path: "picket.yaml", Text: []byte(text)}.Parse()
		var refusal *picket.Error
		if err != nil && !errors.As(err, &refusal) {
			t.Errorf("the error has no code: %v", err)
		}
		for key := range values {
			_, inEntry, known := strings.Cut(key, ":")
			if known {
				_, key := agentSettingNamed(inEntry)
				known = inEntry == "" || key || agentSection(inEntry)
			}
			for _, s := range KnownSettings() {
				known = known || s.Key == key
			}
			known = known || key == "tools" || strings.HasPrefix(key, ToolsPrefix)
			if !known {
				t.Errorf("the unknown key %q was accepted", key)
			}
		}
	})
}
