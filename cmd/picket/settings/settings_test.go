package settings

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/text"
)

// A file that is ignored is described in a line that holds nothing of it raw.
func TestAnIgnoredFileCannotSteerTheTerminal(t *testing.T) {
	var said bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetErr(&said)
	reportIgnored(cmd, ConfigFile{Path: "x\x1b[2J/picket.yaml", Local: true}, "unknown key \x1b]0;pwned\x07\u202e")
	if line := strings.TrimSuffix(said.String(), "\n"); line == "" || line != text.Printable(line) {
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
			c.Flags().String(s.Flag, s.Default, "")
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
		{"several", "", "127.0.0.1:2, unix:/run/x", "", "127.0.0.1:2 unix:/run/x", "PICKET_LISTEN"},
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
			if origin, _ := got.Origin("listen"); strings.Join(got.Listen, " ") != tc.value || origin != tc.origin {
				t.Errorf("listen = %q from %s, want %q from %s", got.Listen, origin, tc.value, tc.origin)
			}
		})
	}
}

// Each key names a check that exists and is explained in sentences, and each default passes its check.
func TestEveryKeyIsWhole(t *testing.T) {
	for _, k := range keysOf(reflect.ValueOf(Settings{})) {
		for _, tag := range []string{"check", "name"} {
			if name := k.tag.Get(tag); name != "" && checks[name] == nil {
				t.Errorf("%s: there is no check %q", k.Name, name)
			}
		}
		if k.Default != "" {
			if err := check(k.tag.Get("check"), k.Default); err != nil {
				t.Errorf("the default of %s: %v", k.Name, err)
			}
		}
		if !strings.HasSuffix(k.What, ".") {
			t.Errorf("%s is not explained in sentences: %q", k.Name, k.What)
		}
		if k.Env == "" && (k.Flag != "" || k.Default != "") {
			t.Errorf("%s stands in the file only, and has a flag or a default", k.Name)
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
		"a2a: {public_cards: 1}":        `a2a.public_cards (from picket.yaml:1:7): "1" is neither true nor false`,
		"a2a: {public_card: true}":      `there is no key "a2a.public_card"`,
		"wake: {budget: -5}":            "wake.budget (from picket.yaml:1:8)",
		"wake: {max_body_bytes: 1023}":  `wake.max_body_bytes (from picket.yaml:1:8): "1023" is not a number of bytes`,
		"wake: {min_interval: 1h}":      "wake.default_interval (from default) is 30m, and must be at least wake.min_interval",
		"wake: {default_interval: 0s}":  `wake.default_interval (from picket.yaml:1:8): "0s" is not a duration`,
		"wake: {enabled: yes}":          "is neither true nor false",
		"notify: {allow: 'http://x'}":   "is not a destination",
		"listen: [1]":                   "a single value is expected",
		"- listen":                      "a mapping",
		"listen: 'unfinished":           "picket.yaml:1:9: could not find end character",
		"listen: x\nlisten: y":          `picket.yaml:2:1: mapping key "listen" already defined`,
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
	if r := got.Retention; r.Tasks.Hours() != 1 || r.Events.Hours() != 2 || r.MaxEvents != 3 ||
		r.AuditAge.Hours() != 4 || r.AuditEvents != 5 {
		t.Errorf("retention = %+v", r)
	}
	if ns := got.Namespaces(); len(ns) != 2 || ns[1] != "b-2" {
		t.Errorf("namespaces = %v", ns)
	}
}

// What is read is written as YAML again; that has to be read as the same.
func FuzzSettings(f *testing.F) {
	f.Add("listen: 127.0.0.1:1\nlease:\n  window: 30s\n")
	f.Add("a: &a [*a]\n")
	f.Add("lease: {window: {x: y}}")
	f.Add("---\nlisten: x\n---\nlisten: y\n")
	f.Add("? {a: b}\n: c")
	f.Add("agents: {a: {role_id: r, retry: {on: [crash]}}, b.launch: {launch: {command: x}}}")
	f.Add(fullAgentYAML)
	f.Add(fullToolsYAML)
	f.Add("tools: {prices: {x: {call: [1], per_unit: {byte: {}}}}, upstreams: {a: {command: x}}}")
	f.Add("agents: {a: {capabilities: [b.name, b], skills: {b: {name: x}, b.name: {examples: [y, \"z\\nz\"]}}}}")
	f.Add("agents: {a: {capabilities: [[]], pool: {min_instances: 9, max_instances: 1}}}")
	f.Fuzz(func(t *testing.T, text string) {
		read := func(text []byte) (Settings, error) {
			s, err := ConfigFile{Path: "picket.yaml", Text: text}.decode()
			var refusal *picket.Error
			if err != nil && !errors.As(err, &refusal) {
				t.Errorf("the error has no code: %v", err)
			}
			return s, err
		}
		first, err := read([]byte(text))
		if err != nil {
			return
		}
		written, err := yaml.Marshal(asYAML(first))
		if err != nil {
			t.Fatal(err)
		}
		second, err := read(written)
		if err != nil {
			t.Fatalf("what was read is refused when it is written: %v\n%s", err, written)
		}
		for _, s := range []*Settings{&first, &second} {
			for key, v := range s.values {
				v.Origin = ""
				s.values[key] = v
			}
		}
		if !reflect.DeepEqual(first, second) {
			t.Errorf("%s\nbecame\n%+v\nand was\n%+v", written, second, first)
		}
	})
}

// asYAML are the values of a file as nested mappings. Empty mappings are kept.
func asYAML(s Settings) any {
	root := map[string]any{}
	for key, v := range s.values {
		path := strings.Split(key, ".")
		if strings.HasPrefix(key, ToolsPrefix) {
			path = strings.Split(key, PathSep)
		} else if entry, ok := strings.CutPrefix(key, "agents."); ok {
			name, rest, _ := strings.Cut(entry, ":")
			path = []string{"agents", name}
			if strings.HasPrefix(rest, "skills"+PathSep) {
				path = append(path, strings.Split(rest, PathSep)...)
			} else if rest != "" {
				path = append(path, strings.Split(rest, ".")...)
			}
		}
		at := root
		for _, word := range path[:len(path)-1] {
			if at[word] == nil {
				at[word] = map[string]any{}
			}
			at = at[word].(map[string]any)
		}
		last := path[len(path)-1]
		switch {
		case v.Section && at[last] == nil:
			at[last] = map[string]any{}
		case v.Section:
		case len(v.Items) == 1:
			at[last] = v.Items[0]
		case v.Items != nil:
			at[last] = v.Items
		default:
			at[last] = v.Text
		}
	}
	return root
}
