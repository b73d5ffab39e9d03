package web

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
)

// optionalIDs is a body with ids that may be left out. An empty id is refused,
// because it would silently mean that the id was left out.
type optionalIDs interface {
	// OptionalIDs returns the JSON pointers of these ids.
	OptionalIDs() []jsontext.Pointer
}

// checkOptionalIDs refuses valid JSON in which one of the ids is "". The time that it takes grows with
// the length of raw only, however long the names of its members are.
func checkOptionalIDs(raw []byte, ids []jsontext.Pointer) error {
	if !bytes.Contains(raw, []byte(`""`)) { // an empty string has no other spelling
		return nil
	}
	for _, at := range ids {
		if isEmptyString(raw, at) {
			return picket.Invalid(string(at), "Leave it out, or send an id.", "%s is empty", memberName(string(at)))
		}
	}
	return nil
}

// isEmptyString reports whether valid JSON has an empty string where the pointer leads to. The
// pointer names members of objects.
func isEmptyString(raw []byte, at jsontext.Pointer) bool {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	for name := range at.Tokens() {
		if !enterMember(dec, name) {
			return false
		}
	}
	value, err := dec.ReadValue()
	return err == nil && string(value) == `""`
}

// enterMember reads up to the value of a member of the object that comes next. It reports false if
// there is no such member.
func enterMember(dec *jsontext.Decoder, name string) bool {
	if start, err := dec.ReadToken(); err != nil || start.Kind() != '{' {
		return false
	}
	for dec.PeekKind() == '"' {
		found, err := dec.ReadToken()
		if err != nil {
			return false
		}
		if found.String() == name {
			return true
		}
		if err := dec.SkipValue(); err != nil {
			return false
		}
	}
	return false
}
