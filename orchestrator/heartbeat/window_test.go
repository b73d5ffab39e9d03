package heartbeat

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

func instant(t testing.TB, text string) picket.Instant {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return picket.InstantOf(at)
}

// window reads "Europe/Berlin 08:00-20:00".
func window(t testing.TB, text string) Window {
	t.Helper()
	zone, hours, _ := strings.Cut(text, " ")
	start, end, _ := strings.Cut(hours, "-")
	w, code := NewWindow(zone, start, end)
	if code != "" {
		t.Fatalf("window %s: %s", text, code)
	}
	return w
}

// hours reads windows that are separated by commas.
func hours(t testing.TB, active, quiet string) (w Windows) {
	t.Helper()
	for text := range strings.SplitSeq(active, ", ") {
		if text != "" {
			w.Active = append(w.Active, window(t, text))
		}
	}
	for text := range strings.SplitSeq(quiet, ", ") {
		if text != "" {
			w.Quiet = append(w.Quiet, window(t, text))
		}
	}
	return w
}

func TestWindowsThatCannotBeMade(t *testing.T) {
	for _, c := range []struct {
		timezone, start, end string
		want                 Code
	}{
		{"Mars/Olympus", "08:00", "09:00", CodeInvalidTimezone},
		{"UTC", "08:00", "8:00", CodeInvalidTimeWindow},
		{"UTC", "24:00", "08:00", CodeInvalidTimeWindow},
		{"UTC", "08:00", "08:00", CodeInvalidTimeWindow},
	} {
		if w, code := NewWindow(c.timezone, c.start, c.end); code != c.want || w != (Window{}) {
			t.Errorf("%+v gives %+v, %s", c, w, code)
		}
	}
}

// A window is half open: its first minute is in it, its last one is not.
func TestWindowsAreHalfOpen(t *testing.T) {
	for _, c := range []struct {
		active, quiet, at string
		want              bool
	}{
		{"", "", "2026-05-01T00:00:00Z", true},
		{"UTC 08:00-20:00", "", "2026-05-01T07:59:59Z", false},
		{"UTC 08:00-20:00", "", "2026-05-01T08:00:00Z", true},
		{"UTC 08:00-20:00", "", "2026-05-01T19:59:59Z", true},
		{"UTC 08:00-20:00", "", "2026-05-01T20:00:00Z", false},
		{"UTC 22:00-06:00", "", "2026-05-01T21:59:59Z", false},
		{"UTC 22:00-06:00", "", "2026-05-01T22:00:00Z", true},
		{"UTC 22:00-06:00", "", "2026-05-01T23:59:59Z", true},
		{"UTC 22:00-06:00", "", "2026-05-01T00:00:00Z", true},
		{"UTC 22:00-06:00", "", "2026-05-01T06:00:00Z", false},
		{"UTC 23:59-00:00", "", "2026-05-01T23:59:30Z", true},
		{"UTC 23:59-00:00", "", "2026-05-01T00:00:00Z", false},
		{"UTC 00:00-23:59", "", "2026-05-01T23:59:00Z", false},
		{"", "UTC 22:00-06:00", "2026-05-01T22:00:00Z", false},
		{"", "UTC 22:00-06:00", "2026-05-01T06:00:00Z", true},
		{"UTC 08:00-09:00, UTC 10:00-11:00", "", "2026-05-01T08:30:00Z", true},
		{"UTC 08:00-09:00, UTC 10:00-11:00", "", "2026-05-01T09:30:00Z", false},
		{"UTC 08:00-09:00, UTC 08:30-11:00", "UTC 08:45-10:00, UTC 10:15-10:30", "2026-05-01T08:44:00Z", true},
		{"UTC 08:00-09:00, UTC 08:30-11:00", "UTC 08:45-10:00, UTC 10:15-10:30", "2026-05-01T08:45:00Z", false},
		{"UTC 08:00-09:00, UTC 08:30-11:00", "UTC 08:45-10:00, UTC 10:15-10:30", "2026-05-01T10:00:00Z", true},
		{"America/Sao_Paulo 08:00-20:00", "", "2026-05-01T10:59:00Z", false},
		{"America/Sao_Paulo 08:00-20:00", "", "2026-05-01T11:00:00Z", true},
		{"Asia/Kathmandu 08:00-20:00", "", "2026-05-01T02:14:59Z", false},
		{"Asia/Kathmandu 08:00-20:00", "", "2026-05-01T02:15:00Z", true},
	} {
		if got := hours(t, c.active, c.quiet).Allows(instant(t, c.at)); got != c.want {
			t.Errorf("active %q, quiet %q at %s: %v", c.active, c.quiet, c.at, got)
		}
	}
}

// allowedIn lists the times of a UTC day and the night after it in which wakes are allowed.
func allowedIn(t *testing.T, w Windows, from, to string) string {
	t.Helper()
	var spans []string
	last := false
	for at := instant(t, from); at <= instant(t, to); at += 60_000 {
		allowed := w.Allows(at) && at < instant(t, to)
		if allowed != last {
			spans = append(spans, at.Time().Format("02T15:04"))
		}
		last = allowed
	}
	return strings.Join(spans, " ")
}

// Only the wall clock counts. A minute that is skipped is in no window. One that comes twice is in the
// window both times. The times were worked out by hand from the days on which the clocks change.
func TestClockChanges(t *testing.T) {
	const (
		berlinSpring = "2026-03-28T23:00:00Z 2026-03-29T22:00:00Z" // at 01:00Z from 02:00 to 03:00
		berlinAutumn = "2026-10-24T22:00:00Z 2026-10-25T23:00:00Z" // at 01:00Z from 03:00 to 02:00
		yorkSpring   = "2026-03-08T05:00:00Z 2026-03-09T04:00:00Z" // at 07:00Z from 02:00 to 03:00
		yorkAutumn   = "2026-11-01T04:00:00Z 2026-11-02T05:00:00Z" // at 06:00Z from 02:00 to 01:00
	)
	for _, c := range []struct{ window, day, want string }{
		{"Europe/Berlin 02:15-02:45", berlinSpring, ""},
		{"Europe/Berlin 02:00-03:00", berlinSpring, ""},
		{"Europe/Berlin 01:30-03:30", berlinSpring, "29T00:30 29T01:30"},
		{"Europe/Berlin 01:30-02:30", berlinSpring, "29T00:30 29T01:00"},
		{"Europe/Berlin 02:30-03:30", berlinSpring, "29T01:00 29T01:30"},
		{"Europe/Berlin 22:00-08:00", berlinSpring, "28T23:00 29T06:00 29T20:00 29T22:00"},
		{"Europe/Berlin 08:00-20:00", berlinSpring, "29T06:00 29T18:00"},
		{"Europe/Berlin 02:15-02:45", berlinAutumn, "25T00:15 25T00:45 25T01:15 25T01:45"},
		{"Europe/Berlin 01:30-02:30", berlinAutumn, "24T23:30 25T00:30 25T01:00 25T01:30"},
		{"Europe/Berlin 02:30-03:30", berlinAutumn, "25T00:30 25T01:00 25T01:30 25T02:30"},
		{"Europe/Berlin 01:30-03:30", berlinAutumn, "24T23:30 25T02:30"},
		{"Europe/Berlin 22:00-08:00", berlinAutumn, "24T22:00 25T07:00 25T21:00 25T23:00"},
		{"America/New_York 02:15-02:45", yorkSpring, ""},
		{"America/New_York 01:30-03:30", yorkSpring, "08T06:30 08T07:30"},
		{"America/New_York 02:30-03:30", yorkSpring, "08T07:00 08T07:30"},
		{"America/New_York 22:00-08:00", yorkSpring, "08T05:00 08T12:00 09T02:00 09T04:00"},
		{"America/New_York 01:15-01:45", yorkAutumn, "01T05:15 01T05:45 01T06:15 01T06:45"},
		{"America/New_York 00:30-01:30", yorkAutumn, "01T04:30 01T05:30 01T06:00 01T06:30"},
		{"America/New_York 01:30-02:30", yorkAutumn, "01T05:30 01T06:00 01T06:30 01T07:30"},
		{"America/New_York 08:00-20:00", yorkAutumn, "01T13:00 02T01:00"},
	} {
		from, to, _ := strings.Cut(c.day, " ")
		if got := allowedIn(t, hours(t, c.window, ""), from, to); got != c.want {
			t.Errorf("%s: allowed %s, want %s", c.window, got, c.want)
		}
	}
}

// The next instant is exact, also over clock changes and between zones that change on other days.
func TestNextAllowedInstant(t *testing.T) {
	const never = "never"
	for _, c := range []struct{ active, quiet, from, want string }{
		{"", "", "2026-05-01T00:00:00Z", "2026-05-01T00:00:00Z"},
		{"UTC 08:00-20:00", "", "2026-05-01T08:00:30Z", "2026-05-01T08:00:30Z"},
		{"UTC 08:00-20:00", "", "2026-05-01T07:59:59Z", "2026-05-01T08:00:00Z"},
		{"UTC 08:00-20:00", "", "2026-05-01T20:00:00Z", "2026-05-02T08:00:00Z"},
		{"", "UTC 22:00-08:00", "2026-12-31T23:00:00Z", "2027-01-01T08:00:00Z"},
		{"UTC 08:00-20:00", "UTC 07:00-09:30, UTC 09:00-10:00", "2026-05-01T00:00:00Z", "2026-05-01T10:00:00Z"},
		{"UTC 08:00-20:00", "UTC 08:00-20:00", "2026-05-01T00:00:00Z", never},
		{"Europe/Berlin 08:00-09:00", "Europe/Berlin 07:00-10:00", "2026-05-01T00:00:00Z", never},
		{"", "UTC 00:00-12:00, UTC 12:00-00:00", "2026-05-01T00:00:00Z", never},
		{"", "UTC 00:00-23:59", "2026-05-01T00:00:00Z", "2026-05-01T23:59:00Z"},
		{"Europe/Berlin 02:15-02:45", "", "2026-03-28T01:45:00Z", "2026-03-30T00:15:00Z"},
		{"Europe/Berlin 02:15-02:45", "", "2026-03-29T00:59:59Z", "2026-03-30T00:15:00Z"},
		{"Europe/Berlin 02:30-03:30", "", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin 02:15-02:45", "", "2026-10-25T00:45:00Z", "2026-10-25T01:15:00Z"},
		{"Europe/Berlin 01:30-02:30", "", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z"},
		{"", "Europe/Berlin 02:00-03:00", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"},
		{"", "America/New_York 01:00-02:00", "2026-11-01T05:00:00Z", "2026-11-01T07:00:00Z"},
		{"America/New_York 02:15-02:45", "", "2026-03-08T00:00:00Z", "2026-03-09T06:15:00Z"},
		// Berlin is six hours ahead of New York, and five in some weeks of the year.
		{"Europe/Berlin 08:00-09:00", "America/New_York 02:00-03:00", "2026-01-01T00:00:00Z", "2026-03-08T07:00:00Z"},
		{"Europe/Berlin 08:00-09:00", "America/New_York 02:00-03:00", "2026-03-29T00:00:00Z", "2026-10-25T07:00:00Z"},
		{"Europe/Berlin 08:00-09:00", "America/New_York 02:00-03:00", "2026-11-01T00:00:00Z", "2027-03-14T07:00:00Z"},
	} {
		next, ok := hours(t, c.active, c.quiet).Next(instant(t, c.from))
		got := never
		if ok {
			got = next.Time().Format(time.RFC3339)
		}
		if got != c.want {
			t.Errorf("active %q, quiet %q from %s: next is %s, want %s", c.active, c.quiet, c.from, got, c.want)
		}
	}
}

// An instant within a second stays as it is if it is allowed.
func TestNextKeepsMilliseconds(t *testing.T) {
	w := hours(t, "UTC 08:00-20:00", "")
	at := instant(t, "2026-05-01T08:00:00Z")
	for from, want := range map[picket.Instant]picket.Instant{at + 1: at + 1, at - 1: at, at: at} {
		if got, ok := w.Next(from); !ok || got != want {
			t.Errorf("from %s: %s, want %s", from, got, want)
		}
	}
}

// The search for an instant that never comes is quick with as many zones as there can be.
func TestSearchIsBounded(t *testing.T) {
	zones := strings.Fields("Europe/Berlin America/New_York Africa/Casablanca Africa/Cairo Asia/Gaza " +
		"Australia/Lord_Howe America/Santiago Pacific/Chatham")
	var w Windows
	for i := range MaxWindows - 2 {
		w.Active = append(w.Active, window(t, fmt.Sprintf("%s %02d:10-%02d:50", zones[i%len(zones)], i%24, i%24)))
	}
	w.Quiet = []Window{window(t, "UTC 00:00-12:00"), window(t, "UTC 12:00-00:00")}
	began := time.Now()
	if next, ok := w.Next(instant(t, "2026-05-01T00:00:00Z")); ok {
		t.Errorf("next is %s", next)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the search took %s", took)
	}
}
