package rfc16

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

// fields is a JSON object.
type fields = map[string]any

// answer is what came back to one request.
type answer struct {
	status int
	header http.Header
	raw    []byte
	body   fields // nil when the answer is not a JSON object
	curl   string // the request as a command line, without its key
	err    error  // no whole answer came
}

func (a *answer) decode() {
	if strings.Contains(a.header.Get("Content-Type"), "json") {
		_ = json.Unmarshal(a.raw, &a.body)
	}
}

// String is the status and the beginning of the body.
func (a *answer) String() string {
	if a.err != nil {
		return "no answer: " + a.err.Error()
	}
	text := string(bytes.TrimSpace(a.raw))
	if len(text) > 400 {
		text = text[:400] + "…"
	}
	return strings.TrimSpace(strconv.Itoa(a.status) + " " + text)
}

// at finds a member by its path, such as capacity.current_load.
func (a *answer) at(path string) (any, bool) { return member(a.body, path) }

func (a *answer) str(path string) string { return text(a.body, path) }

// num is a member that is a number, else -1.
func (a *answer) num(path string) int { return number(a.body, path) }

func (a *answer) time(path string) time.Time { return instant(a.str(path)) }

// list is a member that is an array of objects.
func (a *answer) list(path string) []fields { return objects(a.body, path) }

// member finds a value in an object by its dotted path.
func member(in fields, path string) (any, bool) {
	var v any = in
	for part := range strings.SplitSeq(path, ".") {
		object, ok := v.(fields)
		if !ok {
			return nil, false
		}
		if v, ok = object[part]; !ok {
			return nil, false
		}
	}
	return v, true
}

func text(in fields, path string) string {
	v, _ := member(in, path)
	s, _ := v.(string)
	return s
}

func number(in fields, path string) int {
	v, _ := member(in, path)
	if n, ok := v.(float64); ok && n == float64(int(n)) {
		return int(n)
	}
	return -1
}

func objects(in fields, path string) []fields {
	v, _ := member(in, path)
	all, _ := v.([]any)
	var out []fields
	for _, one := range all {
		if object, ok := one.(fields); ok {
			out = append(out, object)
		}
	}
	return out
}

// stringList is a member that is an array of strings, written as one text.
func stringList(in fields, path string) string {
	v, _ := member(in, path)
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

// instant reads an ISO 8601 time with its offset; the zero time if it is not one.
func instant(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// oneLineJSON writes a value as JSON.
func oneLineJSON(v any) string {
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
	return []byte(oneLineJSON(body))
}

// raw puts JSON into a body as it is written.
func raw(text string) jsontext.Value { return jsontext.Value(text) }
