package orchestrator

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// fullSpec is the record of a specification in which all that a lease shows is set.
func fullSpec(t testing.TB) (specRecord, []byte) {
	t.Helper()
	n := 7
	trace := picket.ParseTrace([]string{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, []string{"a=b"})
	s := picket.TaskSpec{Title: "a <task>", Role: "builder", Needs: []string{"go"}, Priority: &n, TimeoutSeconds: &n,
		StallAfterSeconds: &n, OnExit: picket.OnExitComplete, Labels: map[string]string{"team": "a"}}
	if err := s.Normalize(); err != nil {
		t.Fatal(err)
	}
	record := specRecord{TaskSpec: s, Trace: trace, Client: &picket.ClientTask{ContextID: "c"}}
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	return record, text
}

// A lease shows each member of the specification as it was stored, and the members have the names and types of the
// record.
func TestALeaseShowsThePartOfTheSpecification(t *testing.T) {
	record, text := fullSpec(t)
	var part leaseSpec
	if err := json.Unmarshal(text, &part); err != nil {
		t.Fatal(err)
	}
	got, whole := reflect.ValueOf(part), reflect.ValueOf(record)
	for i := range got.NumField() {
		field := got.Type().Field(i)
		of, ok := whole.Type().FieldByName(field.Name)
		name, _, _ := strings.Cut(of.Tag.Get("json"), ",")
		if !ok || name != field.Tag.Get("json") || of.Type != field.Type {
			t.Errorf("%s is %v of a lease, and %v of the record", field.Name, field, of)
		}
		if got.Field(i).IsZero() {
			t.Errorf("%s is not set", field.Name)
		}
		if want := whole.FieldByName(field.Name); !reflect.DeepEqual(got.Field(i).Interface(), want.Interface()) {
			t.Errorf("%s is %v, want %v", field.Name, got.Field(i), want)
		}
	}
}

// BenchmarkReadSpec reads the specification of a task whole, and the part of it that a lease shows.
func BenchmarkReadSpec(b *testing.B) {
	_, text := fullSpec(b)
	b.Run("whole", func(b *testing.B) { readSpec[specRecord](b, text) })
	b.Run("lease", func(b *testing.B) { readSpec[leaseSpec](b, text) })
}

func readSpec[T any](b *testing.B, text []byte) {
	b.ReportAllocs()
	for b.Loop() {
		var v T
		if err := json.Unmarshal(text, &v); err != nil {
			b.Fatal(err)
		}
	}
}
