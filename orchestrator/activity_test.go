package orchestrator_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// sumActivity adds up a pulse.
func sumActivity(slots []picket.ActivitySlot) picket.ActivitySlot {
	sum := picket.ActivitySlot{Refused: map[picket.Code]int64{}}
	for _, s := range slots {
		sum.Ended, sum.Failed, sum.Asked = sum.Ended+s.Ended, sum.Failed+s.Failed, sum.Asked+s.Asked
		for code, n := range s.Refused {
			sum.Refused[code] += n
		}
	}
	return sum
}

// activityFromEvents is the pulse that the log of events tells of the hour up to now.
func activityFromEvents(ctx context.Context, t *testing.T, e *orchestrator.Engine,
	now picket.Instant) map[picket.Instant]picket.ActivitySlot {
	t.Helper()
	slots := map[picket.Instant]picket.ActivitySlot{}
	for after := int64(0); ; {
		page, err := e.Events(ctx, picket.EventQuery{After: after, Limit: 1000})
		ok(t, err)
		for _, ev := range page.Events {
			after = ev.Seq
			at := ev.At - ev.At%picket.ActivitySlotMs
			s := slots[at]
			var said struct {
				State picket.TaskState `json:"state"`
				Code  picket.Code      `json:"code"`
				Count int64            `json:"count"`
			}
			ok(t, json.Unmarshal(ev.Data, &said))
			switch ev.Type {
			case picket.EventTaskReview, picket.EventTaskCompleted, picket.EventTaskFinished:
				s.Ended++
			case picket.EventLeaseFailed, picket.EventLeaseExpired, picket.EventLeaseReleased:
				s.Failed++
				if said.State == picket.TaskHandoff {
					s.Asked++
				}
			case picket.EventTaskHandoff:
				s.Asked++
			case picket.EventWriteRefused:
				if s.Refused == nil {
					s.Refused = map[picket.Code]int64{}
				}
				s.Refused[said.Code] += said.Count
			default:
				continue
			}
			if now/picket.ActivitySlotMs-ev.At/picket.ActivitySlotMs < picket.ActivitySlots {
				slots[at] = s
			}
		}
		if len(page.Events) == 0 {
			return slots
		}
	}
}

// checkActivity holds the pulse against the log of events.
func checkActivity(ctx context.Context, t *testing.T, e *orchestrator.Engine) picket.ActivitySlot {
	t.Helper()
	s, err := e.Stats(ctx)
	ok(t, err)
	want := activityFromEvents(ctx, t, e, s.LastTick+picket.Instant(s.SinceTickMs))
	for i, slot := range s.Activity {
		if i > 0 && slot.At <= s.Activity[i-1].At {
			t.Errorf("slot %v comes after %v", slot.At, s.Activity[i-1].At)
		}
		w := want[slot.At]
		w.At = slot.At
		if got, should := fmt.Sprintf("%+v", slot), fmt.Sprintf("%+v", w); got != should {
			t.Errorf("the pulse has %s, the log %s", got, should)
		}
	}
	if len(s.Activity) != len(want) {
		t.Errorf("the pulse has %d slots, the log %d: %+v, %+v", len(s.Activity), len(want), s.Activity, want)
	}
	return sumActivity(s.Activity)
}

// What comes of runs is counted once, whatever is asked twice.
func TestActivityIsCountedOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		expect := func(want string) {
			t.Helper()
			got := checkActivity(f.ctx, t, f.Engine)
			if has := fmt.Sprintf("%d handed in, %d failed, %d asked, refused %v", got.Ended, got.Failed, got.Asked,
				got.Refused); has != want {
				t.Errorf("counted: %s; want %s", has, want)
			}
		}
		expect("0 handed in, 0 failed, 0 asked, refused map[]")
		task, h := f.submitAndLease(t, picket.TaskSpec{})
		f.callTwice(t, func() error { _, err := f.Complete(f.ctx, h, picket.Completion{}); return err })
		f.callTwice(t, func() error {
			_, err := f.Approve(f.ctx, idempotent("a"), task.TaskID, picket.Decision{})
			return err
		})
		expect("1 handed in, 0 failed, 0 asked, refused map[]")
		_, h = f.submitAndLease(t, picket.TaskSpec{Review: picket.ReviewByNone})
		f.callTwice(t, func() error { _, err := f.Complete(f.ctx, h, picket.Completion{}); return err })
		expect("2 handed in, 0 failed, 0 asked, refused map[]")
		_, h = f.submitAndLease(t, picket.TaskSpec{})
		var asked picket.HelpRequested
		f.callTwice(t, func() (err error) {
			asked, err = f.RequestHelp(f.ctx, h, picket.HelpRequest{Question: "?"})
			return err
		})
		expect("2 handed in, 0 failed, 1 asked, refused map[]")
		f.callTwice(t, func() error {
			_, err := f.Finish(f.ctx, idempotent("f"), asked.HandoffID, picket.RawJSON(`1`))
			return err
		})
		expect("3 handed in, 0 failed, 1 asked, refused map[]")
		_, h = f.submitAndLease(t, picket.TaskSpec{})
		f.callTwice(t, func() error { _, err := f.Fail(f.ctx, h, "no", false); return err }) // a person is asked, too
		expect("3 handed in, 1 failed, 2 asked, refused map[]")
		slow, _ := f.submitAndLease(t, picket.TaskSpec{})
		_, err := f.Expire(f.ctx, operator, slow.TaskID, "stuck")
		ok(t, err)
		expect("3 handed in, 2 failed, 2 asked, refused map[]")
		gone := picket.Refuse(picket.CodeLeaseExpired, "Stop.", "it has ended")
		for range 23 { // the last three are told together
			f.RecordRefusedWrite(f.ctx, h, "report", gone)
		}
		f.RecordRefusedWrite(f.ctx, picket.LeaseCredential{RunID: "run_unknown"}, "report",
			picket.Refuse(picket.CodeStaleFence, "Stop.", "superseded"))
		expect("3 handed in, 2 failed, 2 asked, refused map[lease_expired:20 stale_fence:1]")
		f.runReaperFor(t, time.Minute)
		_, err = f.RunChores(f.ctx, 10)
		ok(t, err)
		expect("3 handed in, 2 failed, 2 asked, refused map[lease_expired:23 stale_fence:1]")
		f.cancelAll(t)
	})
}

// A slot goes with the hour, and what was counted of it is deleted.
func TestActivityIsOfTheLastHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, stop := rig.Memory()
		defer stop()
		f := openFixture(t, store)
		defer f.close()
		hand := func() {
			t.Helper()
			_, h := f.submitAndLease(t, picket.TaskSpec{})
			_, err := f.Complete(f.ctx, h, picket.Completion{})
			ok(t, err)
		}
		for n := range 50 { // of 90 seconds each: a turn and a quarter
			hand()
			if n%3 == 0 {
				hand()
			}
			checkActivity(f.ctx, t, f.Engine)
			time.Sleep(90 * time.Second)
		}
		if n := len(f.mustStats(t).Activity); n != picket.ActivitySlots && n != picket.ActivitySlots-1 {
			t.Errorf("%d slots", n)
		}
		if n := f.raw.HLen(f.ctx, "pk:{default}:pulse").Val(); n > picket.ActivitySlots {
			t.Errorf("%d counts are kept", n)
		}
		time.Sleep(time.Hour)
		if p := f.mustStats(t).Activity; len(p) != 0 {
			t.Errorf("an hour later there is still %+v", p)
		}
	})
}

// Neither a clock that has stepped nor a store from before the pulse was
// counted, or damage, shows what was not in this hour.
func TestActivityAfterAClockStep(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.submitAndLease(t, picket.TaskSpec{})
		_, err := f.Complete(f.ctx, h, picket.Completion{})
		ok(t, err)
		p := f.mustStats(t).Activity
		if len(p) != 1 || p[0].Ended != 1 {
			t.Fatalf("counted %+v", p)
		}
		counts, slot := "pk:{default}:pulse", int64(p[0].At)/picket.ActivitySlotMs
		ok(t, f.raw.Del(f.ctx, counts).Err()) // an older store
		if p := f.mustStats(t).Activity; len(p) != 0 {
			t.Errorf("not counted, but there: %+v", p)
		}
		for other, in := range map[int64]bool{
			slot - picket.ActivitySlots - 1: false,
			slot - picket.ActivitySlots + 3: true,
			slot - 1:                        true,
			slot + 2:                        false,
			slot + 1_000_000:                false,
		} {
			ok(t, f.raw.Del(f.ctx, counts).Err())
			ok(t, f.raw.HSet(f.ctx, counts, fmt.Sprint(other, " ended"), 7).Err())
			if p := f.mustStats(t).Activity; len(p) != 1 == in {
				t.Errorf("slot %d of %d: %+v", other, slot, p)
			}
		}
		ok(t, f.raw.Del(f.ctx, counts).Err())
		kept := map[string]bool{}
		for other, keep := range map[int64]bool{
			0:                               false,
			slot - picket.ActivitySlots - 1: false,
			slot - 2:                        true,
			slot + 4:                        true,
			slot + 2*picket.ActivitySlots:   false,
			slot + 1_000_000:                false,
		} {
			field := fmt.Sprint(other, " ended")
			ok(t, f.raw.HSet(f.ctx, counts, field, 7, "nonsense", "x", "", "y").Err())
			kept[field] = keep
		}
		_, h = f.submitAndLease(t, picket.TaskSpec{})
		_, err = f.Fail(f.ctx, h, "no", true)
		ok(t, err)
		f.cancelAll(t)
		if sum := sumActivity(f.mustStats(t).Activity); sum.Failed != 1 || sum.Ended != 7 {
			t.Errorf("beside counts of other hours: %+v", sum)
		}
		left := f.raw.HGetAll(f.ctx, counts).Val()
		for field, keep := range kept {
			if _, is := left[field]; is != keep {
				t.Errorf("%q is kept: %v", field, is)
			}
		}
		if len(left) != 3 {
			t.Errorf("left are %v", left)
		}
	})
}
