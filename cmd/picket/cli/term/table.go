package term

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Column is one column of a table over values of type T.
type Column[T any] struct {
	Head string
	Cell func(T) string
	Wide bool // only with -o wide
	// DropOrder columns go where a terminal is too narrow, the highest first; 0 stays.
	DropOrder int
	// Alert tells whether a cell is painted as one that needs a look; nil: never.
	Alert func(T) bool
}

// PrintTable aligns columns by what the eye sees, not by bytes.
func PrintTable[T any](w io.Writer, columns []Column[T], items []T, wide bool) {
	p := Painter(w)
	if !wide {
		columns = slices.DeleteFunc(slices.Clone(columns), func(c Column[T]) bool { return c.Wide })
	}
	rows := [][]string{nil}
	var spare []int
	for _, c := range columns {
		rows[0] = append(rows[0], p.Dim(c.Head))
		spare = append(spare, c.DropOrder)
	}
	for _, item := range items {
		var row []string
		for _, c := range columns {
			cell := OneLine(c.Cell(item))
			if c.Alert != nil && c.Alert(item) {
				row = append(row, p.Bad(cell))
				continue
			}
			row = append(row, p.State(cell))
		}
		rows = append(rows, row)
	}
	if most, limited := tableWidth(w); limited {
		if !wide {
			dropColumns(rows, spare, most)
		}
		fitWidth(rows, most)
	}
	PrintRows(w, rows)
}

// dropColumns takes out spare columns until the others fit into a width, the last
// one shortened.
func dropColumns(rows [][]string, spare []int, wide int) {
	for {
		widths := widthsOf(rows)
		last, need := len(widths)-1, 0
		for _, n := range widths[:last] {
			need += n + 2
		}
		most := slices.Max(spare)
		if need+min(widths[last], minColumnWidth) <= wide || most == 0 {
			return
		}
		at := slices.Index(spare, most)
		spare = slices.Delete(spare, at, at+1)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], at, at+1)
		}
	}
}

// widthsOf is how wide each column is, as the eye sees it.
func widthsOf(rows [][]string) []int {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], ansi.StringWidth(cell))
		}
	}
	return widths
}

// fitWidth shortens the last column, which is the one with the most text, to a width.
func fitWidth(rows [][]string, wide int) {
	widths := widthsOf(rows)
	last := len(rows[0]) - 1
	for i := range last {
		wide -= widths[i] + 2
	}
	for _, row := range rows {
		row[last] = ansi.Truncate(row[last], max(wide, minColumnWidth), "…")
	}
}

// minColumnWidth is what a column keeps on a terminal that is too narrow for it.
const minColumnWidth = 12

// PrintRows aligns rows of cells, two blanks between the columns.
func PrintRows(w io.Writer, rows [][]string) {
	widths := widthsOf(rows)
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-ansi.StringWidth(cell)+2))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// Description shows one thing as a person reads it: a name and a text in each line.
type Description struct {
	Paint
	w    io.Writer
	rows [][]string
}

// NewDescription begins a description that is printed to a stream.
func NewDescription(w io.Writer) *Description { return &Description{Paint: Painter(w), w: w} }

// Add adds a line if there is a text.
func (d *Description) Add(name, text string) {
	if text != "" && text != "-" {
		d.Row(name, text)
	}
}

// Row adds a line, whatever its text is.
func (d *Description) Row(name, text string) { d.rows = append(d.rows, []string{d.Dim(name), text}) }

// Print prints what was added.
func (d *Description) Print() { PrintRows(d.w, d.rows) }
