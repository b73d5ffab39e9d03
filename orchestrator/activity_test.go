package orchestrator_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// What comes of runs is counted once, whatever is asked twice.
func TestActivityIsCountedOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		expect := func(want string) {
			t.Helper()
			got := kit.CheckActivity(f.Ctx, t, f.Engine)
			if has := fmt.Sprintf("%d handed in, %d failed, %d asked, refused %v", got.Ended, got.Failed, got.Asked,
				got.Refused); has != want {
				t.Errorf("counted: %s; want %s", has, want)
			}
		}
		expect("0 handed in, 0 failed, 0 asked, refused map[]")
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		f.CallTwice(t, func() error { _, err := f.Complete(f.Ctx, h, picket.Completion{}); return err })
		f.CallTwice(t, func() error {
			_, err := f.Approve(f.Ctx, kit.Idempotent("a"), task.TaskID, picket.Decision{})
			return err
		})
		expect("1 handed in, 0 failed, 0 asked, refused map[]")
		_, h = f.SubmitAndLease(t, picket.TaskSpec{Review: picket.ReviewByNone})
		f.CallTwice(t, func() error { _, err := f.Complete(f.Ctx, h, picket.Completion{}); return err })
		expect("2 handed in, 0 failed, 0 asked, refused map[]")
		_, h = f.SubmitAndLease(t, picket.TaskSpec{})
		var asked picket.HelpRequested
		f.CallTwice(t, func() (err error) {
			asked, err = f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "?"})
			return err
		})
		expect("2 handed in, 0 failed, 1 asked, refused map[]")
		f.CallTwice(t, func() error {
			_, err := f.Finish(f.Ctx, kit.Idempotent("f"), asked.HandoffID, picket.RawJSON(`1`))
			return err
		})
		expect("3 handed in, 0 failed, 1 asked, refused map[]")
		_, h = f.SubmitAndLease(t, picket.TaskSpec{})
		f.CallTwice(t, func() error { _, err := f.Fail(f.Ctx, h, "no", false); return err }) // a person is asked, too
		expect("3 handed in, 1 failed, 2 asked, refused map[]")
		slow, _ := f.SubmitAndLease(t, picket.TaskSpec{})
		_, err := f.Expire(f.Ctx, kit.Operator, slow.TaskID, "stuck")
		kit.OK(t, err)
		expect("3 handed in, 2 failed, 2 asked, refused map[]")
		gone := picket.Refuse(picket.CodeLeaseExpired, "Stop.", "it has ended")
		for range 23 { // the last three are told together
			f.RecordRefusedWrite(f.Ctx, h, "report", gone)
		}
		f.RecordRefusedWrite(f.Ctx, picket.LeaseCredential{RunID: "run_unknown"}, "report",
			picket.Refuse(picket.CodeStaleFence, "Stop.", "superseded"))
		expect("3 handed in, 2 failed, 2 asked, refused map[lease_expired:20 stale_fence:1]")
		f.RunReaperFor(t, time.Minute)
		_, err = f.RunChores(f.Ctx, 10)
		kit.OK(t, err)
		expect("3 handed in, 2 failed, 2 asked, refused map[lease_expired:23 stale_fence:1]")
		f.CancelAll(t)
	})
}

// A slot goes with the hour, and what was counted of it is deleted.
func TestActivityIsOfTheLastHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, stop := rig.Memory()
		defer stop()
		f := openFixture(t, store)
		defer f.Close()
		hand := func() {
			t.Helper()
			_, h := f.SubmitAndLease(t, picket.TaskSpec{})
			_, err := f.Complete(f.Ctx, h, picket.Completion{})
			kit.OK(t, err)
		}
		for n := range 50 { // of 90 seconds each: a turn and a quarter
			hand()
			if n%3 == 0 {
				hand()
			}
			kit.CheckActivity(f.Ctx, t, f.Engine)
			time.Sleep(90 * time.Second)
		}
		if n := len(f.mustStats(t).Activity); n != picket.ActivitySlots && n != picket.ActivitySlots-1 {
			t.Errorf("%d slots", n)
		}
		if n := f.Raw.HLen(f.Ctx, "pk:{default}:pulse").Val(); n > picket.ActivitySlots {
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
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		_, err := f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		p := f.mustStats(t).Activity
		if len(p) != 1 || p[0].Ended != 1 {
			t.Fatalf("counted %+v", p)
		}
		counts, slot := "pk:{default}:pulse", int64(p[0].At)/picket.ActivitySlotMs
		kit.OK(t, f.Raw.Del(f.Ctx, counts).Err()) // an older store
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
			kit.OK(t, f.Raw.Del(f.Ctx, counts).Err())
			kit.OK(t, f.Raw.HSet(f.Ctx, counts, fmt.Sprint(other, " ended"), 7).Err())
			if p := f.mustStats(t).Activity; len(p) != 1 == in {
				t.Errorf("slot %d of %d: %+v", other, slot, p)
			}
		}
		kit.OK(t, f.Raw.Del(f.Ctx, counts).Err())
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
			kit.OK(t, f.Raw.HSet(f.Ctx, counts, field, 7, "nonsense", "x", "", "y").Err())
			kept[field] = keep
		}
		_, h = f.SubmitAndLease(t, picket.TaskSpec{})
		_, err = f.Fail(f.Ctx, h, "no", true)
		kit.OK(t, err)
		f.CancelAll(t)
		if sum := kit.SumActivity(f.mustStats(t).Activity); sum.Failed != 1 || sum.Ended != 7 {
			t.Errorf("beside counts of other hours: %+v", sum)
		}
		left := f.Raw.HGetAll(f.Ctx, counts).Val()
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
