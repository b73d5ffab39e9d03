package heartbeat

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// A Minute is a minute of the day on a wall clock, 0 to 1439.
type Minute int

// String writes HH:MM.
func (m Minute) String() string { return fmt.Sprintf("%02d:%02d", m/60, m%60) }

var clockTime = lazyregexp.New(`^([01][0-9]|2[0-3]):[0-5][0-9]$`)

// parseMinute reads HH:MM, 00:00 to 23:59.
func parseMinute(text string) (Minute, bool) {
	if !clockTime().MatchString(text) {
		return 0, false
	}
	digit := func(i int) Minute { return Minute(text[i] - '0') }
	return digit(0)*600 + digit(1)*60 + digit(3)*10 + digit(4), true
}

// A Window is the time of each day from the minute Start until before the minute End, on the wall
// clock of a time zone. If End is before Start, it goes over midnight.
//
// The wall clock alone counts. A minute that the zone skips when its clocks are set forward is in
// no window. A minute that comes twice when they are set back is in the window both times.
type Window struct {
	Timezone   string
	Start, End Minute // never equal
	zone       *time.Location
}

// NewWindow returns the window of an IANA name and two times HH:MM. A wrong name gives
// [CodeInvalidTimezone], and wrong times give [CodeInvalidTimeWindow].
func NewWindow(timezone, start, end string) (Window, Code) {
	zone, ok := location(timezone)
	if !ok {
		return Window{}, CodeInvalidTimezone
	}
	from, ok1 := parseMinute(start)
	to, ok2 := parseMinute(end)
	if !ok1 || !ok2 || from == to {
		return Window{}, CodeInvalidTimeWindow
	}
	return Window{Timezone: timezone, Start: from, End: to, zone: zone}, ""
}

// covers reports whether a second of the day on the wall clock is in the window.
func (w Window) covers(second int64) bool {
	minute := Minute(second / 60)
	if w.Start < w.End {
		return w.Start <= minute && minute < w.End
	}
	return w.Start <= minute || minute < w.End
}

// Windows are the hours in which wakes are allowed: those of the active windows together, or all if
// there are none, without those of the quiet windows.
type Windows struct {
	Active []Window
	Quiet  []Window
}

// Allows reports whether a wake is allowed at an instant.
func (w Windows) Allows(at picket.Instant) bool {
	second := seconds(at)
	return w.allows(func(window Window) bool { return window.covers(second.onWallClock(window.zone)) })
}

func (w Windows) allows(covers func(Window) bool) bool {
	return (len(w.Active) == 0 || slices.ContainsFunc(w.Active, covers)) && !slices.ContainsFunc(w.Quiet, covers)
}

// normalWindows sorts windows and drops those that are there twice.
func normalWindows(list []Window) []Window {
	slices.SortFunc(list, func(a, b Window) int {
		return cmp.Or(cmp.Compare(a.Timezone, b.Timezone), cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
	})
	return slices.CompactFunc(list, func(a, b Window) bool {
		return a.Timezone == b.Timezone && a.Start == b.Start && a.End == b.End
	})
}
