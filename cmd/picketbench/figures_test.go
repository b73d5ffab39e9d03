package main

import (
	"bytes"
	stdjson "encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestASideIsItsMedianAndSpread(t *testing.T) {
	s := sideOf("a", []sample{{Value: 100}, {Value: 140}, {Value: 110}})
	if s.Median != 110 || s.Spread != 0.364 || !s.Noisy {
		t.Errorf("got %+v", s)
	}
	s = sideOf("a", []sample{{Value: 100}, {Value: 104}, {Value: 102}, {Value: 101}})
	if s.Median != 101.5 || s.Noisy {
		t.Errorf("got %+v", s)
	}
}

func TestARatioOverOneIsInOurFavour(t *testing.T) {
	ours, theirs := side{Median: 200}, side{Median: 100}
	for c, want := range map[compare]float64{rate: 2, faster: 0.5, growth: 2} {
		if got := c.ratio(ours, theirs); got != want {
			t.Errorf("%s: got %v, want %v", c, got, want)
		}
	}
}

func TestGoalsOfEitherDirection(t *testing.T) {
	l := line{Ratio: 1.5, Unit: "ms", Sides: []side{{Median: 40}}}
	for _, c := range []struct {
		goal *goal
		met  bool
		text string
	}{
		{atLeast(1.5), true, "≥ x1.5"}, {atLeast(1.6), false, "≥ x1.6"},
		{atMost(1.2), false, "≤ x1.2"}, {atMost(2), true, "≤ x2"},
		{under(50), true, "≤ 50.0 ms"}, {under(5), false, "≤ 5 ms"},
		{over(10000), false, "≥ 10000 ms"},
	} {
		if l.met(c.goal) != c.met || c.goal.text(l.Unit) != c.text {
			t.Errorf("%+v: met %v, text %q", *c.goal, l.met(c.goal), c.goal.text(l.Unit))
		}
	}
	l.Must, l.Moonshot = atLeast(1.2), atLeast(5)
	if got := l.reached(); got != "must" {
		t.Errorf("reached %q, the must is", got)
	}
}

func TestThePageHasARowForEveryLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.jsonl")
	b := &bench{plan: plan{Rounds: 3, Tasks: 10, Workers: 2, Payload: 8}}
	b.add(line{
		Scenario: "life",
		Case:     "fsync off",
		Layer:    "engine",
		Unit:     "tasks/s",
		Must:     atLeast(1.5),
		Sides: []side{
			sideOf("picket", []sample{{Value: 300}, {Value: 310, More: map[string]float64{"redis µs a task": 11}},
				{Value: 320}}),
			sideOf("asynq", []sample{{Value: 100}, {Value: 150}, {Value: 155}}),
		},
	}, rate, "7.0")
	b.add(line{
		Scenario: "scripts",
		Case:     "10 tasks",
		Layer:    "script",
		Profile: []profile{
			{
				Script:   "renew",
				Micros:   23.5,
				Inside:   6.3,
				Nested:   7,
				Commands: map[string]float64{"hgetall": 2, "zadd": 1},
			}},
	}, rate, "7.0")
	if err := replaceFigures(file, "life", b.lines[:1]); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again replaces, it does not add
		if err := replaceFigures(file, "scripts", b.lines[1:]); err != nil {
			t.Fatal(err)
		}
	}
	var page bytes.Buffer
	if err := writePage(&page, file); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| life | fsync off | engine | picket (6 %) | asynq (37 %, noisy) | x2.07 |",
		"| renew | x1 | 27 % | 7 | hgetall 2, zadd 1 |",
	} {
		if strings.Count(page.String(), want) != 1 {
			t.Errorf("not once %q in\n%s", want, page.String())
		}
	}
}

// The page in the house is the one its figures give.
func TestThePageIsUpToDate(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	have, err := os.ReadFile(filepath.Join(docs, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := writePage(&want, filepath.Join(docs, "benchmarks.jsonl")); err != nil {
		t.Fatal(err)
	}
	if want.String() != string(have) {
		t.Error("docs/benchmarks.md is not what docs/benchmarks.jsonl gives: make benchdoc")
	}
}

// What a script calls is counted by Redis under the command's own name.
func TestScriptCallsAreCounted(t *testing.T) {
	info := "cmdstat_evalsha:calls=30,usec=9\r\ncmdstat_hset:calls=99,usec=9\r\ncmdstat_eval:calls=2,usec=1\r\n"
	if n := clientCalls(info); n != 32 {
		t.Errorf("counted %d calls, 32 were made", n)
	}
}

func TestAProfileSplitsAScriptFromWhatItCalls(t *testing.T) {
	got, err := readProfile("renew", map[string]count{
		"evalsha":          {calls: 9, micros: 190},
		"eval":             {calls: 1, micros: 10},
		"hgetall":          {calls: 20, micros: 30},
		"zadd":             {calls: 10, micros: 20},
		"config|resetstat": {calls: 1, micros: 70},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Calls != 10 || got.Micros != 20 || got.Nested != 3 || got.Inside != 5 || got.list() != "hgetall 2, zadd 1" {
		t.Errorf("got %+v: %s", got, got.list())
	}
	if _, err := readProfile("renew", map[string]count{"zadd": {calls: 1}}); err == nil {
		t.Error("a profile without a script call was taken")
	}
}

func TestOnlyKnownScenariosAreChosen(t *testing.T) {
	chosen, err := choose("life5,scripts")
	if err != nil || len(chosen) != 2 || chosen[0].name != "life5" || chosen[1].name != "scripts" {
		t.Errorf("chose %v, %v", chosen, err)
	}
	if _, err := choose("life,lief"); err == nil || !strings.Contains(err.Error(), "lief") {
		t.Errorf("an unknown scenario was taken: %v", err)
	}
	seen := map[string]bool{}
	for _, s := range scenarios() {
		if seen[s.name] || s.what == "" {
			t.Errorf("scenario %q twice or without its terms", s.name)
		}
		seen[s.name] = true
	}
}

func TestALineIsReadAsItWasWritten(t *testing.T) {
	l := line{
		Scenario: "life",
		Unit:     "tasks/s",
		Sides:    []side{sideOf("picket", []sample{{Value: 3}})},
		Better:   "less",
		Must:     atMost(1.2),
	}
	text, err := stdjson.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "figures.jsonl")
	if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	lines, err := readFigures(file)
	if err != nil || len(lines) != 1 || lines[0].Sides[0].Median != 3 ||
		lines[0].Better != "less" || lines[0].Must != nil {
		t.Errorf("read %+v, %v", lines, err)
	}
	if err := os.WriteFile(file, []byte(`{"scenario":"life","tasksPerSecond":3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readFigures(file); err == nil {
		t.Error("a line of another form was read as if it were one")
	}
}
