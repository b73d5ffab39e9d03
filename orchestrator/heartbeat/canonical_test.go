package heartbeat

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawFrontMatter draws front matter in its normal form.
func drawFrontMatter(t *rapid.T) FrontMatter {
	m := FrontMatter{Version: SchemaVersion, Enabled: rapid.Bool().Draw(t, "enabled")}
	m.Summary = strings.TrimSpace(rapid.OneOf(
		rapid.StringMatching(`[ -~\n\t]{0,40}`),
		rapid.StringOfN(rapid.SampledFrom([]rune("aé \u2028\u00a0\ufeff\U0001F600'\"\\:#{}[]&*!|>%@`-?,\n\t")), 0, 40, -1),
	).Draw(t, "summary"))
	if rapid.Bool().Draw(t, "has min_interval") {
		d := time.Duration(rapid.Int64Range(0, int64(MaxInterval)).Draw(t, "min_interval"))
		m.MinInterval = &d
	}
	m.Windows = Windows{Active: drawWindows(t, "active"), Quiet: drawWindows(t, "quiet")}
	m.Include = slices.DeleteFunc(ContextParts(), func(part ContextPart) bool {
		return rapid.Bool().Draw(t, string(part))
	})
	return m
}

func drawWindows(t *rapid.T, name string) (windows []Window) {
	for range rapid.IntRange(0, 3).Draw(t, name) {
		zone := rapid.SampledFrom(fuzzZones).Draw(t, "zone")
		start, end := rapid.IntRange(0, 1439).Draw(t, "start"), rapid.IntRange(0, 1439).Draw(t, "end")
		if w, code := NewWindow(zone, Minute(start).String(), Minute(end).String()); code == "" {
			windows = append(windows, w)
		}
	}
	return normalWindows(windows)
}

// The canonical form of front matter is read back as what it was.
func TestCanonicalFormIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawFrontMatter(t)
		source := "---\n" + string(m.CanonicalJSON()) + "\n---\n"
		p, list := parse(source)
		if !p.Valid {
			t.Fatalf("%s is refused: %s", source, found(list))
		}
		if got, want := p.CanonicalJSON(), m.CanonicalJSON(); string(got) != string(want) || p.Enabled != m.Enabled ||
			!reflect.DeepEqual(p.MinInterval, m.MinInterval) || len(p.Windows.Active) != len(m.Windows.Active) {
			t.Fatalf("%s\nwas read as %s", want, got)
		}
	})
}
