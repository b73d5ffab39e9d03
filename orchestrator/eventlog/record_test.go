package eventlog_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/eventlog"
)

// record is an event with a number and a reason.
func record(seq, reason string) eventlog.Record {
	return eventlog.Record{seq, picket.EventTaskProgress, "1700000000000", "1000", "key_1", `{"a":"1:2"}`, "task_1",
		"run_1", "a1", "4503599627370497", reason, ""}
}

// reasons are values that a packed event has to keep as they are.
var reasons = []string{"", "0", "3:abc", "a\x00b", "é\u2028", "\xff\xfe", strings.Repeat("12:", 5000)}

func TestRecordsOfAnEntry(t *testing.T) {
	entry := redis.XMessage{ID: "106-0", Values: map[string]any{}}
	var want []eventlog.Record
	for i, reason := range reasons {
		want = append(want, record([]string{"100", "101", "102", "103", "104", "105", "106"}[i], reason))
		entry.Values[string(rune('1'+i))] = want[i].Pack()
	}
	got, err := eventlog.Records(entry)
	if err != nil || !slices.EqualFunc(got, want, slices.Equal) {
		t.Fatalf("%q, %v", got, err)
	}
	ev, err := got[2].Event()
	if err != nil || ev.Seq != 102 || ev.ID != "102" || ev.Reason != "3:abc" || ev.FencingToken != 4503599627370497 ||
		ev.At != 1700000000000 || ev.AgentID != "a1" || string(ev.Data) != `{"a":"1:2"}` {
		t.Errorf("%+v, %v", ev, err)
	}
}

func TestTheRecordOfAnEarlierVersion(t *testing.T) {
	want := record("7", "why")
	entry := redis.XMessage{ID: "7-0", Values: map[string]any{}}
	for _, name := range eventlog.Names[1:] {
		entry.Values[name] = want.Value(name)
	}
	delete(entry.Values, "top") // the first versions had no such field
	got, err := eventlog.Records(entry)
	if err != nil || len(got) != 1 || !slices.Equal(got[0], want) {
		t.Errorf("%q, %v", got, err)
	}
}

// A damaged entry is an error, and never events that nobody wrote.
func TestDamagedEntries(t *testing.T) {
	good := redis.XMessage{ID: "2-0", Values: map[string]any{"1": record("1", "").Pack(), "2": record("2", "x").Pack()}}
	if _, err := eventlog.Records(good); err != nil {
		t.Fatal(err)
	}
	packed := record("2", "x").Pack()
	for what, second := range map[string]any{
		"another number": record("3", "x").Pack(),
		"no number":      record("", "x").Pack(),
		"cut":            packed[:len(packed)-1],
		"cut in a value": packed[:20],
		"longer":         packed + "0:",
		"empty":          "",
		"no text":        2,
		"negative":       "-1:" + packed,
		"signed":         "+" + packed,
		"too long":       "99999999999999999999:" + packed,
		"beyond the end": "1000000:" + packed,
		"no length":      ":" + packed,
	} {
		bad := redis.XMessage{ID: good.ID, Values: maps.Clone(good.Values)}
		bad.Values["2"] = second
		if got, err := eventlog.Records(bad); err == nil {
			t.Errorf("%s: %q", what, got)
		}
	}
	for what, bad := range map[string]redis.XMessage{
		"an event is missing": {ID: "2-0", Values: map[string]any{"1": good.Values["1"], "3": good.Values["2"]}},
		"a field more":        {ID: "2-0", Values: map[string]any{"1": good.Values["2"], "type": "x"}},
		"another id":          {ID: "3-0", Values: good.Values},
		"no id":               {ID: "x", Values: good.Values},
	} {
		if got, err := eventlog.Records(bad); err == nil {
			t.Errorf("%s: %q", what, got)
		}
	}
}
