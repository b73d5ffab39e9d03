package web

import (
	"cmp"
	"encoding"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// decodeRefusal turns a decoder's error into a refusal that names the member and
// says what it may be, in the words of the wire and not of Go.
func decodeRefusal(err error) error {
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		return semanticRefusal(semantic)
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		return syntaxRefusal(syntactic)
	}
	return picket.Invalid("", "Send one complete JSON object.", "the body is not valid JSON").WithCause(err)
}

func syntaxRefusal(e *jsontext.SyntacticError) error {
	field := string(e.JSONPointer)
	switch {
	case errors.Is(e.Err, jsontext.ErrDuplicateName):
		return picket.Invalid(field, "Send it once.", "%s is there twice", memberName(field)).WithCause(e)
	case errors.Is(e.Err, io.ErrUnexpectedEOF):
		return picket.Invalid(field, "Send one complete JSON object.", "the JSON ends too early").WithCause(e)
	case strings.Contains(e.Err.Error(), "invalid UTF-8"):
		return picket.Invalid(field, "Encode text as UTF-8.", "%s is not valid UTF-8", memberName(field)).WithCause(e)
	}
	return picket.Invalid(field, "Send one complete JSON object.", "the JSON is not valid at byte %d: %v", e.ByteOffset,
		e.Err).
		With("offset", e.ByteOffset).WithCause(e)
}

func semanticRefusal(e *json.SemanticError) error {
	field := string(e.JSONPointer)
	if errors.Is(e.Err, json.ErrUnknownName) {
		return unknownMember(e)
	}
	if e.Err != nil && isOwnDecoder(e.GoType) {
		return picket.Invalid(field, wireForm(e.GoType), "%s: %s", memberName(field), trimJSONPrefix(e.Err)).
			WithCause(e)
	}
	want := wireKind(e.GoType)
	if e.Err != nil && want == "an integer" && e.JSONKind == '0' {
		return picket.Invalid(field, "Send a whole number without a fraction or exponent.",
			"%s is not a whole number in range", memberName(field)).WithCause(e)
	}
	got := cmp.Or(jsonKinds[e.JSONKind], "not acceptable")
	return picket.Invalid(field, "Send "+want+".", "%s is %s, expected is %s", memberName(field), got, want).
		WithCause(e)
}

func unknownMember(e *json.SemanticError) error {
	field, got := string(e.JSONPointer), e.JSONPointer.LastToken()
	known := memberNames(e.GoType)
	remedy := "Leave it out."
	for _, k := range known {
		if strings.EqualFold(k, got) {
			remedy = "Write it " + k + "."
		}
	}
	if len(known) > 0 {
		remedy += " Known here: " + strings.Join(known, ", ") + "."
	}
	return picket.Invalid(field, remedy, "%s is not a known field", memberName(field)).WithCause(e)
}

// memberNames lists the JSON names of a struct, those of embedded structs included. A field tagged
// later:"subject" belongs to something that is not built yet. It is known, so that it can be
// refused by its subject, but no message suggests it.
func memberNames(t reflect.Type) []string {
	var names []string
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			names = append(names, memberNames(f.Type)...)
		case name != "" && name != "-" && f.Tag.Get("later") == "":
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isOwnDecoder reports whether the type reads its JSON itself, so that its
// error is written for people already.
func isOwnDecoder(t reflect.Type) bool {
	if t == nil {
		return false
	}
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[interface{ UnmarshalJSON([]byte) error }]()) ||
		p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// wireForm is how such a type says that it is written.
func wireForm(t reflect.Type) string {
	if of, ok := reflect.Zero(t).Interface().(interface{ WireForm() string }); ok {
		return of.WireForm()
	}
	return "Send it as /openapi.yaml describes it."
}

func trimJSONPrefix(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "json: "), "jsontext: ")
}

func memberName(pointer string) string {
	if pointer == "" {
		return "the body"
	}
	return text.Shorten(pointer, 200)
}

func wireKind(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return "another kind of value"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an integer"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "another kind of value"
}

// jsonKinds are how a value of each kind is called in a refusal.
var jsonKinds = map[jsontext.Kind]string{
	'n': "null",
	't': "true or false",
	'f': "true or false",
	'"': "a string",
	'0': "a number",
	'{': "an object",
	'}': "an object",
	'[': "an array",
	']': "an array",
}
