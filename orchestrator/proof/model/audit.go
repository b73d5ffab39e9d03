package model

import (
	"reflect"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// followAudit holds what the audit log has after a number against the events of
// the step.
func (x *machine) followAudit(after int64, events []picket.Event) {
	x.Helper()
	want := slices.DeleteFunc(slices.Clone(events), func(ev picket.Event) bool { return !kit.BelongsInAudit(ev) })
	page, err := x.e.Events(x.ctx, picket.EventQuery{After: after, Limit: 1000, Audit: true})
	x.ok(err)
	if len(page.Events)+len(want) > 0 && !reflect.DeepEqual(page.Events, want) {
		x.Fatalf("the audit log has\n%+v\nwant\n%+v", page.Events, want)
	}
}
