package reaper_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// Calls that nobody settles are settled at their deadline, once each, however
// many reapers look, and one that was settled in time is left alone.
func TestCallsAreSettledOnScheduleAndOnce(t *testing.T) {
	for _, n := range []int{1, 3} {
		virtual(t, func(ns *namespace) {
			defer ns.startReapers(n)()
			ctx := ns.t.Context()
			l := ns.addLeases(1, 3600)[0]
			h, err := ns.sealer.OpenLeaseToken(l.LeaseToken.Reveal())
			ns.must(err)
			const calls = 250 // more than a batch
			for i := range calls {
				r, err := ns.Reserve(ctx, h,
					picket.CallRequest{CallID: fmt.Sprint("c", i), Nonce: "n", Tool: "http_request",
						Reserve: budget.Envelope{USD: 1_000_000}, Effects: picket.EffectsNone, TimeoutMs: 5000})
				ns.must(err)
				if i == 0 {
					_, err = ns.Settle(ctx, picket.Settlement{
						CallID:  r.CallID,
						TaskID:  r.TaskID,
						Nonce:   r.Nonce,
						Outcome: picket.CallDone,
					})
					ns.must(err)
				}
			}
			for _, look := range []struct {
				after time.Duration
				held  budget.Money
			}{{14 * time.Second, 249_000_000}, {2 * time.Second, 0}} {
				time.Sleep(look.after)
				task, err := ns.Task(ctx, l.TaskID)
				ns.must(err)
				if task.Held.USD != look.held || task.Spent.USD != 249_000_000-look.held {
					ns.t.Errorf("%d reapers: held %s, spent %s", n, task.Held.USD, task.Spent.USD)
				}
			}
			if got := ns.countEvents(picket.EventToolCalled); got != calls {
				ns.t.Errorf("%d reapers: %d events for %d calls", n, got, calls)
			}
		})
	}
}
