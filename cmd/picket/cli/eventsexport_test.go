package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// oldLog is a log whose beginning is no longer kept: events from kept to last,
// one every ten milliseconds from zero on. Every third request finds the server
// away.
func oldLog(t *testing.T, kept, last int64) *Connection {
	return logOf(t, kept, last, func(n int64) picket.Event {
		return picket.Event{At: picket.Instant(n * 10), Actor: "=cmd"}
	})
}

// logOf is such a log of events of other times and actors.
func logOf(t *testing.T, kept, last int64, of func(n int64) picket.Event) *Connection {
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if asked++; asked%3 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, `{"code":"orchestrator_unavailable","message":"the store does not answer"}`)
			return
		}
		if r.URL.Path == "/api/v1/stats" {
			fmt.Fprintf(w, `{"lastSeq":%d}`, last)
			return
		}
		after, _ := strconv.ParseInt(r.FormValue("after"), 10, 64)
		limit, _ := strconv.ParseInt(r.FormValue("limit"), 10, 64)
		if after > 0 && after < kept-1 {
			w.WriteHeader(http.StatusGone)
			io.WriteString(w, `{"code":"cursor_expired","message":"too old"}`)
			return
		}
		events, next := []string{}, max(after, kept-1)
		for next < last+5 && int64(len(events)) < min(limit, 7) { // five came after the export began
			next++
			e := of(next)
			events = append(events,
				fmt.Sprintf(`{"id":"%d","seq":%d,"type":"task.progress","at":%q,"actor":%q,"data":{}}`, next, next,
					e.At, e.Actor))
		}
		fmt.Fprintf(w, `{"events":[%s],"next":"%d"}`, strings.Join(events, ","), next)
	}))
	t.Cleanup(srv.Close)
	return NewConnection(srv.URL, "")
}

// exported runs an export and answers the numbers of the events in the file.
func exported(t *testing.T, s *Connection, file string, flags ...string) (ids []string, said string) {
	t.Helper()
	t.Setenv("PICKET_URL", s.URL())
	t.Setenv("PICKET_API_KEY", "pkk_x")
	var talk strings.Builder
	root := newTestRoot()
	root.SetErr(&talk)
	root.SetArgs(append([]string{"events", "export", file}, flags...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v: %v\n%s", flags, err, talk.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(line, `"id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		ids = append(ids, id)
	}
	return ids, talk.String()
}

// An export has all that is kept, once, in order, and nothing that came after
// it began, whatever the server does meanwhile; times are found without reading
// the log.
func TestExportsAreWhole(t *testing.T) {
	rig.SkipShort(t)
	const kept, last = 41, 123
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		flags []string
		first int64
		last  int64
	}{
		"all":            {nil, kept, last},
		"after":          {[]string{"--after", "99"}, 100, last},
		"since":          {[]string{"--since", picket.Instant(1000).String()}, 100, last},
		"since between":  {[]string{"--since", picket.Instant(995).String()}, 100, last},
		"since long ago": {[]string{"--since", picket.Instant(20).String()}, kept, last},
		"until":          {[]string{"--until", picket.Instant(1000).String()}, kept, 99},
		"a part in the midst": {[]string{"--since", picket.Instant(500).String(), "--until", picket.Instant(600).
			String()}, 50, 59},
	} {
		ids, said := exported(t, oldLog(t, kept, last), filepath.Join(dir, name), tc.flags...)
		want := []string{}
		for n := tc.first; n <= tc.last; n++ {
			want = append(want, strconv.FormatInt(n, 10))
		}
		if strings.Join(ids, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %v, want %d to %d", name, ids, tc.first, tc.last)
		}
		if n := fmt.Sprintf("%d events in ", len(want)); !strings.Contains(said, n) {
			t.Errorf("%s: said %q, want %q", name, said, n)
		}
	}
}

// Where the server's clock was set back, a time is an early end that is told,
// and nothing is missing once the export has gone on.
func TestExportsOverAClockThatWasSetBack(t *testing.T) {
	stepping := func(n int64) picket.Event {
		if n == 6 {
			return picket.Event{At: 100}
		}
		return picket.Event{At: picket.Instant(n * 10)}
	}
	file := filepath.Join(t.TempDir(), "log.jsonl")
	ids, said := exported(t, logOf(t, 1, 12, stepping), file, "--until", picket.Instant(90).String())
	if strings.Join(ids, " ") != "1 2 3 4 5" || !strings.Contains(said, "the last cursor is 5") ||
		!strings.Contains(said, "set back after that: at least 1 event") {
		t.Errorf("events %v, said %q", ids, said)
	}
	ids, said = exported(t, logOf(t, 1, 12, stepping), file, "--continue")
	if strings.Join(ids, " ") != "1 2 3 4 5 6 7 8 9 10 11 12" || strings.Contains(said, "set back") {
		t.Errorf("gone on with: %v, said %q", ids, said)
	}
}

// A file that was left in the middle of a line, at any byte, is brought to the
// same end.
func TestExportsGoOnAtAnyByte(t *testing.T) {
	rig.SkipShort(t)
	const kept, last = 1, 9
	file := filepath.Join(t.TempDir(), "log.jsonl")
	exported(t, oldLog(t, kept, last), file)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 {
		left := whole[:cut]
		switch {
		case cut == len(whole): // half a line of an event that is not in this log
			left = append(slices.Clone(whole), `{"id":"10`...)
		case cut%37 != 0 && whole[max(cut-1, 0)] != '\n' && whole[cut] != '\n':
			continue // each end of a line, and some bytes between
		}
		if err := os.WriteFile(file, left, 0o600); err != nil {
			t.Fatal(err)
		}
		exported(t, oldLog(t, kept, last), file, "--continue")
		if got, _ := os.ReadFile(file); string(got) != string(whole) {
			t.Fatalf("after a cut at byte %d the file is\n%s", cut, got)
		}
	}
}

// A file in which nothing is yet is gone on with from where it was to begin.
func TestExportsBeginWhereTheyWereTo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log.jsonl")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ids, _ := exported(t, oldLog(t, 1, 50), file, "--continue", "--after", "40")
		if len(ids) != 10 || ids[0] != "41" || ids[9] != "50" {
			t.Errorf("events %v", ids)
		}
	}
	x := &eventExport{path: "log.jsonl", format: "jsonl", from: 40, after: 45, file: os.Stdout}
	if got := x.resumeCommand(); got != "picket events export --after 40 --continue log.jsonl" {
		t.Errorf("the way on: %s", got)
	}
}

// What a spreadsheet would take for a formula is text.
func TestExportedTablesHoldNoFormulas(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log.csv")
	exported(t, oldLog(t, 1, 2), file, "-o", "csv")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(text), ",'=cmd,"); got != 2 || strings.Contains(string(text), ",=cmd") {
		t.Errorf("the table is\n%s", text)
	}

	// What is not a formula is as it was, and what is not there is empty.
	actors := []string{"ends-", "two--", "-", "", "a-b", "one", "a\u0085"}
	want := []string{"ends-", "two--", "'-", "", "a-b", "one", "a"}
	file = filepath.Join(t.TempDir(), "cells.csv")
	exported(t, logOf(t, 1, int64(len(actors)), func(n int64) picket.Event {
		return picket.Event{At: picket.Instant(n), Actor: actors[min(n, int64(len(actors)))-1]}
	}), file, "-o", "csv")
	if text, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil || len(rows) != len(want)+1 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	for i, row := range rows[1:] {
		if row[7] != want[i] || row[6] != "" || row[8] != "" {
			t.Errorf("row %d is %q, want the actor %q, no fence and no reason", i+1, row, want[i])
		}
	}
}
