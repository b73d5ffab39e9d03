package conformance

import (
	"fmt"
	"time"
)

// Outcome is what became of a rule.
type Outcome string

// The outcomes of a rule.
const (
	Passed Outcome = "ok"
	Failed Outcome = "fail"
	NotRun Outcome = "not_run"
)

// Result is one rule with its outcome.
type Result struct {
	Section  string  `json:"section"`
	ID       string  `json:"id"`
	Text     string  `json:"text"`
	Settled  bool    `json:"settled"` // the document leaves it open; Picket's decision
	Outcome  Outcome `json:"outcome"`
	Expected string  `json:"expected,omitempty"`
	Got      string  `json:"got,omitempty"`
	Repeat   string  `json:"repeat,omitempty"` // the last request as a command line, its key as a variable
	Why      string  `json:"why,omitempty"`    // it was not run
	Millis   int64   `json:"elapsed_ms"`
	tooSlow  bool
}

// Report is a whole run.
type Report struct {
	Title   string   `json:"-"` // of the document
	URL     string   `json:"url"`
	Prefix  string   `json:"prefix"` // of every id of the run
	Started string   `json:"started_at"`
	Millis  int64    `json:"elapsed_ms"`
	Passed  int      `json:"passed"`
	Failed  int      `json:"failed"`
	NotRun  int      `json:"not_run"`
	Left    []string `json:"left"` // what could not be taken away again
	Results []Result `json:"results"`
}

// Summary is the run in one line.
func (r Report) Summary() string {
	return fmt.Sprintf("%s: %d rules, %d ok, %d failed, %d not run, in %s", r.Title, len(r.Results),
		r.Passed, r.Failed, r.NotRun, (time.Duration(r.Millis) * time.Millisecond).Round(100*time.Millisecond))
}

// Line names a result: its rule, and why it was not run.
func (r Result) Line() string {
	line := r.Section + " " + r.ID
	if r.Settled {
		line += " (settled)"
	}
	if r.Outcome == NotRun {
		line += ": " + r.Why
	}
	return line
}

// count counts the outcomes of the results.
func (r *Report) count() {
	for _, result := range r.Results {
		switch result.Outcome {
		case Passed:
			r.Passed++
		case Failed:
			r.Failed++
		default:
			r.NotRun++
		}
	}
}
