package orchestrator_test

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/eventlog"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Retention deletes whole entries, from the head, as long as max events stay. A reader that has
// missed an event is told.
func TestRetentionDeletesWholeEntries(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.writeLog(t)
		events := f.entries(t, eventsKey)
		for n, sizes := range append(groupings, []int{4, 0, 2}, []int{4}, []int{5}, []int{0, 9}) {
			kit.OK(t, f.Raw.Del(f.Ctx, eventsKey).Err())
			for _, ev := range events {
				kit.OK(t, f.Raw.XAdd(f.Ctx, &redis.XAddArgs{Stream: eventsKey, ID: ev.ID, Values: ev.Values}).Err())
			}
			kit.OK(t, f.Raw.HDel(f.Ctx, kit.Meta, "trimmed").Err())
			f.regroup(t, sizes...)
			// With larger steps the last event to delete lies in the middle of an entry.
			for most := len(events) + 1; most > 0; most -= 1 + n%3*2 {
				f.checkRetention(t, int64(most))
			}
		}
	})
}

// checkRetention deletes all events but the newest ones, and checks what is left.
func (f *fixture) checkRetention(t *testing.T, most int64) {
	t.Helper()
	before, err := f.Raw.XRange(f.Ctx, eventsKey, "-", "+").Result()
	kit.OK(t, err)
	was := f.entries(t, eventsKey)
	cut, want := int64(len(was))-most, 0 // so many events may go, and so many do
	for _, e := range before {
		n, err := eventlog.Records(e)
		kit.OK(t, err)
		if int64(want+len(n)) > cut {
			break
		}
		want += len(n)
	}
	deleted, err := f.ApplyRetention(f.Ctx, picket.Retention{MaxEvents: most}, 100)
	kit.OK(t, err)
	is := f.entries(t, eventsKey)
	if deleted != want || !reflect.DeepEqual(is, was[want:]) {
		t.Fatalf("of %d events %d may stay: %d were deleted and %d are left, want %d and %d", len(was), most, deleted,
			len(is), want, len(was)-want)
	}
	if want == 0 {
		return
	}
	last := seq(strings.TrimSuffix(was[want-1].ID, "-0"))
	if got := f.Raw.HGet(f.Ctx, kit.Meta, "trimmed").Val(); got != strconv.FormatInt(last, 10) {
		t.Fatalf("events up to %s are marked as deleted, the last was %d", got, last)
	}
	for _, after := range []int64{last - 1, last, 0} {
		page, err := f.Events(f.Ctx, picket.EventQuery{After: after})
		if after == last-1 && after > 0 {
			kit.Refused(t, err, picket.CodeCursorExpired)
			continue
		}
		kit.OK(t, err)
		if len(page.Events) != len(is) {
			t.Fatalf("after %d: %v, want %d events", after, seqs(page.Events), len(is))
		}
	}
}

// By their age events go by store time, those of an entry together.
func TestRetentionByAgeDeletesWholeEntries(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for _, e := range []*redis.XAddArgs{kit.OldEvents(1, 3), kit.OldEvent(4), kit.OldEvents(5, 130),
			kit.OldEvents(131, 131)} {
			kit.OK(t, f.Raw.XAdd(f.Ctx, e).Err())
		}
		kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "seq", 131).Err())
		f.writeLog(t)
		fresh := f.entries(t, eventsKey)[131:]
		total := 0
		for range 10 {
			n, err := f.ApplyRetention(f.Ctx, picket.Retention{Events: time.Hour}, 50)
			kit.OK(t, err)
			total += n
		}
		if total != 131 || !reflect.DeepEqual(f.entries(t, eventsKey), fresh) {
			t.Errorf("%d events were deleted and %d are left, want 131 and %d", total, len(f.entries(t, eventsKey)),
				len(fresh))
		}
	})
}

// gaps are how many gaps of the log are noted.
func (f *fixture) gaps() int { return strings.Count(f.Raw.HGet(f.Ctx, kit.Meta, "gaps").Val(), ":") }

// leaveGaps writes a log with a gap after every second event.
func (f *fixture) leaveGaps(t *testing.T, n int) {
	t.Helper()
	for range n {
		f.MustSubmit(t, picket.TaskSpec{})
		f.AdoptOnNewServer(t)
	}
}

// Retention does not count the numbers that an adoption leaves out, and its mark is the number of
// an event.
func TestRetentionCountsNoGaps(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for _, noted := range []bool{true, false} {
			f.leaveGaps(t, 20)
			f.regroup(t, 1)
			if n := f.gaps(); n < 18 {
				t.Fatalf("%d gaps are noted", n)
			}
			if !noted { // as an earlier version leaves it
				kit.OK(t, f.Raw.HDel(f.Ctx, kit.Meta, "gaps", "unnoted").Err())
			}
			for left := f.entries(t, eventsKey); len(left) > 3; left = f.entries(t, eventsKey) {
				most := len(left) - 3
				for deleted := 1; deleted > 0; {
					var err error
					deleted, err = f.ApplyRetention(f.Ctx, picket.Retention{MaxEvents: int64(most)}, 100)
					kit.OK(t, err)
				}
				is := f.entries(t, eventsKey)
				if !reflect.DeepEqual(is, left[3:]) {
					t.Fatalf("noted %v: %d of %d events are left, want %d", noted, len(is), len(left), most)
				}
				if got := f.Raw.HGet(f.Ctx, kit.Meta, "trimmed").Val(); got+"-0" != left[2].ID {
					t.Fatalf("noted %v: events up to %s are marked as deleted, the last was %s", noted, got, left[2].ID)
				}
			}
		}
	})
}

// A log that an earlier version began is cut by what was written since, too.
func TestRetentionOfALogOfBothForms(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for range 20 {
			f.MustSubmit(t, picket.TaskSpec{})
		}
		f.regroup(t, 0)
		kit.OK(t, f.Raw.HDel(f.Ctx, kit.Meta, "gaps", "unnoted").Err())
		_, err := f.ApplyRetention(f.Ctx, picket.Retention{}, 100) // counts it
		kit.OK(t, err)
		f.writeLog(t)
		f.regroup(t, append(slices.Repeat([]int{0}, 20), 4, 4, 4, 4, 4, 4, 4, 4, 4)...)
		for most := len(f.entries(t, eventsKey)); most > 0; most-- {
			f.checkRetention(t, int64(most))
		}
	})
}

// Of many gaps the oldest are noted as one. Retention then deletes later, but nothing that may stay.
func TestRetentionWithManyGaps(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.leaveGaps(t, 40)
		if n := f.gaps(); n != 20 {
			t.Fatalf("%d gaps are noted", n)
		}
		f.regroup(t, 1)
		for most := len(f.entries(t, eventsKey)) - 1; most > 0; most-- {
			was := f.entries(t, eventsKey)
			_, err := f.ApplyRetention(f.Ctx, picket.Retention{MaxEvents: int64(most)}, 100)
			kit.OK(t, err)
			if is := f.entries(t, eventsKey); len(is) < min(most, len(was)) {
				t.Fatalf("%d of %d events are left, %d may stay", len(is), len(was), most)
			}
		}
		f.leaveGaps(t, 40)
		f.regroup(t, 1)
		for deleted := 1; deleted > 0; {
			var err error
			deleted, err = f.ApplyRetention(f.Ctx, picket.Retention{MaxEvents: 3}, 100)
			kit.OK(t, err)
		}
		if is := f.entries(t, eventsKey); len(is) != 3 {
			t.Errorf("%d events are left", len(is))
		}
	})
}
