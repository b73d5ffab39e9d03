package web

import (
	"bytes"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// listDecoder reads an object with one member, which is a list. It only splits the list, so that
// an element with a mistake does not spoil the others.
type listDecoder struct {
	raw    []byte
	member string
	most   int
	dec    *jsontext.Decoder
}

// DecodeList reads a JSON object whose only member is a list of 1 to most elements, and returns the
// JSON of each element as a part of raw. The object is read strictly, as by [Decode]. The elements are
// only known to be JSON; [Unmarshal] reads one of them strictly. The time that DecodeList takes
// grows with the length of raw, and it stops at the first element too many.
func DecodeList(raw []byte, member string, most int) ([][]byte, error) {
	d := listDecoder{raw: raw, member: member, most: most, dec: lenientDecoder(raw)}
	elements, err := d.object()
	if err != nil {
		return nil, err
	}
	if len(elements) == 0 {
		return nil, picket.Invalid("/"+member, "Send at least one.", "%s is empty", memberName("/"+member))
	}
	return elements, nil
}

// lenientDecoder reads JSON whose elements [Unmarshal] checks later.
func lenientDecoder(raw []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
}

// object reads the whole body.
func (d listDecoder) object() (elements [][]byte, err error) {
	start, err := d.dec.ReadToken()
	if err == io.EOF {
		return nil, nil // an empty body has no elements
	}
	if err != nil {
		return nil, decodeRefusal(err)
	}
	if start.Kind() != '{' {
		return nil, picket.Invalid("", `Send a JSON object such as {"`+d.member+`":[…]}.`,
			"the body is not a JSON object")
	}
	found := false
	for d.dec.PeekKind() == '"' {
		name, err := d.dec.ReadToken()
		if err != nil {
			return nil, decodeRefusal(err)
		}
		if err := d.checkName(name.String(), found); err != nil {
			return nil, err
		}
		found = true
		if elements, err = d.list(); err != nil {
			return nil, err
		}
	}
	if _, err := d.dec.ReadToken(); err != nil {
		return nil, decodeRefusal(err)
	}
	if _, err := d.dec.ReadToken(); err != io.EOF {
		return nil, picket.Invalid("", "Send one JSON object.", "there is something after the JSON object")
	}
	return elements, nil
}

// checkName refuses every member except the list, and a second list.
func (d listDecoder) checkName(name string, found bool) error {
	at := "/" + text.Shorten(name, 200)
	switch {
	case name == d.member && !found:
		return nil
	case name == d.member:
		return picket.Invalid(at, "Send it once.", "%s is there twice", at)
	case strings.EqualFold(name, d.member):
		return picket.Invalid(at, "Write it "+d.member+".", "%s is not a known field", at)
	}
	return picket.Invalid(at, "Leave it out. Known here: "+d.member+".", "%s is not a known field", at)
}

// list reads the elements of the list.
func (d listDecoder) list() (elements [][]byte, err error) {
	start, err := d.dec.ReadToken()
	if err != nil {
		return nil, decodeRefusal(err)
	}
	if start.Kind() != '[' {
		return nil, picket.Invalid("/"+d.member, "Send an array.", "%s is %s, expected is an array",
			memberName("/"+d.member), jsonKinds[start.Kind()])
	}
	for d.dec.PeekKind() != ']' {
		element, err := d.dec.ReadValue()
		if err != nil {
			return nil, decodeRefusal(err)
		}
		if len(elements) == d.most {
			return nil, picket.Invalid("/"+d.member, "Send the rest in another request.",
				"%s has more than %d elements", memberName("/"+d.member), d.most)
		}
		end := int(d.dec.InputOffset())
		elements = append(elements, d.raw[end-len(element):end])
	}
	_, err = d.dec.ReadToken()
	return elements, err
}

// WithoutMember returns the JSON of an object without one of its members. The object must be valid
// and have each member at most once. It is not changed.
func WithoutMember(object []byte, member string) []byte {
	dec := lenientDecoder(object)
	if _, err := dec.ReadToken(); err != nil {
		return object
	}
	before := int(dec.InputOffset()) // where the member before ends, or the object begins
	for first := true; dec.PeekKind() == '"'; first = false {
		name, err := dec.ReadToken()
		if err != nil {
			return object
		}
		found := name.String() == member
		if _, err := dec.ReadValue(); err != nil {
			return object
		}
		after := int(dec.InputOffset())
		if !found {
			before = after
			continue
		}
		rest := object[after:]
		if first {
			rest = bytes.TrimLeft(rest, " \t\r\n")
			rest = bytes.TrimPrefix(rest, []byte(","))
		}
		return append(bytes.Clone(object[:before]), rest...)
	}
	return object
}
