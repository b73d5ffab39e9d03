package settings

import (
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Key is a key of picket.yaml, as the tags of its field describe it.
type Key struct {
	Name    string // dotted; NAME stands for a name of the owner's choosing
	Flag    string // on the commands that have it
	Env     string // the variable of a general key: PICKET_ and the key in capitals
	Default string // as it would be written
	Unset   string // what is shown if nothing sets it; mostly empty
	What    string
	tag     reflect.StructTag
}

func newKey(path []string, tag reflect.StructTag) Key {
	k := Key{
		Name:    strings.Join(path, "."),
		Flag:    tag.Get("flag"),
		Default: tag.Get("default"),
		Unset:   tag.Get("unset"),
		What:    tag.Get("doc"),
		tag:     tag,
	}
	if !fileOnly(path) {
		k.Env = "PICKET_" + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
	}
	if k.Name == "data" {
		k.Default = dataDir()
	}
	return k
}

// fileOnly reports whether a path is below agents, tools or reminders, which no flag and no variable overrides.
func fileOnly(path []string) bool {
	return len(path) > 0 && (path[0] == "agents" || path[0] == "tools" || path[0] == "reminders")
}

// KnownSettings returns the general keys, in the order in which they are shown.
func KnownSettings() []Key { return keysOf(reflect.ValueOf(General{})) }

// keysOf returns the keys of all values in a section.
func keysOf(section reflect.Value) (all []Key) {
	walk(nil, "", section, true, func(path []string, tag reflect.StructTag, _ reflect.Value) {
		all = append(all, newKey(path, tag))
	})
	return all
}

// Setting is a key and the value that is in force.
type Setting struct {
	Key
	Value
}

// All returns the general settings and those that the file has under agents and tools, in the
// order in which they are shown.
func (s Settings) All() (all []Setting) {
	walk(nil, "", reflect.ValueOf(s), false, func(path []string, tag reflect.StructTag, _ reflect.Value) {
		if v, ok := s.values[keyOf(path)]; ok {
			all = append(all, Setting{newKey(path, tag), v})
		}
	})
	return all
}

// fieldsOf returns the fields that have a key, those of embedded structs included.
func fieldsOf(section reflect.Value) iter.Seq2[reflect.StructField, reflect.Value] {
	return func(yield func(reflect.StructField, reflect.Value) bool) {
		for _, f := range reflect.VisibleFields(section.Type()) {
			if f.Tag.Get("yaml") != "" && !yield(f, section.FieldByIndex(f.Index)) {
				return
			}
		}
	}
}

// isSection reports whether a type holds keys or names, not a value.
func isSection(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Map
}

// walk visits every value in a section, in the order of the fields and of the names. With all
// set, each mapping of names counts as having one entry, NAME.
func walk(path []string, tag reflect.StructTag, in reflect.Value, all bool,
	visit func(path []string, tag reflect.StructTag, v reflect.Value)) {
	below := func(word string, tag reflect.StructTag, v reflect.Value) {
		walk(append(slices.Clip(path), word), tag, v, all, visit)
	}
	switch {
	case !isSection(in.Type()):
		visit(path, tag, in)
	case in.Kind() == reflect.Map && all:
		below("NAME", tag, reflect.Zero(in.Type().Elem()))
	case in.Kind() == reflect.Map:
		names := map[string]reflect.Value{}
		for key, v := range in.Seq2() {
			names[key.String()] = v
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			below(name, tag, names[name])
		}
	case in.Kind() == reflect.Pointer && !in.IsNil():
		walk(path, tag, in.Elem(), all, visit)
	case in.Kind() == reflect.Pointer && all:
		walk(path, tag, reflect.Zero(in.Type().Elem()), all, visit)
	case in.Kind() == reflect.Struct:
		for f, v := range fieldsOf(in) {
			below(f.Tag.Get("yaml"), f.Tag, v)
		}
	}
}
