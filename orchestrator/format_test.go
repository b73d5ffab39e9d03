package orchestrator_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
	"github.com/picket-dev/picket/orchestrator/store"
)

func (f *fixture) format(t *testing.T) string {
	t.Helper()
	got, err := f.Raw.HGet(f.Ctx, kit.Meta, "format").Result()
	kit.OK(t, err)
	return got
}

// A new namespace says its format from its first record on.
func TestANewStoreSaysItsFormat(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		if got := f.format(t); got != "3" {
			t.Errorf("format %q, want 3", got)
		}
	})
}

// A store that a later version has written is refused by every script, and
// none of them changes anything in it.
func TestEveryScriptRefusesANewerStore(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		f.AcquireOne(t, picket.AcquireRequest{})
		f.SetFormat(t, 4)
		before := metaAndAllKeys(t, f)
		for _, name := range kit.ScriptNames() {
			err := kit.CallRaw(f.Ctx, f.Raw, f.Store, f.RigStore, name, "1", "1", "1", "1", "1", "1", "1", "1")
			if err == nil || !strings.HasPrefix(err.Error(), "store_newer format=4 known=3") {
				t.Errorf("%s.lua: got %v, want store_newer", name, err)
			}
		}
		if after := metaAndAllKeys(t, f); before != after {
			t.Errorf("the store was changed:\n%s\n%s", before, after)
		}
	})
}

// A running process answers orchestrator_unavailable with the remedy, and goes
// on once the store has a format that it knows.
func TestARunningProcessStopsAtANewerStore(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		l := f.AcquireOne(t, picket.AcquireRequest{})
		f.SetFormat(t, 7)
		_, err := f.Renew(f.Ctx, f.OpenLease(t, l))
		kit.RefusedAsNewer(t, err)
		kit.RefusedAsNewer(t, kit.EnsureAdopted(f.Ctx, f.Engine))
		f.SetFormat(t, kit.Format)
		f.MustRenew(t, l)
	})
}

func metaAndAllKeys(t *testing.T, f *fixture) string {
	t.Helper()
	text, err := kit.Dump(f.Ctx, f.Raw, nil)
	kit.OK(t, err)
	return text
}

// No process starts on a newer store, whether it may adopt stores or not, and
// the namespace is not adopted on the way.
func TestNoProcessStartsOnANewerStore(t *testing.T) {
	stores(t, func(t *testing.T, f *fixture, s rig.Store) {
		f.SetFormat(t, 7)
		for _, identity := range []string{"", "another server"} {
			if identity != "" {
				kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "identity", identity).Err())
			}
			before := metaAndAllKeys(t, f)
			for _, witness := range []string{"", t.TempDir()} {
				store, err := orchestrator.Open(f.Ctx,
					orchestrator.Config{Redis: s.Redis, Memory: s.Memory, Sealer: f.Sealer, Witness: witness,
						Log: slog.New(slog.DiscardHandler)})
				if err == nil {
					_ = store.Close()
				}
				kit.RefusedAsNewer(t, err)
			}
			if after := metaAndAllKeys(t, f); before != after {
				t.Errorf("the store was changed:\n%s\n%s", before, after)
			}
		}
	})
}

// Until every record has the format of this build, each verb refuses without a change, except those
// of the conversion. Both a store that waits for its conversion and one in which it is under way are
// refused.
func TestEveryScriptWaitsForTheConversion(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		f.AcquireOne(t, picket.AcquireRequest{})
		for _, format := range []int{1, 2, kit.Format} {
			f.SetFormat(t, format)
			if format == kit.Format {
				kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "migrating", "7 0 0 a server").Err())
			}
			before := metaAndAllKeys(t, f)
			for _, name := range kit.ScriptNames() {
				if name == "identify" || name == "migrate" {
					continue
				}
				err := kit.CallRaw(f.Ctx, f.Raw, f.Store, f.RigStore, name, "1", "1", "1", "1", "1", "1", "1", "1")
				if err == nil || !strings.HasPrefix(err.Error(), "store_migrating ") {
					t.Errorf("%s.lua: got %v, want store_migrating", name, err)
				}
			}
			if after := metaAndAllKeys(t, f); before != after {
				t.Errorf("the store was changed:\n%s\n%s", before, after)
			}
		}
	})
}

// The records of an earlier format are converted in steps of a bounded size. What they say stays the
// same, and so does store time. A step more changes nothing.
func TestRecordsAreConvertedInSteps(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for range 20 {
			f.SubmitAndLease(t, picket.TaskSpec{})
		}
		before := metaAndAllKeys(t, f)
		records, err := kit.ToFormat1(f.Ctx, f.Raw, "default")
		kit.OK(t, err)
		const keys = 4
		steps, converted := 0, int64(0)
		for done := false; !done; steps++ {
			done, err = kit.Migrate(f.Ctx, f.Engine, 20, keys)
			kit.OK(t, err)
			now := convertedRecords(t, f)
			if now > converted+keys {
				t.Errorf("step %d has converted %d records, want at most %d", steps, now-converted, keys)
			}
			converted = now
			if f.format(t) != "3" {
				t.Fatalf("after step %d the format is %s", steps, f.format(t))
			}
		}
		if converted != int64(records) || steps < records/keys {
			t.Errorf("%d of %d records were converted in %d steps", converted, records, steps)
		}
		done, err := kit.Migrate(f.Ctx, f.Engine, 20, keys)
		if kit.OK(t, err); !done {
			t.Error("there is more to do after the last step")
		}
		if after := metaAndAllKeys(t, f); before != after {
			t.Errorf("the store was changed:\n%s\n%s", before, after)
		}
	})
}

// convertedRecords is how many records are strings.
func convertedRecords(t *testing.T, f *fixture) (n int64) {
	t.Helper()
	keys := f.Raw.ScanType(f.Ctx, 0, "pk:{default}:*", 1000, "string").Iterator()
	for keys.Next(f.Ctx) {
		if rig.IsRecord(keys.Val()) {
			n++
		}
	}
	kit.OK(t, keys.Err())
	return n
}

// A position is good only for the server process that gave it. Another one looks at all keys.
func TestAnotherServerConvertsFromTheBeginning(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for range 20 {
			f.MustSubmit(t, picket.TaskSpec{})
		}
		records, err := kit.ToFormat1(f.Ctx, f.Raw, "default")
		kit.OK(t, err)
		f.SetFormat(t, kit.Format)
		kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "migrating", "1152921504606846975 0 0 another server").Err())
		for done := false; !done; {
			done, err = kit.Migrate(f.Ctx, f.Engine, 10, 10)
			kit.OK(t, err)
		}
		if got := convertedRecords(t, f); got != int64(records) {
			t.Errorf("%d of %d records were converted", got, records)
		}
	})
}

// A process that runs converts a store of an earlier format that was put back under it. Until then it
// answers that it will.
func TestARunningProcessConvertsTheStore(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		l := f.AcquireOne(t, picket.AcquireRequest{})
		_, err := kit.ToFormat1(f.Ctx, f.Raw, "default")
		kit.OK(t, err)
		kit.WaitFor(t, "the store is converted", func() bool {
			err := kit.EnsureAdopted(f.Ctx, f.Engine) // as the process does each second
			if err != nil {
				kit.RefusedAsMigrating(t, err)
			}
			return err == nil
		})
		f.MustRenew(t, l)
	})
}

// wantStringFormats checks the formats of strings of records, by the ends of their keys.
func wantStringFormats(t *testing.T, f *fixture, want int, keys ...string) {
	t.Helper()
	for _, key := range keys {
		got, err := kit.StringFormat(f.Ctx, f.Raw, "pk:{default}:"+key)
		if kit.OK(t, err); got != want {
			t.Errorf("%s is a string of format %d, want %d", key, got, want)
		}
	}
}

// oddField is a field that no list has, with a value of unusual bytes.
const oddField, oddValue = "odd", "a\x00\n\"b"

// A store of format 2 is refused until a step of the conversion has raised the format, however few keys the step looks
// at. The step leaves the strings as they are. Leases, money and the queue go on, and what changes is a string of
// format 3 from then on, with all its fields.
func TestAStoreOfFormat2GoesOn(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		lease := func() (picket.Task, picket.LeaseCredential) {
			return f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(100, "1.50"),
				Labels: map[string]string{"a": "b"}})
		}
		ends, ending := lease()
		goesOn, held := lease()
		pays, paying := lease()
		settled := f.MustReserve(t, paying, kit.PaidCall("0.50"))
		queued := f.MustSubmit(t, picket.TaskSpec{Title: "queued"})
		untouched := f.MustSubmit(t, picket.TaskSpec{Title: "untouched"})
		odd := []string{"task:" + ends.TaskID, "run:" + ending.RunID, "env:" + pays.TaskID}
		for _, key := range odd {
			kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:"+key, oddField, oddValue).Err())
		}
		before := metaAndAllKeys(t, f)
		records, err := kit.ToFormat2(f.Ctx, f.Raw, "default")
		if kit.OK(t, err); records < 11 {
			t.Errorf("there are %d records", records)
		}
		err = kit.CallRaw(f.Ctx, f.Raw, f.Store, f.RigStore, "renew", ending.RunID)
		if err == nil || !strings.HasPrefix(err.Error(), "store_migrating format=2 known=3") {
			t.Errorf("a store of format 2 answers %v", err)
		}
		done, err := kit.Migrate(f.Ctx, f.Engine, 1, 1)
		if kit.OK(t, err); !done || f.format(t) != "3" {
			t.Errorf("after one step done is %v and the format %s", done, f.format(t))
		}
		if after := metaAndAllKeys(t, f); before != after {
			t.Errorf("the store was changed:\n%s\n%s", before, after)
		}
		changed := []string{"task:" + ends.TaskID, "run:" + ending.RunID, "task:" + goesOn.TaskID, "run:" + held.RunID,
			"env:" + pays.TaskID, "task:" + queued.TaskID}
		left := []string{"task:" + untouched.TaskID, "env:" + goesOn.TaskID, "env:" + untouched.TaskID}
		wantStringFormats(t, f, 2, append(changed, left...)...)

		for _, h := range []picket.LeaseCredential{ending, held, paying} {
			_, err := f.Renew(f.Ctx, h)
			kit.OK(t, err)
		}
		_, err = f.Report(f.Ctx, held, "", picket.Progress{Summary: "going on"})
		kit.OK(t, err)
		f.MustSettle(t, kit.DoneSettlement(settled, "0.20"))
		f.MustReserve(t, paying, kit.PaidCall("1.10"))
		_, err = f.Complete(f.Ctx, ending, picket.Completion{Summary: "done"})
		kit.OK(t, err)
		if l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}); l.TaskID != queued.TaskID {
			t.Errorf("task %s was granted, want %s", l.TaskID, queued.TaskID)
		}
		wantStringFormats(t, f, 3, changed...)
		wantStringFormats(t, f, 2, left...)
		for _, key := range odd {
			if got := f.Raw.HGet(f.Ctx, "pk:{default}:"+key, oddField).Val(); got != oddValue {
				t.Errorf("%s of %s is %q", oddField, key, got)
			}
		}
		money, err := f.Envelope(f.Ctx, pays.TaskID)
		kit.OK(t, err)
		if money.Available != *kit.Worth(100, "0.20") || money.Spent.USD != kit.USD("0.20") ||
			money.Held.USD != kit.USD("1.10") {
			t.Errorf("the envelope is %+v", money)
		}
		if task := f.WantState(t, ends.TaskID, picket.TaskReview); task.Labels["a"] != "b" {
			t.Errorf("the task is %+v", task)
		}
		f.WantState(t, untouched.TaskID, picket.TaskQueued)
		found, err := kit.InspectAll(f.Ctx, f.Engine, false)
		if kit.OK(t, err); len(found) > 0 {
			t.Errorf("the inspection finds %+v", found)
		}
	})
}

// A conversion from format 1 that an earlier version has begun is carried on. Its format is 2 already, and not all
// records are strings.
func TestABegunConversionToFormat2IsCarriedOn(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for range 20 {
			f.MustSubmit(t, picket.TaskSpec{})
		}
		records, err := kit.ToFormat1(f.Ctx, f.Raw, "default")
		kit.OK(t, err)
		f.SetFormat(t, 2)
		kit.OK(t, f.Raw.HSet(f.Ctx, kit.Meta, "migrating", "0 0 0 another server").Err())
		for done := false; !done; {
			done, err = kit.Migrate(f.Ctx, f.Engine, 10, 10)
			kit.OK(t, err)
		}
		if got := convertedRecords(t, f); got != int64(records) || f.format(t) != "3" {
			t.Errorf("%d of %d records were converted to format %s", got, records, f.format(t))
		}
	})
}

// A process that adopts no stores converts none.
func TestOnlyAnOrchestratorConvertsTheStore(t *testing.T) {
	stores(t, func(t *testing.T, f *fixture, s rig.Store) {
		f.MustSubmit(t, picket.TaskSpec{})
		_, err := kit.ToFormat1(f.Ctx, f.Raw, "default")
		kit.OK(t, err)
		before := metaAndAllKeys(t, f)
		other := f.OpenProcess(t, s, orchestrator.Config{})
		_, err = other.Engine("default").Stats(f.Ctx)
		kit.RefusedAsMigrating(t, err)
		if after := metaAndAllKeys(t, f); before != after {
			t.Errorf("the store was changed:\n%s\n%s", before, after)
		}
		f.OpenProcess(t, s, orchestrator.Config{Witness: t.TempDir()})
		_, err = other.Engine("default").Stats(f.Ctx)
		kit.OK(t, err)
	})
}

// The check tells the format of each namespace, and counts what the next start converts. It changes nothing.
func TestCheckFormatReal(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	check := func(enough context.Context) ([]store.FormatState, error) {
		return store.CheckFormat(f.Ctx, enough, f.RigStore.Redis, []string{"default", "nobody-made-this"},
			func(int64) {})
	}
	want := func(states []store.FormatState, text string) {
		t.Helper()
		const none = "nobody-made-this does not exist yet"
		if len(states) != 2 || states[0].String() != text || states[1].String() != none {
			t.Errorf("the states are %v, want %s", states, text)
		}
	}
	states, err := check(f.Ctx)
	kit.OK(t, err)
	want(states, "default has format 3")
	f.MustSubmit(t, picket.TaskSpec{})
	records, err := kit.ToFormat1(f.Ctx, f.Raw, "default")
	kit.OK(t, err)
	before := metaAndAllKeys(t, f)
	states, err = check(f.Ctx)
	kit.OK(t, err)
	want(states, fmt.Sprintf("default has format 1: the next start of an orchestrator converts %d records to format 3",
		records))
	ended, end := context.WithCancel(f.Ctx)
	end()
	states, err = check(ended)
	kit.OK(t, err)
	want(states, "default has format 1: the next start of an orchestrator converts more than 0 records to format 3")
	if after := metaAndAllKeys(t, f); before != after {
		t.Errorf("the store was changed:\n%s\n%s", before, after)
	}
	f.SetFormat(t, 2)
	before = metaAndAllKeys(t, f)
	states, err = store.CheckFormat(f.Ctx, ended, f.RigStore.Redis, []string{"default", "nobody-made-this"},
		func(int64) { t.Error("records of format 2 are looked for") })
	kit.OK(t, err)
	want(states, "default has format 2: the next start of an orchestrator converts 0 records to format 3")
	if !states[0].Counted || states[0].Records != 0 || !states[0].Old() {
		t.Errorf("the state is %+v", states[0])
	}
	if after := metaAndAllKeys(t, f); before != after {
		t.Errorf("the store was changed:\n%s\n%s", before, after)
	}
	f.SetFormat(t, 7)
	_, err = check(f.Ctx)
	kit.RefusedAsNewer(t, err)
}
