package web

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
)

// optionalIDs is a body with ids that may be left out. An empty id is refused,
// because it would silently mean that the id was left out.
type optionalIDs interface {
	// OptionalIDs returns the JSON pointers of these ids.
	OptionalIDs() []jsontext.Pointer
}

// checkOptionalIDs refuses valid JSON in which one of the ids is "".
func checkOptionalIDs(raw []byte, ids []jsontext.Pointer) error {
	if !bytes.Contains(raw, []byte(`""`)) { // an empty string has no other spelling
		return nil
	}
	for dec := jsontext.NewDecoder(bytes.NewReader(raw)); ; {
		token, err := dec.ReadToken()
		if err != nil { // the end: the caller has decoded all of it before
			return nil
		}
		at := dec.StackPointer()
		if token.Kind() == '"' && token.String() == "" && slices.Contains(ids, at) {
			return picket.Invalid(string(at), "Leave it out, or send an id.", "%s is empty", memberName(string(at)))
		}
	}
}
