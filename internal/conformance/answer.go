package conformance

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Fields is a JSON object.
type Fields = map[string]any

// Answer is what came back to one request.
type Answer struct {
	Status int
	Header http.Header
	Raw    []byte
	Body   Fields // nil when the answer is not a JSON object
	Curl   string // the request as a command line, without its key
	Err    error  // no whole answer came
}

func (a *Answer) decode() {
	if strings.Contains(a.Header.Get("Content-Type"), "json") {
		_ = json.Unmarshal(a.Raw, &a.Body)
	}
}

// String is the status and the beginning of the body.
func (a *Answer) String() string {
	if a.Err != nil {
		return "no answer: " + a.Err.Error()
	}
	text := string(bytes.TrimSpace(a.Raw))
	if len(text) > 400 {
		text = text[:400] + "…"
	}
	return strings.TrimSpace(strconv.Itoa(a.Status) + " " + text)
}

// At finds a member by its path, such as capacity.current_load.
func (a *Answer) At(path string) (any, bool) { return Member(a.Body, path) }

// Str is a member that is a text, else empty.
func (a *Answer) Str(path string) string { return Text(a.Body, path) }

// Num is a member that is a number, else -1.
func (a *Answer) Num(path string) int { return Number(a.Body, path) }

// Time is a member that is an ISO 8601 time, else the zero time.
func (a *Answer) Time(path string) time.Time { return Instant(a.Str(path)) }

// List is a member that is an array of objects.
func (a *Answer) List(path string) []Fields { return Objects(a.Body, path) }

// Member finds a value in an object by its dotted path.
func Member(in Fields, path string) (any, bool) {
	var v any = in
	for part := range strings.SplitSeq(path, ".") {
		object, ok := v.(Fields)
		if !ok {
			return nil, false
		}
		if v, ok = object[part]; !ok {
			return nil, false
		}
	}
	return v, true
}

// ParseFields reads a JSON object; nil if the text is something else.
func ParseFields(text string) (f Fields) {
	if json.Unmarshal([]byte(text), &f) != nil {
		return nil
	}
	return f
}

// Text is a member that is a text, else empty.
func Text(in Fields, path string) string {
	v, _ := Member(in, path)
	s, _ := v.(string)
	return s
}

// Number is a member that is a whole number, else -1.
func Number(in Fields, path string) int {
	v, _ := Member(in, path)
	if n, ok := v.(float64); ok && n == float64(int(n)) {
		return int(n)
	}
	return -1
}

// Objects is a member that is an array of objects.
func Objects(in Fields, path string) []Fields {
	v, _ := Member(in, path)
	all, _ := v.([]any)
	var out []Fields
	for _, one := range all {
		if object, ok := one.(Fields); ok {
			out = append(out, object)
		}
	}
	return out
}

// StringList is a member that is an array of strings, written as one text.
func StringList(in Fields, path string) string {
	v, _ := Member(in, path)
	all, ok := v.([]any)
	if !ok {
		return fmt.Sprint(v)
	}
	var out []string
	for _, one := range all {
		out = append(out, fmt.Sprint(one))
	}
	return strings.Join(out, ",")
}

// Instant reads an ISO 8601 time with its offset; the zero time if it is not one.
func Instant(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// JSON writes a value as JSON in one line, with the members in order.
func JSON(v any) string {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// encode makes a body; a string is sent as it is.
func encode(body any) []byte {
	switch body := body.(type) {
	case nil:
		return nil
	case string:
		return []byte(body)
	}
	return []byte(JSON(body))
}

// RawJSON puts JSON into a body as it is written.
func RawJSON(text string) jsontext.Value { return jsontext.Value(text) }
