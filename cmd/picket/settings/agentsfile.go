package settings

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// agentsPrefix begins the keys of the entries under agents.
const agentsPrefix = "agents."

// EntryKey is where a key of an entry is kept among the settings; "" is the
// entry itself. No name holds a colon, but it may hold dots.
func EntryKey(name, key string) string { return agentsPrefix + name + ":" + key }

// DisplayKey is a key as people write it.
func DisplayKey(key string) string {
	return strings.TrimSuffix(strings.Replace(key, ":", ".", 1), ".")
}

// agents reads the entries under agents: names with a mapping each.
func (r *settingsReader) agents(node ast.Node) error {
	return r.each(node, func(v *ast.MappingValueNode) error {
		name, where := v.Key.GetToken().Value, r.at(v.Key.GetToken())
		if err := picket.CheckName(agentsPrefix+name, name); err != nil {
			e := exit.Usagef("%s: %s is not a name of an agent", where, term.ShellQuote(name))
			e.Remedy = exit.Remedy(err)
			return e
		}
		if before, twice := r.values[EntryKey(name, "")]; twice {
			return exit.Usagef("%s: agents.%s is there already, at %s", where, name, before.Origin)
		}
		r.values[EntryKey(name, "")] = Value{Origin: where}
		return r.agent(name, "", v.Value)
	})
}

// agent reads the keys of an entry, or those of a section in it.
func (r *settingsReader) agent(name, section string, node ast.Node) error {
	return r.each(node, func(v *ast.MappingValueNode) error {
		word, where := v.Key.GetToken().Value, r.at(v.Key.GetToken())
		key := strings.TrimPrefix(section+"."+word, ".")
		if section == "" && agentSection(word) {
			r.values[EntryKey(name, word)] = Value{Origin: where}
			return r.agent(name, word, v.Value)
		}
		k, known := agentSettingNamed(key)
		if !known {
			return unknownAgentSetting(where, name, section, word)
		}
		items, err := k.read(v.Value)
		if err != nil {
			return exit.Usagef("%s: agents.%s.%s: %v", where, name, key, err)
		}
		if items != nil {
			r.values[EntryKey(name, key)] = Value{Text: k.shown(items), Items: items, Origin: where}
		}
		return nil
	})
}

// atPosition says where in a file an error is, keeping what it says to do.
func atPosition(where string, err *picket.Error) error {
	said := *err
	said.Message = where + ": " + err.Message
	return &said
}

func unknownAgentSetting(where, name, section, word string) error {
	err := exit.Usagef("%s: there is no key %q in %s", where, word, DisplayKey(EntryKey(name, section)))
	names := agentSettingNames(section)
	err.Remedy = "Its keys: " + strings.Join(names, ", ")
	if near := term.Nearest(word, names); near != "" {
		err.Remedy = "Did you mean \"" + near + "\"? " + err.Remedy
	}
	return err
}

// read takes the value of a key and checks each of its items. A list of one may
// be written without brackets; nil is a key without a value.
func (k agentSetting) read(node ast.Node) ([]string, error) {
	nodes := []ast.Node{node}
	switch n := node.(type) {
	case *ast.NullNode:
		return nil, nil
	case *ast.SequenceNode:
		if k.list {
			nodes = n.Values
		}
	}
	items := make([]string, 0, len(nodes))
	for _, n := range nodes {
		item, err := scalar(n)
		if err != nil && k.list {
			err = errors.New("a list of single values is expected")
		}
		if err == nil && k.check != nil {
			err = k.check(item)
		}
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// shown is a value as `config show` prints it.
func (k agentSetting) shown(items []string) string {
	if k.Key == "launch.command" {
		return term.ShellJoin(items)
	}
	return strings.Join(items, ",")
}
