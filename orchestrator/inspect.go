package orchestrator

import (
	"context"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// The invariant scanner looks at the store in small steps, each one atomic, so
// it can run beside everything else and sees no half-made change.

// inspectBatch is how many entries one part of a pass looks at.
const inspectBatch = 250

var inspectCursorSyntax = lazyregexp.New(`^\d{1,2} \d{1,15} [^\x00-\x1f]{0,200}$`)

// Inspect holds the next part of the namespace against its invariants and, when
// asked, repairs what is safe to repair. A pass is over when Next is empty.
func (e *Engine) Inspect(ctx context.Context, by picket.Caller, req picket.InspectRequest) (picket.Inspection, error) {
	if req.Cursor != "" && !inspectCursorSyntax().MatchString(req.Cursor) {
		return picket.Inspection{},
			picket.Invalid("/cursor", "Send next of the part before, or leave it out.", "cursor is not one of ours")
	}
	return e.inspect(ctx, by.Actor, req.Repair, inspectBatch, "", req.Cursor)
}

// InspectNext looks at up to about limit live entries and as many of the
// archive, from where the last call of any process stopped, and repairs what is
// safe to repair.
func (e *Engine) InspectNext(ctx context.Context, limit int) error {
	for _, walk := range []string{"live", "rest"} {
		if _, err := e.inspect(ctx, "reaper", true, limit, walk, ""); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) inspect(ctx context.Context, actor string, repair bool, limit int,
	walk, cursor string) (picket.Inspection, error) {
	r := e.run(ctx, "inspect", actor, boolArg(repair), limit, walk, cursor)
	var found struct {
		Next     string `reply:"next"`
		Checked  int64  `reply:"checked"`
		Findings []struct {
			picket.Violation
			Told bool `reply:"told"` // an event was written
		} `reply:"findings"`
	}
	r.Decode(&found)
	part := picket.Inspection{Next: found.Next, Checked: found.Checked, Violations: []picket.Violation{}}
	for _, f := range found.Findings {
		part.Violations = append(part.Violations, f.Violation)
		e.reportViolation(ctx, f.Violation, f.Told)
	}
	return part, r.Err
}

// reportViolation counts and logs a violation. What is met again and again is counted and
// logged when its event is written; a repair is counted each time.
func (e *Engine) reportViolation(ctx context.Context, v picket.Violation, told bool) {
	if told || v.Repaired {
		e.violations.add(ViolationCount{Kind: v.Kind, Repaired: v.Repaired}, 1)
	}
	if told {
		e.log.ErrorContext(ctx, "an invariant was violated", "kind", v.Kind, "subject", v.Subject, "detail", v.Detail,
			"repaired", v.Repaired)
	}
}

// ViolationCount is how often this process met a kind of violation.
type ViolationCount struct {
	Kind     string
	Repaired bool
	Count    int64
}

// Violations counts what the scanner of this process found.
func (e *Engine) Violations() []ViolationCount {
	var out []ViolationCount
	for c, n := range e.violations.counts() {
		c.Count = n
		out = append(out, c)
	}
	return out
}
