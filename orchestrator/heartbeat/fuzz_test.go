package heartbeat

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// canonicalSource writes a policy as a file in its canonical form.
func canonicalSource(p *Policy) []byte {
	return []byte("---\n" + string(p.CanonicalJSON()) + "\n---\n" + p.Body)
}

// A file never makes Parse panic, and gives the same each time. What is accepted can be written in its
// canonical form, which has the same digest.
func FuzzParse(f *testing.F) {
	f.Add([]byte(fullFile), false)
	f.Add([]byte("---\nlease: {ttl: 1}\nsummary: *a\n---\n# Tools\n"), true)
	f.Add([]byte("---\nsummary: \"\\u2028 \\U0001F600 '\"\n---\n> - ```\n"), true)
	f.Add([]byte("\ufeff---\r\nenabled: false\r\n---\r\nText\rpkl_aaaaaaaa\x00"), false)
	f.Add([]byte("---\ncontext: {include: [task, self, task]}\n---\n\n\n  Text  \n"), true)
	f.Add([]byte("---\npreferences: {quiet_windows: [{timezone: UTC, start: 01:00, end: '02:00'}]}\n---"), true)
	f.Add([]byte("* Tools\n  - "), false) // without the space at its end it means the same
	f.Fuzz(func(t *testing.T, source []byte, write bool) {
		o := Options{Settings: Defaults(), SourcePath: "HEARTBEAT.md"}
		if write {
			o.Mode = ModeWrite
		}
		p, list := Parse(source, o)
		again, listAgain := Parse(source, o)
		if !reflect.DeepEqual(p, again) || !reflect.DeepEqual(list, listAgain) {
			t.Fatalf("a file is read in two ways:\n%+v %v\n%+v %v", p, list, again, listAgain)
		}
		if p.Valid == (p.Digest == "") || len(list) > maxDiagnostics {
			t.Fatalf("valid %v, digest %q, %d diagnostics", p.Valid, p.Digest, len(list))
		}
		for _, d := range list {
			if rawSecret().MatchString(d.Message + " " + d.Path) {
				t.Errorf("a diagnostic has a secret: %+v", d)
			}
		}
		if !p.Valid {
			return
		}
		second, list := Parse(canonicalSource(p), o)
		if second.Digest != p.Digest {
			t.Errorf("%s\nhas another digest than\n%s\n%v", canonicalSource(p), source, list)
		}
	})
}

var fuzzZones = strings.Fields("UTC Europe/Berlin America/New_York America/Sao_Paulo Australia/Lord_Howe " +
	"Asia/Kathmandu Pacific/Apia Africa/Casablanca America/St_Johns Antarctica/Troll")

// slowWindow is a window that is looked at by its wall clock as text.
type slowWindow struct {
	zone       *time.Location
	start, end string
}

func (w slowWindow) covers(at time.Time) bool {
	clock := at.In(w.zone).Format("15:04")
	if w.start < w.end {
		return w.start <= clock && clock < w.end
	}
	return w.start <= clock || clock < w.end
}

func slowlyAllowed(active, quiet []slowWindow, at time.Time) bool {
	covers := func(w slowWindow) bool { return w.covers(at) }
	return (len(active) == 0 || slices.ContainsFunc(active, covers)) && !slices.ContainsFunc(quiet, covers)
}

// Windows agree with a look at each minute.
func FuzzWindows(f *testing.F) {
	f.Add(int64(1774742400), []byte{1, 22, 27}, []byte{})                         // Berlin in spring
	f.Add(int64(1792886400), []byte{1, 15, 25, 2, 200, 100}, []byte{0, 10, 20})   // Berlin in autumn
	f.Add(int64(1793500000), []byte{}, []byte{2, 10, 20, 0, 1, 239, 5, 200, 100}) // New York in autumn
	f.Add(int64(1293710000), []byte{6, 10, 20}, []byte{6, 30, 40})                // a day that Samoa skipped
	f.Fuzz(func(t *testing.T, second int64, active, quiet []byte) {
		if second < 946_684_800 || second > 4_000_000_000 {
			return
		}
		read := func(numbers []byte) (slow []slowWindow, windows []Window) {
			for ; len(numbers) >= 3 && len(slow) < 4; numbers = numbers[3:] {
				start, end := Minute(numbers[1])*6, Minute(numbers[2])*6+Minute(numbers[0])/50
				s := slowWindow{start: (start % 1440).String(), end: (end % 1440).String()}
				name := fuzzZones[int(numbers[0])%len(fuzzZones)]
				if w, code := NewWindow(name, s.start, s.end); code == "" {
					s.zone, _ = time.LoadLocation(name)
					slow, windows = append(slow, s), append(windows, w)
				}
			}
			return slow, windows
		}
		slowActive, activeWindows := read(active)
		slowQuiet, quietWindows := read(quiet)
		w := Windows{Active: activeWindows, Quiet: quietWindows}
		next, ok := w.Next(picket.Instant(second * 1000))
		at := time.Unix(second, 0)
		for range 1440 + 60 {
			want := slowlyAllowed(slowActive, slowQuiet, at)
			now := picket.InstantOf(at)
			if got := w.Allows(now); got != want {
				t.Fatalf("%v without %v at %s: allowed %v", slowActive, slowQuiet, now, got)
			}
			if want && (!ok || next != now) || !want && ok && next <= now {
				t.Fatalf("%v without %v from %d: next is %s (%v), at %s it is %v", slowActive, slowQuiet, second, next,
					ok, now, want)
			}
			if want {
				return
			}
			at = at.Add(time.Minute).Truncate(time.Minute)
		}
	})
}
