package rfc16

import "github.com/picket-dev/picket/internal/conformance"

// What the rules use of package conformance.
type (
	answer  = conformance.Answer
	fields  = conformance.Fields
	request = conformance.Request
	keyName = conformance.KeyName
)

const (
	nobody      = conformance.Nobody
	owner       = conformance.Owner
	stranger    = conformance.Stranger
	operator    = conformance.Operator
	reviewer    = conformance.Reviewer
	admin       = conformance.Admin
	unknownKey  = conformance.UnknownKey
	leaseHolder = conformance.LeaseHolder
)

// text is a member that is a text, else empty.
func text(in fields, path string) string { return conformance.Text(in, path) }
