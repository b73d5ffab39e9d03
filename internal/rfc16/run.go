package rfc16

import (
	"github.com/picket-dev/picket/internal/conformance"
)

// slower is the configuration of a try: each has thresholds twice as long as the one before.
func (c Config) slower(try int) Config {
	for _, seconds := range []*int{&c.Interval, &c.Unhealthy, &c.Dead, &c.DrainTimeout} {
		*seconds <<= try - 1
	}
	return c
}

// missing says why a rule cannot be run; empty when it can.
func (s *suite) missing(r Rule) string {
	if r.Check == nil {
		return r.Why
	}
	for _, n := range needNames {
		if r.Needs&n.need != 0 && s.available&n.need == 0 {
			return s.why[n.need]
		}
	}
	return ""
}

// testCase is a rule for the runner.
func (s *suite) testCase(r Rule) conformance.Case {
	row := conformance.Row{Section: r.Section, ID: r.ID, Text: r.Text, Why: r.Why}
	if r.Needs&Settled != 0 {
		row.Needs = []string{"settled"}
	}
	return conformance.Case{Row: row, Missing: s.missing(r), Check: func(c *conformance.Trial) {
		t := s.newTrial(c)
		if r.Needs&Events != 0 {
			t.markLog()
		}
		r.Check(t)
	}}
}

// runShared runs a story, or waits for its end when another rule runs it.
func runShared[T any](t *Trial, name string, happen func(*Trial) T) T {
	return conformance.Shared(t.Trial, name, func(c *conformance.Trial) T { return happen(t.s.newTrial(c)) })
}
