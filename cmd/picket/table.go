package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// column is one column of a table over values of type T.
type column[T any] struct {
	head string
	cell func(T) string
	wide bool // only with -o wide
	// dropOrder columns go where a terminal is too narrow, the highest first; 0 stays.
	dropOrder int
}

// printTable aligns columns by what the eye sees, not by bytes.
func printTable[T any](w io.Writer, columns []column[T], items []T, wide bool) {
	p := painter(w)
	if !wide {
		columns = slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.wide })
	}
	rows := [][]string{nil}
	var spare []int
	for _, c := range columns {
		rows[0] = append(rows[0], p.dim(c.head))
		spare = append(spare, c.dropOrder)
	}
	for _, item := range items {
		var row []string
		for _, c := range columns {
			row = append(row, p.state(oneLine(c.cell(item))))
		}
		rows = append(rows, row)
	}
	if most, limited := tableWidth(w); limited {
		if !wide {
			dropColumns(rows, spare, most)
		}
		fitWidth(rows, most)
	}
	printRows(w, rows)
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

func printRows(w io.Writer, rows [][]string) {
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
