package orchestrator_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Read from its end, the log is the log read from its beginning turned round,
// whatever the size of a page and whatever is asked for.
func TestTheLogReadBackwards(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		var mine string
		for n := range 12 {
			task := f.MustSubmit(t, picket.TaskSpec{})
			if n == 4 {
				mine = task.TaskID
				_, err := f.Cancel(f.Ctx, kit.Operator, mine, "enough")
				kit.OK(t, err)
			}
		}
		for _, q := range []picket.EventQuery{{}, {TaskID: mine}, {Types: []string{picket.EventTaskCancelled}},
			{TaskID: "task_none"}} {
			all, err := f.Events(f.Ctx, q)
			kit.OK(t, err)
			slices.Reverse(all.Events)
			for _, limit := range []int{1, 3, 13, 100} {
				q := q
				q.NewestFirst, q.Limit = true, limit
				var got []int64
				for pages := 0; ; pages++ {
					page, err := f.Events(f.Ctx, q)
					kit.OK(t, err)
					for _, ev := range page.Events {
						got = append(got, ev.Seq)
					}
					if page.Next == "" {
						break
					}
					if q.After = seq(page.Next); pages > 20 {
						t.Fatalf("%+v never ends", q)
					}
				}
				if want := seqs(all.Events); !slices.Equal(got, want) {
					t.Errorf("%+v: %v, want %v", q, got, want)
				}
			}
		}
	})
}

// Until finds its place in a log of any length, also across the gap that an
// adoption leaves and after the beginning was deleted.
func TestTheLogUntilAnInstant(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for n := range 40 {
			id := n + 2
			if n >= 20 {
				id += 1 << 30
			}
			e := kit.OldEvent(id)
			e.Values = []any{"type", picket.EventTaskProgress, "at", 1000 * (n + 1), "now", "1", "actor", "x", "data",
				"{}"}
			kit.OK(t, f.Raw.XAdd(f.Ctx, e).Err())
			kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:meta", "seq", id).Err())
		}
		for n := range 43 {
			page, err := f.Events(f.Ctx,
				picket.EventQuery{NewestFirst: true, Until: picket.Instant(1000*n + 500), Limit: 1})
			kit.OK(t, err)
			switch at := picket.Instant(1000 * min(n, 40)); {
			case n == 0 && len(page.Events) != 0, n > 0 && (len(page.Events) != 1 || page.Events[0].At != at):
				t.Errorf("until %d: %+v, want one of %d", 1000*n+500, page.Events, at)
			}
		}
	})
}

// The ledger backwards is the ledger turned round.
func TestTheLedgerReadBackwards(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "5")})
		_, oh := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "5")})
		for range 4 {
			f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.2")), "0.1"))
			f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, oh, kit.PaidCall("0.2")), "0.1"))
			f.MoveStoreTime(t, time.Second)
		}
		for _, id := range []string{"", task.TaskID} {
			all, err := f.Ledger(f.Ctx, picket.LedgerQuery{TaskID: id})
			kit.OK(t, err)
			slices.Reverse(all.Rows)
			q := picket.LedgerQuery{TaskID: id, NewestFirst: true, Limit: 3}
			var got []picket.LedgerRow
			for {
				page, err := f.Ledger(f.Ctx, q)
				kit.OK(t, err)
				got = append(got, page.Rows...)
				if page.Next == "" {
					break
				}
				q.After = seq(page.Next)
			}
			if !slices.Equal(got, all.Rows) || len(got) < 4 {
				t.Errorf("of %q: %+v, want %+v", id, got, all.Rows)
			}
		}
	})
}

func seq(cursor string) int64 {
	n, _ := strconv.ParseInt(cursor, 10, 64)
	return n
}

func seqs(events []picket.Event) []int64 {
	var out []int64
	for _, ev := range events {
		out = append(out, ev.Seq)
	}
	return out
}
