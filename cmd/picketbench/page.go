package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

const pageHead = `<!-- Made by "make bench" from benchmarks.jsonl. Do not edit. -->
# Benchmarks
Each row of this page compares two sides on one machine: Picket with another program, or Picket with itself in another state. The ratios hold for
that machine at that time, and promise nothing about yours. Rows of different dates are from different versions of Picket: see
[Measured](#measured). Run ` + "`make bench`" + ` to get your own, or ` + "`make bench ONLY=life`" + ` for one scenario. The figures behind the ratios are in
[benchmarks.jsonl](benchmarks.jsonl).

` + "`cmd/picketbench`" + ` starts servers of its own on unix sockets. Both sides of a row run in one process, in turn (A, B, A, B, …), after
one round each that does not count. The figure of a side is the median of its rounds. Behind each side stands its spread,
(largest - smallest) / median. A side marked *noisy* had a spread over 30 %, so its ratio is only a hint. Layer *engine* calls the Go API. Layer
*http* goes through the control plane and the tool proxy on a loopback port. Layer *script* is the time that Redis itself spent.

The column *better* tells how to read a ratio. *more*: in the same time, the first side does so many times as much as the second side, or it needs so
many times less time. *less*: the first side needs so many times as much time, memory or commands as the second side, so x1 means that both need the same.
`

// writePage writes docs/benchmarks.md from a file of JSON lines.
func writePage(w io.Writer, path string) error {
	lines, err := readFigures(path)
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		return fmt.Errorf("%s holds no figures: run make bench", path)
	}
	var page strings.Builder
	page.WriteString(pageHead)
	writeTable(&page, lines)
	writeTerms(&page, lines)
	writeProfile(&page, lines)
	writeMachine(&page, lines)
	_, err = io.WriteString(w, page.String())
	return err
}

func writeTable(page *strings.Builder, lines []line) {
	page.WriteString("\n| scenario | case | layer | first side | second side | ratio | better |\n|---|---|---|---|---|---|---|\n")
	for _, l := range lines {
		switch {
		case l.LeftOut != "":
			fmt.Fprintf(page, "| %s | %s | %s | left out: %s | | | |\n", l.Scenario, l.Case, l.Layer, l.LeftOut)
		case len(l.Sides) > 1:
			fmt.Fprintf(page, "| %s | %s | %s | %s | %s | x%s | %s |\n", l.Scenario, l.Case, l.Layer, l.Sides[0].spread(),
				l.Sides[1].spread(), figure(l.Ratio), l.Better)
		}
	}
}

// reached is the highest goal that a line reaches.
func (l line) reached() string {
	switch {
	case l.Must == nil && l.Moonshot == nil:
		return "-"
	case l.Moonshot != nil && l.met(l.Moonshot):
		return "moonshot"
	case l.Must != nil && l.met(l.Must):
		return "must"
	}
	return "**no**"
}

// writeTerms describes how each scenario is measured.
func writeTerms(page *strings.Builder, lines []line) {
	page.WriteString("\n## What is measured\n")
	for _, s := range scenarios() {
		if slices.ContainsFunc(lines, func(l line) bool { return l.Scenario == s.name }) {
			fmt.Fprintf(page, "- **%s**: %s\n", s.name, s.what)
		}
	}
}

// writeProfile compares each script with the shortest one, which is the first
// row of a profile.
func writeProfile(page *strings.Builder, lines []line) {
	for _, l := range lines {
		if len(l.Profile) == 0 {
			continue
		}
		bare := l.Profile[0]
		fmt.Fprintf(page, "\n## What a script costs Redis (%s)\nThe time of each script as a multiple of `%s`.\n\n", l.Case,
			bare.Script)
		page.WriteString("| script | time | part in nested calls | nested calls | which |\n|---|---|---|---|---|\n")
		for _, p := range l.Profile {
			fmt.Fprintf(page, "| %s | x%s | %.0f %% | %s | %s |\n", p.Script, figure(round(p.Micros/bare.Micros, 1)),
				100*p.Inside/p.Micros, figure(p.Nested), p.list())
		}
	}
}

// writeMachine describes where and with what the figures were made, once for
// each way in which the lines differ.
func writeMachine(page *strings.Builder, lines []line) {
	page.WriteString("\n## Measured\n")
	var order []string
	made := map[string][]string{}
	for _, l := range lines {
		m := l.Machine
		var peers []string
		for _, name := range slices.Sorted(maps.Keys(m.Peers)) {
			peers = append(peers, name+" "+m.Peers[name])
		}
		quick := ""
		if l.Plan.Quick {
			quick = " **with -quick: small sizes, not to be quoted**"
		}
		text := fmt.Sprintf("%s: %d rounds, %d tasks a round, %d workers, %d bytes of payload%s; Redis %s, %s, %s; %d processors, shared by the servers, both sides and all other programs",
			m.Date, l.Plan.Rounds, l.Plan.Tasks, l.Plan.Workers, l.Plan.Payload, quick, m.Redis, m.Go,
			strings.Join(peers, ", "), m.CPUs)
		if made[text] == nil {
			order = append(order, text)
		}
		if !slices.Contains(made[text], l.Scenario) {
			made[text] = append(made[text], l.Scenario)
		}
	}
	for _, text := range order {
		fmt.Fprintf(page, "- %s (%s).\n", text, strings.Join(made[text], ", "))
	}
}
