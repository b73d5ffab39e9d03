package api_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// metricFamily is a metric as /metrics shows it.
type metricFamily struct {
	kind   string
	labels string // sorted names, without le
	values map[string]string
}

var (
	typeLine   = regexp.MustCompile(`^# TYPE (\S+) (\S+)$`)
	sampleLine = regexp.MustCompile(`^([a-z_]+?)(?:\{(.*)\})? (\S+)$`)
	labelPair  = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
)

// readScrape parses the text format, as far as our metrics use it.
func readScrape(t testing.TB, text string) map[string]*metricFamily {
	t.Helper()
	all := map[string]*metricFamily{}
	var last *metricFamily
	var name string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := typeLine.FindStringSubmatch(line); m != nil {
			name, last = m[1], &metricFamily{kind: m[2], values: map[string]string{}}
			all[name] = last
			continue
		}
		if strings.HasPrefix(line, "#") || !strings.HasPrefix(line, "picket_") {
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil || last == nil || !strings.HasPrefix(m[1], name) {
			t.Fatalf("not a sample: %s", line)
		}
		var labels []string
		for _, pair := range labelPair.FindAllStringSubmatch(m[2], -1) {
			if pair[1] != "le" {
				labels = append(labels, pair[1])
			}
		}
		slices.Sort(labels)
		if l := strings.Join(labels, " "); len(last.values) > 0 && last.labels != l {
			t.Errorf("%s has labels %q and %q", name, last.labels, l)
		} else {
			last.labels = l
		}
		last.values[m[1]+"{"+m[2]+"}"] = m[3]
	}
	maps.DeleteFunc(all, func(name string, _ *metricFamily) bool { return !strings.HasPrefix(name, "picket_") })
	return all
}

// documentedMetric is a row of the table in docs/operations/monitoring.md.
type documentedMetric struct {
	kind   string
	labels string
	from   string
}

// documentedMetrics reads the table.
func documentedMetrics(t testing.TB) map[string]documentedMetric {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations/monitoring.md")
	must(t, err)
	_, rest, found := strings.Cut(string(text),
		"\n| metric | type | labels | of the | meaning |\n|---|---|---|---|---|\n")
	if !found {
		t.Fatal("docs/operations/monitoring.md has no table of metrics")
	}
	rows := map[string]documentedMetric{}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "| `") {
			break
		}
		cells := strings.Split(strings.ReplaceAll(line, "`", ""), " | ")
		if len(cells) != 5 {
			t.Fatalf("not five cells: %s", line)
		}
		labels := strings.Fields(cells[2])
		slices.Sort(labels)
		rows[strings.TrimPrefix(cells[0], "| ")] = documentedMetric{strings.TrimSpace(cells[1]),
			strings.Join(labels, " "),
			strings.TrimSpace(cells[3])}
	}
	return rows
}
