package rfc16

import (
	"context"

	"github.com/picket-dev/picket/internal/conformance"
)

// Trial is one rule being held against the server, on a goroutine of its own.
// The first expectation that is not met ends it.
type Trial struct {
	*conformance.Trial
	s      *suite
	cfg    Config // with the thresholds of this try
	agents []*agent
	tasks  []string
	cursor string // position in the event log at which it began
}

// newTrial is a trial with agents and tasks. Nothing is proved when an agent may have been silent for
// longer than the rule meant it to be.
func (s *suite) newTrial(c *conformance.Trial) *Trial {
	t := &Trial{Trial: c, s: s, cfg: s.cfg.slower(c.Nth)}
	c.Clean = t.clean
	c.Doubt = func() {
		for _, a := range t.agents {
			a.checkNotSilent()
		}
	}
	return t
}

// clean takes away what the rule made and answers what it could not.
func (t *Trial) clean(ctx context.Context) (left []string) {
	for _, a := range t.agents {
		if !a.deregisterQuietly() {
			left = append(left, "agent "+a.id)
		}
	}
	for _, id := range t.tasks {
		a := t.s.Ask(ctx, operator, "POST", "/api/v1/tasks/"+id+"/cancel", fields{"reason": "conformance run"})
		if a.Status != 200 && a.Status != 409 {
			left = append(left, "task "+id)
		}
	}
	return left
}
