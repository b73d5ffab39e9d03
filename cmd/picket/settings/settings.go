// Package settings reads picket.yaml and overlays it with the environment and flags. It also
// keeps where each value came from, and which files are trusted.
package settings

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/web"
)

// WitnessDir is where this machine keeps the floor of each namespace.
func WitnessDir(data string) string { return filepath.Join(data, "witness") }

// NewLog writes for people who read a terminal or a journal.
func NewLog(cfg Settings, w interface{ Write([]byte) (int, error) }) *slog.Logger {
	return web.WithLogIDs(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: cfg.Log.Level})))
}

// parts splits a text at its commas.
func parts(text string) (out []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// ChangedKeys names the keys that differ beside those that were read again.
func (s Settings) ChangedKeys(other Settings) (keys []string) {
	for _, from := range []Settings{s, other} {
		for key := range from.values {
			taken := strings.HasPrefix(key, ToolsPrefix+"prices") || strings.HasPrefix(key, ToolsPrefix+"models") ||
				strings.HasPrefix(key, "budget.")
			if !taken && s.values[key].Text != other.values[key].Text {
				keys = append(keys, DisplayKey(key))
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// LocalKeys names what a file in the current directory sets: general keys, the entries under
// agents and the groups under tools.
func (s Settings) LocalKeys() (keys []string) {
	for key, v := range s.values {
		if v.Local {
			agent, _, _ := strings.Cut(key, ":")
			tool := strings.Split(agent, PathSep)
			keys = append(keys, strings.Join(tool[:min(2, len(tool))], "."))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Settings are the settings of a command. The fields are the keys of picket.yaml. Their tags say:
//
//	yaml     the key
//	flag     the flag that overrides it, on the commands that have it
//	default  the text that holds if nothing sets the key
//	unset    what is shown as the value if nothing sets the key
//	check    the check of its text, or of each item of a list, see checks
//	name     the check of the names in a mapping, see checks
//	field    the member of a request that the value goes into
//	doc      what the setting does
//
// The value of a general key comes from its flag, or else from its variable, the file or the
// default. The keys under agents and tools stand in the file only.
type Settings struct {
	General
	Agents map[string]Agent `yaml:"agents" name:"agent"`
	Tools  Tools            `yaml:"tools"`
	// Reminders are rules by name. The owner of the file chooses the names.
	Reminders map[string]Reminder `yaml:"reminders" name:"short"`

	values map[string]Value // by keyOf its path
	// localFile is the absolute path of the trusted file of the current directory; empty: it is from elsewhere.
	localFile string
}

// Value is a setting's text and where it came from.
type Value struct {
	Text      string
	Origin    string   // FILE:LINE:COLUMN, a variable, a flag, or default
	Items     []string // of a value under agents or tools
	Local     bool     // from a file that was found in the current directory
	Section   bool     // a mapping under agents or tools, which has no value
	overrides bool     // from a flag or the environment
}

// The parts of a key under tools, or under the skills of an agent, are kept apart by a byte that no name may hold,
// since names of tools, models, databases and capabilities may hold dots.
const (
	ToolsPrefix = "tools" + PathSep
	PathSep     = "\x00"
)

// keyOf is the key of a path among the values. The records of trusted files keep it, too.
func keyOf(path []string) string {
	switch {
	case path[0] == "tools":
		return strings.Join(path, PathSep)
	case path[0] == "agents" && len(path) > 2 && path[2] == "skills":
		return agentKey(path[1], strings.Join(path[2:], PathSep))
	case path[0] == "agents" && len(path) > 1:
		return agentKey(path[1], strings.Join(path[2:], "."))
	}
	return strings.Join(path, ".")
}

// agentKey is the key of a value in an entry under agents; "" stands for the entry itself. No
// name of an entry holds a colon, but it may hold dots.
func agentKey(name, key string) string { return "agents." + name + ":" + key }

// DisplayKey is a key as people write it.
func DisplayKey(key string) string {
	if strings.HasPrefix(key, "agents.") {
		key = strings.TrimSuffix(strings.Replace(key, ":", ".", 1), ".")
	}
	return strings.ReplaceAll(key, PathSep, ".")
}

// Origin returns where the value of a general key came from, and whether that is a file in
// the current directory.
func (s Settings) Origin(key string) (origin string, local bool) {
	return s.values[key].Origin, s.values[key].Local
}

// LoadSettings resolves every key for a command. A local file that nobody trusted is an error
// or is ignored, see [trustedConfig].
func LoadSettings(cmd *cobra.Command) (Settings, error) {
	file, err := trustedConfig(cmd)
	if err != nil {
		return Settings{}, err
	}
	s, err := file.decode()
	if err != nil {
		return Settings{}, err
	}
	walk(nil, "", reflect.ValueOf(&s.General).Elem(), false,
		func(path []string, tag reflect.StructTag, field reflect.Value) {
			if err == nil {
				err = s.resolve(cmd, newKey(path, tag), field)
			}
		})
	if err != nil {
		return Settings{}, err
	}
	if (s.TLS.Cert == "") != (s.TLS.Key == "") {
		return Settings{}, exit.Usagef("tls.cert (from %s) and tls.key (from %s) belong together",
			s.values["tls.cert"].Origin, s.values["tls.key"].Origin)
	}
	if err := s.checkWake(); err != nil {
		return Settings{}, err
	}
	s.PublicURL = normalPublicURL(s.PublicURL)
	s.fillPresetLimits()
	if file.Local {
		if s.localFile, err = file.Absolute(); err != nil {
			return Settings{}, err
		}
	}
	return s, s.checkAgents()
}

// resolve sets a general key from its flag, or else from its variable, the file or the default.
func (s Settings) resolve(cmd *cobra.Command, k Key, field reflect.Value) error {
	v, given := s.values[k.Name]
	if !given {
		v = Value{Text: k.Default, Origin: "default"}
	}
	if text := os.Getenv(k.Env); text != "" {
		v = Value{Text: text, Origin: k.Env, overrides: true}
	}
	if f := cmd.Flags().Lookup(k.Flag); f != nil && f.Changed {
		v = Value{Text: f.Value.String(), Origin: "--" + k.Flag, overrides: true}
	}
	s.values[k.Name] = v
	if v.Text == "" {
		return nil
	}
	if err := check(k.tag.Get("check"), v.Text); err != nil {
		return exit.Usagef("%s (from %s): %v", k.Name, v.Origin, err)
	}
	items := []string{v.Text}
	if field.Kind() == reflect.Slice {
		items = parts(v.Text)
	}
	assign(field, items)
	return nil
}

// Namespaces are the namespaces that the servers work for, at least one.
func (s Settings) Namespaces() []string { return strings.Split(s.Namespace, ",") }

// ConfigDir is $XDG_CONFIG_HOME/picket, or ~/.config/picket.
func ConfigDir() string { return xdg("XDG_CONFIG_HOME", ".config") }

// dataDir is $XDG_DATA_HOME/picket, or ~/.local/share/picket.
func dataDir() string { return xdg("XDG_DATA_HOME", ".local/share") }

// StateDir is $XDG_STATE_HOME/picket, or ~/.local/state/picket.
func StateDir() string { return xdg("XDG_STATE_HOME", ".local/state") }

func xdg(variable, fallback string) string {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, "picket")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.TempDir()
	}
	return filepath.Join(home, fallback, "picket")
}
