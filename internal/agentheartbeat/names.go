package agentheartbeat

import "github.com/picket-dev/picket/internal/conformance"

// What the rules use of package conformance.
type (
	answer  = conformance.Answer
	fields  = conformance.Fields
	keyName = conformance.KeyName
)

const (
	nobody   = conformance.Nobody
	owner    = conformance.Owner
	stranger = conformance.Stranger
	operator = conformance.Operator
	reviewer = conformance.Reviewer
	admin    = conformance.Admin
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
