package heartbeat

import (
	"math"
	"slices"
	"time"

	"github.com/picket-dev/picket"
)

const day = 86_400 // seconds

// searchLimit is how far [Windows.Next] looks ahead, in seconds. The rules for clock changes
// repeat every year, at other days.
const searchLimit = 5 * 366 * day

// unixSecond is a second since the Unix epoch.
type unixSecond int64

// seconds is the second that an instant is in.
func seconds(at picket.Instant) unixSecond {
	return unixSecond(at / 1000)
}

// onWallClock is the second of the day on the wall clock of a zone.
func (s unixSecond) onWallClock(zone *time.Location) int64 {
	_, offset := time.Unix(int64(s), 0).In(zone).Zone()
	return s.withOffset(int64(offset))
}

func (s unixSecond) withOffset(offset int64) int64 { return modulo(int64(s)+offset, day) }

func modulo(a, b int64) int64 { return (a%b + b) % b }

// Next returns the first instant from the given one on at which a wake is allowed. If wakes are
// allowed at no time of the next five years, ok is false.
func (w Windows) Next(from picket.Instant) (next picket.Instant, ok bool) {
	if w.Allows(from) {
		return from, true
	}
	at := seconds(from)
	for end := at + searchLimit; at < end; {
		s := w.spanAt(at)
		if opening, ok := s.opening(at); ok {
			return picket.Instant(opening) * 1000, true
		}
		at = s.end
	}
	return 0, false
}

// span is a time in which no zone of the windows changes its clocks.
type span struct {
	Windows
	offsets map[*time.Location]int64
	end     unixSecond
}

func (w Windows) spanAt(at unixSecond) span {
	s := span{Windows: w, offsets: map[*time.Location]int64{}, end: math.MaxInt64}
	for _, window := range slices.Concat(w.Active, w.Quiet) {
		local := time.Unix(int64(at), 0).In(window.zone)
		_, offset := local.Zone()
		s.offsets[window.zone] = int64(offset)
		if _, end := local.ZoneBounds(); !end.IsZero() {
			s.end = min(s.end, unixSecond(end.Unix()))
		}
	}
	return s
}

// opening returns the first second of the span, from the given one on, at which a wake is allowed.
// Wakes become allowed only when a window begins or ends, and each does so once within a day.
func (s span) opening(from unixSecond) (unixSecond, bool) {
	candidates := []unixSecond{from}
	for _, w := range slices.Concat(s.Active, s.Quiet) {
		now := from.withOffset(s.offsets[w.zone])
		for _, edge := range []Minute{w.Start, w.End} {
			candidates = append(candidates, from+unixSecond(modulo(int64(edge)*60-now, day)))
		}
	}
	slices.Sort(candidates)
	for _, at := range candidates {
		covers := func(w Window) bool { return w.covers(at.withOffset(s.offsets[w.zone])) }
		if at < s.end && s.allows(covers) {
			return at, true
		}
	}
	return 0, false
}
