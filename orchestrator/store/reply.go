package store

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
)

// Reply walks what a script answered. A shape that is not the expected one is
// a defect of Picket. The first one is kept in Err.
type Reply struct {
	Value any
	Err   error // nil if every value so far had the expected shape

	script string
}

// NewReply returns the reply of a script, as the Redis driver decoded it.
func NewReply(script string, value any) Reply { return Reply{Value: value, script: script} }

// Fail records that a value is not of the wanted shape. Only the first one is kept.
func (r *Reply) Fail(want string, got any) {
	if r.Err == nil {
		r.Err = fmt.Errorf("reply of %s: want %s, got %T", r.script, want, got)
	}
}

// List returns a list; nil stands for an empty one.
func (r *Reply) List(v any) []any {
	if v == nil {
		return nil
	}
	l, ok := v.([]any)
	if !ok {
		r.Fail("a list", v)
	}
	return l
}

// Text returns a string or a number as text; nil is "".
func (r *Reply) Text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	r.Fail("a string", v)
	return ""
}

// Int returns a number, which Redis may have sent as text; nil and "" are 0.
func (r *Reply) Int(v any) int64 {
	switch v := v.(type) {
	case nil:
		return 0
	case int64:
		return v
	case string:
		// Scores come back as floats where they grow large.
		n, err := strconv.ParseFloat(v, 64)
		if v == "" {
			return 0
		}
		if err != nil {
			r.Fail("a number", v)
		}
		return int64(n)
	}
	r.Fail("a number", v)
	return 0
}

// Hash returns the pairs of a flat list of names and values.
func (r *Reply) Hash(v any) map[string]string {
	flat := r.List(v)
	m := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		m[r.Text(flat[i])] = r.Text(flat[i+1])
	}
	return m
}

// JSON decodes a JSON text; "" leaves into as it is.
func (r *Reply) JSON(v any, into any) {
	s := r.Text(v)
	if s == "" {
		return
	}
	if err := json.Unmarshal([]byte(s), into); err != nil && r.Err == nil {
		r.Err = fmt.Errorf("reply of %s: %w", r.script, err)
	}
}

// ParseInt reads a decimal number of the store; anything else is 0.
func ParseInt(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
