package rig

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/orchestrator/lua"
)

// Soaking reports whether the random suites run their large counts. PICKET_SOAK asks for them: 1 for the whole
// counts, 1/8 for a slice of an eighth.
func Soaking() bool { return os.Getenv("PICKET_SOAK") != "" }

// soakSlices returns into how many slices PICKET_SOAK divides the large counts.
func soakSlices() int {
	text := os.Getenv("PICKET_SOAK")
	if text == "1" {
		return 1
	}
	n, err := strconv.Atoi(strings.TrimPrefix(text, "1/"))
	if err != nil || n < 1 || !strings.HasPrefix(text, "1/") {
		panic(fmt.Sprintf("PICKET_SOAK is %q; give 1 for the whole counts, or 1/8 for a slice of an eighth", text))
	}
	return n
}

// Rounds returns how many rounds a random suite runs. That is usual in `make test`, and soak, divided by the number of
// slices, in `make soak`. Under the race detector it is an eighth of usual, but at least one.
func Rounds(usual, soak int) int {
	switch {
	case Soaking():
		slices := soakSlices()
		return (soak + slices - 1) / slices
	case Race:
		return max(1, usual/8)
	}
	return usual
}

// OfToday reports whether case i of a list is one of today's, in a test that runs the list in so many shares: one each
// day. A soak runs all of them.
func OfToday(i, shares int) bool { return Soaking() || i%shares == Today%shares }

// Today is the day of the year, in UTC, on which the tests began.
var Today = time.Now().UTC().YearDay()

// SoakRun is a line of the file of soak runs: a suite that ran its large count, or a slice of it.
type SoakRun struct {
	Suite  string   `json:"suite"`
	Passed bool     `json:"passed"`
	Rounds int      `json:"rounds"` // that were asked for; a suite that fails may have ended before
	Of     int      `json:"of"`     // the large count
	Seeds  []string `json:"seeds"`  // empty: the suite has no seed of its own
	// Date is the day, in UTC, and Seconds how long the suite ran.
	Date    string `json:"date"`
	Seconds int    `json:"seconds"`
	// Functions is the name of the library of functions, which has a digest of their code.
	Functions string `json:"functions"`
}

// SoakRounds is Rounds for a suite whose large counts are kept: in a soak, the end of the test appends a [SoakRun] to
// the file that PICKET_SOAK_LOG names.
func SoakRounds(tb testing.TB, suite string, usual, soak int) int {
	tb.Helper()
	n := Rounds(usual, soak)
	if path := os.Getenv("PICKET_SOAK_LOG"); Soaking() && path != "" {
		began := time.Now()
		tb.Cleanup(func() {
			if tb.Skipped() {
				return
			}
			err := appendSoakRun(path, SoakRun{Suite: suite, Passed: !tb.Failed(), Rounds: n, Of: soak,
				Seeds: seedsUsed.of(tb.Name()), Date: time.Now().UTC().Format(time.DateOnly),
				Seconds: int(time.Since(began).Seconds())})
			if err != nil {
				tb.Errorf("the soak run cannot be noted: %v", err)
			}
		})
	}
	return n
}

func appendSoakRun(path string, run SoakRun) error {
	functions, err := FunctionsName()
	if err != nil {
		return err
	}
	run.Functions = functions
	line, err := json.Marshal(run)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// FunctionsName returns the name of the library of functions that the scripts make.
func FunctionsName() (string, error) {
	texts, err := lua.Read(lua.Files)
	if err != nil {
		return "", err
	}
	program, err := lua.NewProgram(texts)
	if err != nil {
		return "", err
	}
	return program.Library().Name, nil
}

// seedsUsed has the seeds of the tests of this process.
var seedsUsed = seeds{byTest: map[string][]string{}}

type seeds struct {
	mu     sync.Mutex
	byTest map[string][]string
}

// note adds a seed to those of a test.
func (s *seeds) note(test, seed string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byTest[test] = append(s.byTest[test], seed)
}

// of returns the seeds of a test and of its parts.
func (s *seeds) of(test string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []string{}
	for name, seeds := range s.byTest {
		if name == test || strings.HasPrefix(name, test+"/") {
			all = append(all, seeds...)
		}
	}
	return all
}
