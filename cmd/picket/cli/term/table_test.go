package term

import (
	"strings"
	"testing"
)

// A terminal that is too narrow loses columns, the most spare first, and never
// those that are not.
func TestColumnsAreDroppedInOrder(t *testing.T) {
	for wide, want := range map[int]string{
		80: "ID A B TEXT",
		28: "ID A B TEXT",
		27: "ID A TEXT",
		22: "ID A TEXT",
		21: "ID A",
		8:  "ID A",
		7:  "ID",
		1:  "ID",
	} {
		rows := [][]string{{"ID", "A", "B", "TEXT"}, {"idid", "12", "1234", strings.Repeat("x", 30)}}
		dropColumns(rows, []int{0, 1, 3, 2}, wide)
		if got := strings.Join(rows[0], " "); got != want || len(rows[1]) != len(rows[0]) {
			t.Errorf("%d columns: %s (%q), want %s", wide, got, rows[1], want)
		}
	}
	rows := [][]string{{"ID", "TEXT"}, {"idid", "text"}}
	if dropColumns(rows, []int{0, 0}, 5); len(rows[0]) != 2 {
		t.Errorf("a table without spare columns has lost one: %q", rows)
	}
}
