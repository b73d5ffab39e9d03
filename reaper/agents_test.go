package reaper_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// Agents die on schedule and once, however many reapers look; their leases end
// after them, and one that is alive is left alone.
func TestAgentsAreJudgedOnScheduleAndOnce(t *testing.T) {
	rig.SkipShort(t)
	for _, n := range []int{1, 3} {
		virtual(t, func(ns *namespace) {
			defer ns.startReapers(n)()
			ctx, most := ns.t.Context(), 100
			interval, unhealthy, dead := 5, 10, 20
			soon := picket.Thresholds{
				IntervalSeconds:       &interval,
				UnhealthyAfterSeconds: &unhealthy,
				DeadAfterSeconds:      &dead,
			}
			for i := range 20 {
				id := fmt.Sprint("agent", i)
				_, err := ns.Register(ctx, operator, picket.Registration{AgentID: id, Heartbeat: &soon})
				ns.must(err)
			}
			window := 3600
			for range 250 {
				_, err := ns.Submit(ctx, operator, picket.TaskSpec{Title: "a task", LeaseWindowSeconds: &window})
				ns.must(err)
			}
			var held []picket.Lease
			for len(held) < 250 {
				got, err := ns.Acquire(ctx, operator, picket.AcquireRequest{AgentID: "agent0", Max: &most})
				ns.must(err)
				held = append(held, got...)
			}
			for _, l := range held {
				ns.must(ns.renew(l))
			}
			beat := func() {
				_, err := ns.Heartbeat(ctx, operator, "agent1",
					picket.Heartbeat{Status: picket.AgentActive, ClientTimestamp: picket.InstantOf(time.Now())})
				ns.must(err)
			}
			beat()
			time.Sleep(9 * time.Second)
			if got := ns.countEvents(picket.EventAgentLifecycle); got != 20 {
				ns.t.Errorf("%d reapers: %d lifecycle events after 9 s, want 20", n, got)
			}
			for range 4 {
				beat()
				time.Sleep(3 * time.Second)
			}
			if got := ns.countEvents(picket.EventAgentLifecycle); got != 58 {
				ns.t.Errorf("%d reapers: %d lifecycle events after 21 s, want 58", n, got)
			}
			if got := ns.countEvents(picket.EventLeaseExpired); got != 250 {
				ns.t.Errorf("%d reapers: %d leases ended, want 250", n, got)
			}
			for i, want := range []picket.AgentStatus{picket.AgentDead, picket.AgentActive, picket.AgentDead} {
				if a, _, err := ns.Agent(ctx, fmt.Sprint("agent", i)); err != nil || a.Status != want {
					ns.t.Errorf("agent%d is %s, want %s: %v", i, a.Status, want, err)
				}
			}
		})
	}
}
