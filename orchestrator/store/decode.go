package store

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/picket-dev/picket/budget"
)

// Decode reads a reply that a script made with named() into a struct. Each field
// has a tag `reply:"name"`; without one its name in JSON counts. Embedded structs
// belong to the struct. A field is a string, a number, a bool (1 is true), a struct, a
// [budget.Envelope] for a list of tokens and nano-dollars, a pointer to or a slice of
// any of these, a map[string]string for a hash, or any; with `reply:"name,json"` it is
// decoded from JSON. A name that the
// script did not send leaves its field as it is. A name without a field and a value
// of another shape are kept in Err. A nil value changes nothing. into can also point
// to a slice of such structs.
func (r *Reply) Decode(into any) { r.decodeField(r.Value, reflect.ValueOf(into).Elem()) }

// Scan reads a list without names into the variables that into points to, of the
// types that [Reply.Decode] knows. An element that is missing leaves its variable
// as it is.
func (r *Reply) Scan(list any, into ...any) {
	for i, value := range r.List(list) {
		if i == len(into) {
			r.Fail(fmt.Sprintf("at most %d elements", i), list)
			return
		}
		r.decodeField(value, reflect.ValueOf(into[i]).Elem())
	}
}

// replyField is a field of a struct that a reply is decoded into.
type replyField struct {
	index []int
	json  bool
}

// replyFields holds the fields of a struct type by their names in replies.
var replyFields sync.Map // reflect.Type -> map[string]replyField

func fieldsOf(t reflect.Type) map[string]replyField {
	if known, ok := replyFields.Load(t); ok {
		return known.(map[string]replyField)
	}
	fields := map[string]replyField{}
	for _, f := range reflect.VisibleFields(t) {
		name, option, _ := strings.Cut(cmp.Or(f.Tag.Get("reply"), f.Tag.Get("json")), ",")
		fields[name] = replyField{index: f.Index, json: option == "json"}
	}
	replyFields.Store(t, fields)
	return fields
}

func (r *Reply) decodeStruct(value any, into reflect.Value) {
	pairs := r.List(value)
	fields := fieldsOf(into.Type())
	for i := 0; i+1 < len(pairs); i += 2 {
		name := r.Text(pairs[i])
		f, known := fields[name]
		switch {
		case !known || name == "":
			r.Fail(fmt.Sprintf("a field of %s, not %q", into.Type(), name), pairs[i])
		case f.json:
			r.JSON(pairs[i+1], into.FieldByIndex(f.index).Addr().Interface())
		default:
			r.decodeField(pairs[i+1], into.FieldByIndex(f.index))
		}
	}
}

func (r *Reply) decodeField(value any, into reflect.Value) {
	if value == nil {
		return
	}
	switch into.Kind() {
	case reflect.String:
		into.SetString(r.Text(value))
	case reflect.Int, reflect.Int64:
		into.SetInt(r.Int(value))
	case reflect.Bool:
		into.SetBool(r.Int(value) == 1)
	case reflect.Interface:
		into.Set(reflect.ValueOf(value))
	case reflect.Map:
		into.Set(reflect.ValueOf(r.Hash(value)))
	case reflect.Struct:
		if amount, ok := into.Addr().Interface().(*budget.Envelope); ok {
			r.Scan(value, &amount.Tokens, &amount.USD)
			return
		}
		r.decodeStruct(value, into)
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		r.decodeField(value, into.Elem())
	case reflect.Slice:
		values := r.List(value)
		into.Set(reflect.MakeSlice(into.Type(), len(values), len(values)))
		for i, v := range values {
			r.decodeField(v, into.Index(i))
		}
	default:
		r.Fail("a value for a "+into.Type().String(), value)
	}
}
