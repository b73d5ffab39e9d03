package conformance

import (
	"slices"
	"strings"
)

// Row is one row of a table of rules: a sentence, number, code or table row of the document.
type Row struct {
	Section string   // of the document: the first word of the heading above the table
	ID      string   // unique in the section
	Text    string   // what must hold, for a reader
	Why     string   // why the rule cannot be run; empty: it has a check
	Needs   []string // what the rule uses, and the mark settled
}

// Settled reports whether the document leaves the point open, and the rule is Picket's decision.
func (r Row) Settled() bool { return slices.Contains(r.Needs, "settled") }

// Rows reads the rules of a document in Markdown. A row has three cells: the rule, what must hold, and what
// the rule needs. A sentence in italics that begins with notRun says why the rule cannot be run.
func Rows(document, notRun string) (rows []Row) {
	section := ""
	for line := range strings.Lines(document) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section, _, _ = strings.Cut(strings.TrimSpace(title), " ")
		}
		row, ok := strings.CutPrefix(line, "| `")
		cells := strings.Split(row, " | ")
		if !ok || len(cells) != 3 {
			continue
		}
		r := Row{Section: section, ID: strings.TrimSuffix(cells[0], "`")}
		r.Text, r.Why, _ = strings.Cut(cells[1], " *"+notRun+": ")
		r.Why = strings.TrimSuffix(r.Why, ".*")
		for need := range strings.SplitSeq(strings.TrimSpace(strings.TrimSuffix(cells[2], " |\n")), ", ") {
			if need != "" {
				r.Needs = append(r.Needs, need)
			}
		}
		rows = append(rows, r)
	}
	return rows
}
