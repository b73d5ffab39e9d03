package conformance

import (
	"reflect"
	"testing"
)

// A row has three cells. Other tables of the document are not rules.
func TestRowsOfADocument(t *testing.T) {
	rows := Rows("## 1.1 Fields\n| rule | what must hold | needs |\n|---|---|---|\n"+
		"| `id` | An id is there. |  |\n"+
		"| `name` | A name is there. *Not run: nobody looks.* | settled, events |\n"+
		"| other | two cells |\n", "Not run")
	want := []Row{
		{Section: "1.1", ID: "id", Text: "An id is there."},
		{Section: "1.1", ID: "name", Text: "A name is there.", Why: "nobody looks",
			Needs: []string{"settled", "events"}},
	}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("rows are %+v", rows)
	}
	if rows[0].Settled() || !rows[1].Settled() {
		t.Error("the mark settled is not read")
	}
}

// No secret is shown, in whatever form it comes.
func TestSecretsAreNotShown(t *testing.T) {
	s := &Server{Keys: map[KeyName]string{Owner: "my-own-key", Nobody: ""}}
	got := s.Redact("my-own-key pkk_default_x.y pkl_abc pks_abc")
	if want := "… pkk_… pkl_… pks_…"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
