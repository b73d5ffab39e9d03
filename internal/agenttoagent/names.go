package agenttoagent

import "github.com/picket-dev/picket/internal/conformance"

// What the rules use of package conformance.
type (
	answer  = conformance.Answer
	fields  = conformance.Fields
	keyName = conformance.KeyName
)

const (
	nobody     = conformance.Nobody
	client     = conformance.Client
	other      = conformance.OtherClient
	unknownKey = conformance.UnknownKey
)

// merge joins objects. A member that is nil is left out.
func merge(parts ...fields) fields {
	all := fields{}
	for _, part := range parts {
		for name, value := range part {
			if all[name] = value; value == nil {
				delete(all, name)
			}
		}
	}
	return all
}

// text, object and list read a member of an object by its dotted path; they are empty if it is something else.
func text(in fields, path string) string { return conformance.Text(in, path) }

func object(in fields, path string) fields {
	v, _ := conformance.Member(in, path)
	f, _ := v.(fields)
	return f
}

func list(in fields, path string) []fields { return conformance.Objects(in, path) }

// has reports whether an object has a member.
func has(in fields, path string) bool {
	_, ok := conformance.Member(in, path)
	return ok
}
