package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestASideIsItsMedianAndSpread(t *testing.T) {
	s := sideOf([]sample{{PerSecond: 100}, {PerSecond: 140}, {PerSecond: 110}})
	if s.Median != 110 || s.Spread != 0.364 || !s.Noisy {
		t.Errorf("got %+v", s)
	}
	if s := sideOf([]sample{{PerSecond: 100}, {PerSecond: 104}, {PerSecond: 102}, {PerSecond: 101}}); s.Median != 102 || s.Noisy {
		t.Errorf("got %+v", s)
	}
}

func TestThePageHasARowForEveryLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.jsonl")
	r := summarize(plan{Rounds: 3, Tasks: 10, Workers: 2, Payload: 8}, "life", "engine", "off", "7.0",
		[]sample{{300, 10, 3}, {310, 11, 3}, {320, 12, 3}}, []sample{{100, 20, 4}, {150, 21, 4}, {155, 22, 4}})
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(line, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := writePage(&page, file); err != nil {
		t.Fatal(err)
	}
	want := "| life | off | 310 (6 %) | 150 (37 %, noisy) | x2.07 | 11 / 21 | 3.00 / 4.00 |"
	if !strings.Contains(page.String(), want) {
		t.Errorf("no row %q in\n%s", want, page.String())
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

func TestScriptCallsAreCounted(t *testing.T) {
	info := "cmdstat_evalsha:calls=30,usec=9\r\ncmdstat_hset:calls=99,usec=9\r\ncmdstat_eval:calls=2,usec=1\r\n"
	if n := clientCalls(info); n != 32 {
		t.Errorf("counted %d calls, 32 were made", n)
	}
}
