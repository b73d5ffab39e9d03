package store

import (
	"reflect"
	"testing"
)

type decodedChild struct {
	Name string `reply:"name"`
}

type decoded struct {
	Text     string            `reply:"text"`
	Number   int64             `reply:"number"`
	Yes      bool              `reply:"yes"`
	Hash     map[string]string `reply:"hash"`
	Texts    []string          `reply:"texts"`
	Child    decodedChild      `reply:"child"`
	None     *decodedChild     `reply:"none"`
	Children []decodedChild    `reply:"children"`
	Pointer  *decodedChild     `reply:"pointer"`
	Body     struct{ A int }   `reply:"body,json"`
	Later    any               `reply:"later"`
}

func TestDecode(t *testing.T) {
	r := NewReply("test", []any{
		"text", "a", "number", int64(7), "yes", "1", "hash", []any{"k", "v", "n", int64(2)},
		"texts", []any{"x", int64(3)}, "child", []any{"name", "c"}, "none", nil,
		"children", []any{[]any{"name", "d"}, []any{}}, "pointer", []any{"name", "e"},
		"body", `{"A":5}`, "later", []any{int64(1)},
	})
	var got decoded
	r.Decode(&got)
	want := decoded{
		Text:     "a",
		Number:   7,
		Yes:      true,
		Hash:     map[string]string{"k": "v", "n": "2"},
		Texts:    []string{"x", "3"},
		Child:    decodedChild{"c"},
		Children: []decodedChild{{"d"}, {}},
		Pointer:  &decodedChild{"e"},
		Body:     struct{ A int }{5},
		Later:    []any{int64(1)},
	}
	if r.Err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, r.Err, want)
	}
}

func TestDecodeReportsADefect(t *testing.T) {
	for name, value := range map[string]any{
		"no field of this name": []any{"other", "x"},
		"a field without a tag": []any{"", "x"},
		"no list":               "text",
		"a list for a text":     []any{"text", []any{}},
		"a text for a number":   []any{"number", "x"},
		"a text for a struct":   []any{"child", "x"},
		"invalid JSON":          []any{"body", "{"},
		"a list as a name":      []any{[]any{}, "x"},
	} {
		r := NewReply("test", value)
		r.Decode(&decoded{})
		if r.Err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A reply that was cut off must not panic. Absent names leave their fields empty.
func TestDecodeShortReply(t *testing.T) {
	for _, value := range []any{nil, []any{}, []any{"text"}, []any{"child", nil}} {
		r := NewReply("test", value)
		var got decoded
		if r.Decode(&got); r.Err != nil || !reflect.DeepEqual(got, decoded{}) {
			t.Errorf("%v: got %+v, %v", value, got, r.Err)
		}
	}
}
