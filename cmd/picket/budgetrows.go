package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// envelopeRow is an envelope, how deep in the tree it stands, and what was spent
// and is held in it and below it.
type envelopeRow struct {
	picket.EnvelopeState `json:",inline"`
	depth                int
	spent                budget.Envelope
	held                 budget.Envelope
}

// envelopeRows are an envelope and those below it, or only the open ones of
// them. A closed one counts in those above it all the same.
func envelopeRows(e picket.EnvelopeState, depth int, open bool) []envelopeRow {
	if open && e.State == "closed" {
		return nil
	}
	rows := []envelopeRow{{EnvelopeState: e, depth: depth}}
	rows[0].spent, rows[0].held = spentAndHeld(e)
	for _, child := range e.Children {
		rows = append(rows, envelopeRows(child, depth+1, open)...)
	}
	return rows
}

// spentAndHeld is what was spent and is held in an envelope and below it: as the
// server counts it, or added up of what it shows.
func spentAndHeld(e picket.EnvelopeState) (spent, held budget.Envelope) {
	spent, held = e.Spent, e.Held
	for _, child := range e.Children {
		s, h := spentAndHeld(child)
		spent, held = spent.Add(s), held.Add(h)
	}
	if e.SpentInAll != nil {
		spent = *e.SpentInAll
	}
	return spent, held
}

func countEnvelopes(e picket.EnvelopeState) int {
	n := 1
	for _, child := range e.Children {
		n += countEnvelopes(child)
	}
	return n
}

func envelopeName(r envelopeRow) string { return r.ID }

var envelopeColumns = []term.Column[envelopeRow]{
	{Head: "ENVELOPE", Cell: func(r envelopeRow) string { return strings.Repeat("· ", r.depth) + r.ID }},
	{Head: "STATE", Cell: envelopeState, DropOrder: 3},
	{Head: "SPENT", Cell: func(r envelopeRow) string { return dollars(r.spent.USD) }, DropOrder: 2},
	{Head: "HELD", Cell: func(r envelopeRow) string { return dollars(r.held.USD) }, DropOrder: 4},
	{Head: "LEFT", Cell: leftText},
	{Head: "OF", Cell: func(r envelopeRow) string {
		return limitText(r, dollars(r.Envelope.USD), r.Envelope.USD >= budget.MaxMoney)
	}, DropOrder: 1},
	{Head: "TOKENS", Cell: func(r envelopeRow) string { return strconv.FormatInt(r.spent.Tokens, 10) }, DropOrder: 5},
	{Head: "OF", Cell: func(r envelopeRow) string {
		return limitText(r, strconv.FormatInt(r.Envelope.Tokens, 10), r.Envelope.Tokens >= budget.MaxTokens)
	}, DropOrder: 6},
	{Head: "CARVED", Cell: func(r envelopeRow) string { return dollars(r.Carved.USD) }, Wide: true},
	{Head: "HELD TOKENS", Cell: func(r envelopeRow) string { return strconv.FormatInt(r.held.Tokens, 10) }, Wide: true},
	{Head: "CALLS", Cell: func(r envelopeRow) string { return callsText(r.Calls) }, Wide: true},
}

// leftText is what new calls may still reserve: nothing in a closed envelope.
func leftText(r envelopeRow) string {
	if r.State == "closed" {
		return "-"
	}
	return limitText(r, dollars(r.Available.USD), r.Envelope.USD >= budget.MaxMoney)
}

// limitText is an amount that a day is limited to; one of all that can be
// counted is of a day which is limited only in the other dimension.
func limitText(r envelopeRow, text string, most bool) string {
	if most && strings.HasPrefix(r.ID, "house:") {
		return "no limit"
	}
	return text
}

// envelopeState is that of a task's envelope; a day's is never closed.
func envelopeState(r envelopeRow) string {
	state := r.State
	if strings.HasPrefix(r.ID, "house:") {
		state = "a day"
	}
	if r.Locked {
		state += ", locked"
	}
	return state
}

func callsText(calls []picket.OpenCall) string {
	var parts []string
	for _, c := range calls {
		parts = append(parts, fmt.Sprintf("%s %s for %s", term.OneLine(c.Tool), dollars(c.Reserved.USD),
			term.ShortDuration(time.Duration(c.DeadlineMs)*time.Millisecond)))
	}
	return strings.Join(parts, ", ")
}
