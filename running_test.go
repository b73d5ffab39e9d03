package picket

import (
	"slices"
	"testing"

	"github.com/picket-dev/picket/budget"
)

func TestRunsThatNeedALookComeFirst(t *testing.T) {
	seconds, idle := 100, int64(5000)
	run := func(id string, change func(*LiveLease)) LiveLease {
		l := LiveLease{RunID: id, StartedAt: 1, ElapsedMs: 10_000, IdleMs: &idle, Granted: budget.Envelope{USD: 100}}
		change(&l)
		return l
	}
	silent := int64(9000)
	all := []LiveLease{
		run("started-later", func(l *LiveLease) { l.StartedAt = 2 }),
		run("calm", func(*LiveLease) {}),
		run("silent", func(l *LiveLease) { l.IdleMs = &silent }),
		run("never-called", func(l *LiveLease) { l.IdleMs = nil }),
		run("half-time", func(l *LiveLease) { l.TimeoutSeconds, l.ElapsedMs = &seconds, 50_000 }),
		run("spent", func(l *LiveLease) { l.Spent.USD, l.Held.USD, l.Carved.USD = 50, 20, 10 }),
		run("answered", func(l *LiveLease) { l.Nudge, l.LastReport = &Nudge{At: 5}, &ReportNote{At: 6} }),
		run("nudged", func(l *LiveLease) { l.Nudge, l.LastReport = &Nudge{At: 5}, &ReportNote{At: 5} }),
		run("no-envelope", func(l *LiveLease) { l.Granted, l.IdleMs = budget.Envelope{}, &silent }),
	}
	slices.SortFunc(all, CompareRunning)
	var order, look []string
	for _, l := range all {
		order = append(order, l.RunID)
		if l.NeedsALook() {
			look = append(look, l.RunID)
		}
	}
	want := []string{"nudged", "spent", "half-time", "never-called", "no-envelope", "silent", "answered", "calm",
		"started-later"}
	if !slices.Equal(order, want) {
		t.Errorf("got  %v\nwant %v", order, want)
	}
	if !slices.Equal(look, want[:2]) {
		t.Errorf("a look is needed at %v", look)
	}
}
