package orchestrator

import (
	"context"
	"regexp"
	"sync"

	"github.com/picket-dev/picket"
)

// The invariant scanner looks at the store in small steps, each one atomic, so
// it can run beside everything else and sees no half-made change.

// inspectBatch is how many entries one part of a pass looks at.
const inspectBatch = 250

var inspectCursorSyntax = regexp.MustCompile(`^\d{1,2} \d{1,15} [^\x00-\x1f]{0,200}$`)

// Inspect holds the next part of the namespace against its invariants and, when
// asked, repairs what is safe to repair. A pass is over when Next is empty.
func (e *Engine) Inspect(ctx context.Context, by picket.Caller, req picket.InspectRequest) (picket.Inspection, error) {
	if req.Cursor != "" && !inspectCursorSyntax.MatchString(req.Cursor) {
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
	flag := "0"
	if repair {
		flag = "1"
	}
	got, err := e.run(ctx, "inspect", actor, flag, limit, walk, cursor)
	if err != nil {
		return picket.Inspection{}, err
	}
	r := newReply("inspect")
	l := r.List(got)
	part := picket.Inspection{Next: r.Text(r.At(l, 0)), Checked: r.Int(r.At(l, 1)), Violations: []picket.Violation{}}
	if r.Err != nil {
		return part, r.Err
	}
	for _, row := range l[2:] {
		f := r.List(row)
		v := picket.Violation{
			Kind:     r.Text(r.At(f, 0)),
			Subject:  r.Text(r.At(f, 1)),
			Detail:   r.Text(r.At(f, 2)),
			Repaired: r.Int(r.At(f, 3)) == 1,
		}
		part.Violations = append(part.Violations, v)
		e.reportViolation(ctx, v, r.Int(r.At(f, 4)) == 1)
	}
	return part, r.Err
}

// reportViolation counts and logs a violation. What is met again and again is counted and
// logged when its event is written; a repair is counted each time.
func (e *Engine) reportViolation(ctx context.Context, v picket.Violation, told bool) {
	if told || v.Repaired {
		e.violations.add(v.Kind, v.Repaired)
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
	e.violations.mu.Lock()
	defer e.violations.mu.Unlock()
	out := make([]ViolationCount, 0, len(e.violations.n))
	for c, n := range e.violations.n {
		c.Count = n
		out = append(out, c)
	}
	return out
}

// violationCounters counts by kind and repaired; Count is 0 in the keys.
type violationCounters struct {
	mu sync.Mutex
	n  map[ViolationCount]int64
}

func (c *violationCounters) add(kind string, repaired bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[ViolationCount]int64{}
	}
	c.n[ViolationCount{Kind: kind, Repaired: repaired}]++
}
