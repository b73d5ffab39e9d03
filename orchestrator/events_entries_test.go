package orchestrator_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/eventlog"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

const eventsKey, auditKey = "pk:{default}:events", "pk:{default}:audit"

// writeLog writes a log with calls of one event and of several, with launcher fields, and with
// values of every length.
func (f *fixture) writeLog(t *testing.T) {
	t.Helper()
	f.MustSubmit(t, picket.TaskSpec{Title: "a: 1:2\x00:\u00e9", Role: "writer"})
	h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{Role: "writer"}))
	kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{
		{Type: picket.EventRunLaunched, Containment: "group"},
		{Type: picket.EventAgentHeartbeat, ID: "1", LauncherFields: picket.LauncherFields{Agent: "coder"}},
		{Type: picket.EventRunStalled, ID: "2"},
		{Type: picket.EventAgentHeartbeat, ID: "3"},
		{Type: picket.EventAgentTimeoutWarning, ID: "4"},
	}))
	_, err := f.Expire(f.Ctx, kit.Operator, h.TaskID, "12:345 "+strings.Repeat("0123456789", 20))
	kit.OK(t, err)
	var submits sync.WaitGroup // on a real store they are in a few batches
	for range 12 {
		submits.Go(func() {
			_, err := f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "one of many"})
			if err != nil {
				t.Error(err)
			}
		})
	}
	submits.Wait()
	_, err = f.Pause(f.Ctx, kit.Operator, false, "")
	kit.OK(t, err)
}

// entries reads a log past the engine: one entry for each event.
func (f *fixture) entries(t *testing.T, key string) []redis.XMessage {
	t.Helper()
	entries, err := f.Raw.XRange(f.Ctx, key, "-", "+").Result()
	kit.OK(t, err)
	entries, err = kit.EventEntries(entries)
	kit.OK(t, err)
	return entries
}

// regroup writes the log again, in entries of so many events, again and again. An entry of 0 is one
// event in the form of an earlier version.
func (f *fixture) regroup(t *testing.T, sizes ...int) {
	t.Helper()
	events := f.entries(t, eventsKey)
	kit.OK(t, f.Raw.Del(f.Ctx, eventsKey).Err())
	for n := 0; len(events) > 0; n++ {
		size := min(sizes[n%len(sizes)], len(events))
		entry := &redis.XAddArgs{Stream: eventsKey, ID: events[max(size, 1)-1].ID}
		var values []any
		for i, ev := range events[:max(size, 1)] {
			record := make(eventlog.Record, len(eventlog.Names))
			record[0] = strings.TrimSuffix(ev.ID, "-0")
			for j, name := range eventlog.Names[1:] {
				record[j+1] = ev.Values[name].(string)
				if size == 0 {
					values = append(values, name, record[j+1])
				}
			}
			if size > 0 {
				values = append(values, strconv.Itoa(i+1), record.Pack())
			}
		}
		entry.Values = values
		kit.OK(t, f.Raw.XAdd(f.Ctx, entry).Err())
		events = events[max(size, 1):]
	}
}

// groupings are forms of the same log.
var groupings = [][]int{{1}, {0}, {1000}, {3}, {2, 0, 5, 1}, {0, 0, 7}, {6, 1}}

// Whatever entries hold the events of a log: each page of it, from each position, forwards and
// backwards, has the next events, loses none and repeats none.
func TestEveryPageOfTheLog(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.writeLog(t)
		written := f.entries(t, eventsKey)
		all, err := f.Events(f.Ctx, picket.EventQuery{Limit: 1000})
		kit.OK(t, err)
		if len(all.Events) != len(written) || len(all.Events) < 20 {
			t.Fatalf("%d events of %d", len(all.Events), len(written))
		}
		entries := f.Raw.XLen(f.Ctx, eventsKey).Val()
		if entries > int64(len(written)-4) {
			t.Errorf("%d events are in %d entries", len(written), entries)
		}
		f.checkPages(t, "as written", all.Events)
		for _, sizes := range groupings {
			f.regroup(t, sizes...)
			f.checkPages(t, fmt.Sprint(sizes), all.Events)
		}
	})
}

// checkPages holds every page of the log against all events.
func (f *fixture) checkPages(t *testing.T, what string, all []picket.Event) {
	t.Helper()
	first, last := all[0].Seq, all[len(all)-1].Seq
	for _, types := range [][]string{nil, {picket.EventTaskSubmitted, picket.EventAgentHeartbeat}} {
		of := slices.DeleteFunc(slices.Clone(all), func(ev picket.Event) bool {
			return types != nil && !slices.Contains(types, ev.Type)
		})
		for after := first - 1; after <= last+2; after++ {
			for limit := 1; limit <= len(all)+1; limit++ {
				if limit > 8 && limit < len(all)-1 {
					continue
				}
				q := picket.EventQuery{After: after, Limit: limit, Types: types}
				page, err := f.Events(f.Ctx, q)
				kit.OK(t, err)
				i := slices.IndexFunc(append(of, picket.Event{Seq: last + 10}), func(ev picket.Event) bool {
					return ev.Seq > after
				})
				if want := of[i:min(i+limit, len(of))]; !equalEvents(page.Events, want) {
					t.Fatalf("%s, %+v: %v, want %v", what, q, seqs(page.Events), seqs(want))
				}
				q.NewestFirst = true
				page, err = f.Events(f.Ctx, q)
				kit.OK(t, err)
				i = slices.IndexFunc(append(of, picket.Event{Seq: last + 10}), func(ev picket.Event) bool {
					return ev.Seq >= after
				})
				if after == 0 {
					i = len(of)
				}
				want := slices.Clone(of[max(0, i-limit):i])
				slices.Reverse(want)
				if !equalEvents(page.Events, want) {
					t.Fatalf("%s, %+v: %v, want %v", what, q, seqs(page.Events), seqs(want))
				}
			}
		}
	}
	for _, ev := range []picket.Event{all[0], all[len(all)/2], all[len(all)-1]} {
		page, err := f.Events(f.Ctx, picket.EventQuery{NewestFirst: true, Until: ev.At, Limit: 1})
		kit.OK(t, err)
		if len(page.Events) != 1 || page.Events[0].At != ev.At {
			t.Fatalf("%s, until %d: %v", what, ev.At, page.Events)
		}
	}
}

func equalEvents(a, b []picket.Event) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}

// A call of more events than one entry takes makes several of them.
func TestALargeCallMakesSeveralEntries(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		kit.RewriteEach(f.Store, func(_, text string) string {
			return strings.Replace(text, "local MOST = 500", "local MOST = 2", 1)
		})
		f.writeLog(t)
		entries, err := f.Raw.XRange(f.Ctx, eventsKey, "-", "+").Result()
		kit.OK(t, err)
		sizes := map[int]int{}
		for _, e := range entries {
			sizes[len(e.Values)]++
		}
		if sizes[2] < 2 || len(sizes) > 2 {
			t.Errorf("entries by their size: %v", sizes)
		}
		all, err := f.Events(f.Ctx, picket.EventQuery{})
		kit.OK(t, err)
		for i, ev := range all.Events {
			if ev.Seq != all.Events[0].Seq+int64(i) {
				t.Fatalf("the numbers are %v", seqs(all.Events))
			}
		}
		f.checkPages(t, "entries of two", all.Events)
	})
}

// A reader that follows the log sees every event once and in order, while several callers write it.
func TestTheTailOfTheLog(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		begun, err := f.LastSeq(f.Ctx)
		kit.OK(t, err)
		const writers, calls = 4, 6
		var wrote sync.WaitGroup
		for w := range writers {
			wrote.Go(func() {
				for c := range calls {
					id := fmt.Sprint(w, ".", c)
					_, err := f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: id})
					if err == nil {
						err = f.RunEvents(f.Ctx, h, []picket.RunEvent{
							{Type: picket.EventAgentHeartbeat, ID: id + "a"},
							{Type: picket.EventAgentHeartbeat, ID: id + "b"},
							{Type: picket.EventAgentHeartbeat, ID: id + "c"},
						})
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		end := begun + writers*calls*4
		for at := begun; at < end; {
			kit.OK(t, f.Tail(f.Ctx, at))
			page, err := f.Events(f.Ctx, picket.EventQuery{After: at, Limit: 2})
			kit.OK(t, err)
			for _, ev := range page.Events {
				if at++; ev.Seq != at {
					t.Fatalf("event %d came where %d was next", ev.Seq, at)
				}
			}
		}
		wrote.Wait()
		if last, err := f.LastSeq(f.Ctx); err != nil || last != end {
			t.Errorf("the last event is %d, want %d (%v)", last, end, err)
		}
	})
}

// Every value of every row of the audit log is held against its event, wherever that is.
func TestTheAuditLogIsHeldAgainstPackedEvents(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.writeLog(t)
		rows := f.entries(t, auditKey)
		if len(rows) < 5 {
			t.Fatalf("the audit log has %d rows", len(rows))
		}
		findings := func() (seqs []string) {
			all, err := kit.InspectAll(f.Ctx, f.Engine, false)
			kit.OK(t, err)
			for _, v := range all {
				if v.Kind == "audit_differs" {
					seqs = append(seqs, v.Subject+": "+v.Detail)
				}
			}
			return seqs
		}
		for _, sizes := range append(groupings, []int{2}) {
			f.regroup(t, sizes...)
			if found := findings(); found != nil {
				t.Fatalf("%v: %v", sizes, found)
			}
			changed := rows[len(rows)/2]
			seq := strings.TrimSuffix(changed.ID, "-0")
			for name := range changed.Values {
				f.writeAudit(t, rows, changed.ID, name)
				if found := findings(); !slices.Equal(found, []string{seq + ": it is not a copy of event " + seq}) {
					t.Fatalf("%v, another %s: %v", sizes, name, found)
				}
			}
			f.writeAudit(t, rows, "", "")
		}
		// Events are missing: those of the first entries.
		f.regroup(t, 4)
		entries, err := f.Raw.XRange(f.Ctx, eventsKey, "-", "+").Result()
		kit.OK(t, err)
		kit.OK(t, f.Raw.XDel(f.Ctx, eventsKey, entries[0].ID).Err())
		gone := 0
		for _, row := range rows {
			if seq(strings.TrimSuffix(row.ID, "-0")) <= seq(strings.TrimSuffix(entries[0].ID, "-0")) {
				gone++
			}
		}
		found := findings()
		if len(found) != gone || !strings.Contains(fmt.Sprint(found), "the event log has no event") {
			t.Errorf("%d of the rows have lost their event: %v", gone, found)
		}
	})
}

// A repair by a person has its copy in the audit log before its event is written. The same step
// that repairs goes on to the audit log.
func TestARepairIsNoDifferenceOfTheAuditLog(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:tasks", task.TaskID).Err())
		part, err := f.Inspect(f.Ctx, kit.Operator, picket.InspectRequest{Repair: true})
		kit.OK(t, err)
		if part.Next != "" || len(part.Violations) != 1 || part.Violations[0].Kind != "list_missing" {
			t.Errorf("%+v", part)
		}
		all := f.AuditLog(t, picket.EventInvariantRepaired)
		if len(all) != 1 {
			t.Errorf("the audit log has %+v", all)
		}
		if differs := kit.AuditDiffers(f.Ctx, f.Raw); differs != "" {
			t.Error(differs)
		}
	})
}

// writeAudit writes the audit log again, with another value in one field of one row.
func (f *fixture) writeAudit(t *testing.T, rows []redis.XMessage, id, field string) {
	t.Helper()
	kit.OK(t, f.Raw.Del(f.Ctx, auditKey).Err())
	for _, row := range rows {
		var values []any
		for _, name := range eventlog.Names[1:] {
			value := row.Values[name]
			if row.ID == id && name == field {
				value = fmt.Sprint(value, "0")
			}
			values = append(values, name, value)
		}
		kit.OK(t, f.Raw.XAdd(f.Ctx, &redis.XAddArgs{Stream: auditKey, ID: row.ID, Values: values}).Err())
	}
}
