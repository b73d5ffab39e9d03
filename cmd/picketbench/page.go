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
Ratios of one run on one machine. They say how two programs compare there and then, and promise nothing about yours: run
` + "`make bench`" + ` to get your own, ` + "`make bench ONLY=life`" + ` for one scenario.

` + "`cmd/picketbench`" +
	` starts servers of its own on unix sockets. Both sides of a row run in one process, in turn (A, B, A, B, …), after
one round each that does not count. A figure is the median of the rounds; in brackets is its spread, (largest - smallest) / median.
A side marked *noisy* had a spread over 30 %: read it as a hint only. Layer *engine* calls the Go API, *http* goes through the
control plane and the tool proxy on a loopback port, *script* is the time Redis itself spent.

The ratio is of rates, first side over second; of times, how many times shorter the first side is; where one side is the same thing in
a larger store, how many times longer it takes there, so x1 is flat. *must* is what Picket sets itself, *moonshot* what it would like.
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
	page.WriteString("\n| scenario | case | layer | first side | second side | unit | ratio | must | moonshot | reached |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, l := range lines {
		switch {
		case l.LeftOut != "":
			fmt.Fprintf(page, "| %s | %s | %s | left out: %s | | | | %s | %s | - |\n", l.Scenario, l.Case, l.Layer,
				l.LeftOut, l.Must.text(l.Unit), l.Moonshot.text(l.Unit))
		case len(l.Sides) > 1:
			a, b := l.Sides[0], l.Sides[1]
			fmt.Fprintf(page, "| %s | %s | %s | %s %s | %s %s | %s | x%s | %s | %s | %s |\n", l.Scenario, l.Case,
				l.Layer,
				a.Name, a, b.Name, b, l.Unit, figure(l.Ratio), l.Must.text(l.Unit), l.Moonshot.text(l.Unit),
				l.reached())
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

// writeTerms says of every scenario how it is measured, and what was seen
// beside its figures.
func writeTerms(page *strings.Builder, lines []line) {
	page.WriteString("\n## On what terms\n")
	for _, s := range scenarios() {
		if !slices.ContainsFunc(lines, func(l line) bool { return l.Scenario == s.name }) {
			continue
		}
		fmt.Fprintf(page, "- **%s**: %s\n", s.name, s.what)
		for _, l := range lines {
			if l.Scenario == s.name {
				writeBeside(page, l)
			}
		}
	}
}

func writeBeside(page *strings.Builder, l line) {
	var sides []string
	for _, s := range l.Sides {
		near := s.near()
		var more []string
		for _, name := range slices.Sorted(maps.Keys(near.More)) {
			more = append(more, name+" "+figure(near.More[name]))
		}
		if len(more) > 0 {
			sides = append(sides, s.Name+" "+strings.Join(more, ", "))
		}
	}
	if len(sides) > 0 {
		fmt.Fprintf(page, "  - %s: %s\n", l.Case, strings.Join(sides, "; "))
	}
}

func writeProfile(page *strings.Builder, lines []line) {
	for _, l := range lines {
		if len(l.Profile) == 0 {
			continue
		}
		fmt.Fprintf(page, "\n## What a script costs Redis (%s)\n", l.Case)
		page.WriteString("| script | µs a call | of them in nested calls | nested calls | which |\n|---|---|---|---|---|\n")
		for _, p := range l.Profile {
			fmt.Fprintf(page, "| %s | %s | %s | %s | %s |\n", p.Script, figure(p.Micros), figure(p.Inside),
				figure(p.Nested), p.list())
		}
		fmt.Fprintf(page,
			"\nOver these rows, Lua takes %s µs for every command that a script calls, beside what the command itself takes.\n", figure(luaPerCall(l.Profile)))
	}
}

// writeMachine says where and with what the figures were made, once for each
// way in which the lines differ.
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
		text := fmt.Sprintf("%s: %d rounds, %d tasks a round, %d workers, %d bytes of payload%s; Redis %s, %s, %s; %d processors shared by the servers, both sides and whatever else ran",
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

// luaPerCall is what scripts take outside the commands they call, in µs a
// command: making the call, reading its reply, and the script's own work.
func luaPerCall(rows []profile) float64 {
	var rest, calls float64
	for _, p := range rows {
		if p.Nested > 0 { // the bare script calls nothing
			rest += p.Micros - p.Inside
			calls += p.Nested
		}
	}
	if calls == 0 {
		return 0
	}
	return round(rest/calls, 1)
}
