package rig

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

const (
	soakLog   = "../../docs/soak.jsonl"
	proofPage = "../../docs/proof.md"
	soakHead  = "| suite | rounds | of | failed runs | minutes | days | seeds |\n|---|---|---|---|---|---|---|\n"
)

// The table of soak runs in docs/proof.md adds up the runs of docs/soak.jsonl with the functions of the last one.
func TestProofShowsTheSoakRuns(t *testing.T) {
	runs, err := readSoakRuns(soakLog)
	if err != nil {
		t.Fatal(err)
	}
	DocTable(t, proofPage, soakHead, soakTable(runs), *update, "soakdoc")
}

func readSoakRuns(path string) (all []SoakRun, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var run SoakRun
		if err := json.Unmarshal(lines.Bytes(), &run, json.RejectUnknownMembers(true)); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, run)
	}
	return all, lines.Err()
}

// soakTable adds the slices of each suite up. Slices of earlier scripts do not count.
func soakTable(runs []SoakRun) string {
	type total struct {
		rounds, of, failed, seconds int
		days, seeds                 []string
	}
	totals, suites := map[string]*total{}, []string{}
	for _, r := range runs {
		if r.Functions != runs[len(runs)-1].Functions {
			continue
		}
		s := totals[r.Suite]
		if s == nil {
			s = &total{}
			totals[r.Suite], suites = s, append(suites, r.Suite)
		}
		s.of = r.Of
		s.seconds += r.Seconds
		if r.Passed {
			s.rounds += r.Rounds
		} else {
			s.failed++
		}
		if !slices.Contains(s.days, r.Date) {
			s.days = append(s.days, r.Date)
		}
		s.seeds = append(s.seeds, r.Seeds...)
	}
	slices.Sort(suites)
	if len(suites) == 0 {
		return "| none yet | | | | | | |\n"
	}
	var table strings.Builder
	for _, name := range suites {
		s := totals[name]
		seeds := strings.Join(s.seeds[:min(len(s.seeds), 3)], ", ")
		if len(s.seeds) > 3 {
			seeds += fmt.Sprintf(" and %d more", len(s.seeds)-3)
		}
		fmt.Fprintf(&table, "| %s | %d | %d | %d | %d | %s | %s |\n", name, s.rounds, s.of, s.failed, (s.seconds+30)/60,
			strings.Join(s.days, ", "), seeds)
	}
	return table.String()
}

// A slice takes its share of a large count, rounded up, and is noted with what it was.
func TestASoakRunIsNoted(t *testing.T) {
	t.Setenv("PICKET_SOAK", "1/8")
	path := filepath.Join(t.TempDir(), "soak.jsonl")
	t.Setenv("PICKET_SOAK_LOG", path)
	t.Setenv("PICKET_SEED", "7")
	t.Run("slice", func(t *testing.T) {
		Seed(t)
		if n := SoakRounds(t, "a suite", 3, 20); n != 3 {
			t.Errorf("an eighth of 20 is %d", n)
		}
	})
	runs, err := readSoakRuns(path)
	if err != nil || len(runs) != 1 {
		t.Fatalf("%d runs are noted, %v", len(runs), err)
	}
	functions, err := FunctionsName()
	if err != nil {
		t.Fatal(err)
	}
	got := runs[0]
	if !got.Passed || got.Suite != "a suite" || got.Rounds != 3 || got.Of != 20 || got.Functions != functions ||
		!slices.Equal(got.Seeds, []string{"7"}) || got.Date == "" {
		t.Errorf("noted is %+v", got)
	}
	slice := SoakRun{Suite: "a suite", Passed: true, Rounds: 3, Of: 20, Seconds: 65, Functions: "new",
		Date: "2000-01-01", Seeds: []string{"1", "2"}}
	old, failed := slice, slice
	old.Functions, failed.Passed = "old", false
	table := soakTable([]SoakRun{old, slice, failed, slice})
	if want := "| a suite | 6 | 20 | 1 | 3 | 2000-01-01 | 1, 2, 1 and 3 more |\n"; table != want {
		t.Errorf("the table is %q, want %q", table, want)
	}
}

// A share that cannot be read is an error, and not a soak without rounds.
func TestASoakHasAShare(t *testing.T) {
	for _, text := range []string{"yes", "1/0", "1/", "8", "1/x"} {
		t.Setenv("PICKET_SOAK", text)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("PICKET_SOAK=%s is accepted", text)
				}
			}()
			Rounds(1, 2)
		}()
	}
}
