package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// countRunEvents reads the whole log and counts the events of a run by type, and how
// many of its events were counted instead of written.
func (f *fixture) countRunEvents(t *testing.T, runID string) (types map[string]int, counted int) {
	t.Helper()
	types = map[string]int{}
	q := picket.EventQuery{Limit: 1000}
	for {
		page, err := f.Events(f.Ctx, q)
		kit.OK(t, err)
		if len(page.Events) == 0 {
			return types, counted
		}
		for _, ev := range page.Events {
			q.After = ev.Seq
			if ev.RunID != runID {
				continue
			}
			types[ev.Type]++
			var data struct {
				Verb  string `json:"verb"`
				Count int    `json:"count"`
			}
			kit.OK(t, json.Unmarshal(ev.Data, &data))
			if ev.Type == picket.EventWriteRefused && data.Verb == "events" {
				counted += data.Count
			}
		}
	}
}

// A holder that floods the log writes its budget and no more. The others are
// counted, and the two events that the adapter owes the log still arrive once.
func TestEventBudgetBoundsAFlood(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		f.FloodHeartbeats(t, h, "a", 3000)
		timed := []picket.RunEvent{{Type: picket.EventAgentTimeoutWarning, ID: "w"},
			{Type: picket.EventAgentTimedOut, ID: "t"}}
		kit.OK(t, f.RunEvents(f.Ctx, h, timed))
		f.FloodHeartbeats(t, h, "b", 200) // displaces what the run remembers of ids
		kit.OK(t, f.RunEvents(f.Ctx, h, timed))
		f.EndBudgetMinute(t)
		types, counted := f.countRunEvents(t, h.RunID)
		beats := types[picket.EventAgentHeartbeat]
		if beats < 240 || beats > 250 || counted != 3200-beats {
			t.Errorf("%d heartbeats were written and %d counted of 3200", beats, counted)
		}
		if types[picket.EventAgentTimeoutWarning] != 1 || types[picket.EventAgentTimedOut] != 1 {
			t.Errorf("the log has %v", types)
		}
		if n := types[picket.EventWriteRefused]; n > 2 {
			t.Errorf("the flood wrote %d events about itself in one minute", n)
		}
		if n := f.RefusedWrites()["quota_exceeded"]; n != int64(counted) {
			t.Errorf("the metric counts %d, the log %d", n, counted)
		}
	})
}

// A run that sends an event every five seconds for hours loses none of them.
func TestEventBudgetServesALongRun(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		const beats = 400
		for i := range beats {
			_, err := f.Renew(f.Ctx, h)
			kit.OK(t, err)
			kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: picket.EventAgentHeartbeat, ID: fmt.Sprint(i)}}))
			f.JumpStoreTime(t, 5*time.Second)
		}
		if types, counted := f.countRunEvents(t, h.RunID); types[picket.EventAgentHeartbeat] != beats || counted != 0 {
			t.Errorf("the log has %v of %d, %d were counted", types, beats, counted)
		}
	})
}

// A superseded token has no budget. Only the warning and the end that its
// adapter may not have sent yet are taken, each once.
func TestEventBudgetOfASupersededRun(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		_, err := f.Expire(f.Ctx, kit.Operator, task.TaskID, "test")
		kit.OK(t, err)
		next := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		f.FloodHeartbeats(t, h, "a", 1000)
		for range 3 {
			kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: picket.EventRunStalled, IdleSeconds: kit.Ptr(9.0)},
				{Type: picket.EventAgentTimedOut, ID: "t"}, {Type: picket.EventAgentTimedOut, ID: "another"}}))
		}
		f.EndBudgetMinute(t)
		types, counted := f.countRunEvents(t, h.RunID)
		if types[picket.EventAgentHeartbeat]+types[picket.EventRunStalled] != 0 ||
			types[picket.EventAgentTimedOut] != 1 || counted != 1006 {
			t.Errorf("the log has %v, %d were counted", types, counted)
		}
		kit.OK(t, f.RunEvents(f.Ctx, next, []picket.RunEvent{{Type: picket.EventAgentHeartbeat}}))
		if types, counted := f.countRunEvents(t, next.RunID); types[picket.EventAgentHeartbeat] != 1 || counted != 0 {
			t.Errorf("of the holder the log has %v, %d were counted", types, counted)
		}
	})
}

// After the exit the events up to the one that it names are taken, in whatever
// order exit and events arrive, and for 30 s.
func TestEventsAfterTheExit(t *testing.T) {
	beat := func(id string) picket.RunEvent { return picket.RunEvent{Type: picket.EventAgentHeartbeat, ID: id} }
	end := picket.RunEvent{Type: picket.EventAgentTimedOut, ID: "end"}
	for _, tt := range []struct {
		name   string
		before []picket.RunEvent
		last   *string
		wait   time.Duration
		after  []picket.RunEvent
		beats  int
		ends   int
	}{
		{"the last one comes after the exit", nil, kit.Ptr("end"), 0, []picket.RunEvent{beat("1"), end, beat("2"), end},
			1,
			1},
		{"the last one came before", []picket.RunEvent{beat("1"), end}, kit.Ptr("end"), 0,
			[]picket.RunEvent{beat("2"), end, beat("3")}, 1, 1},
		{"the last one comes after 29 s", nil, kit.Ptr("end"), 29 * time.Second, []picket.RunEvent{beat("1"), end}, 1,
			1},
		{"the last one comes too late", nil, kit.Ptr("end"), 31 * time.Second, []picket.RunEvent{beat("1"), end}, 0, 0},
		{"there was none", nil, kit.Ptr(""), 0, []picket.RunEvent{beat("1"), end}, 0, 0},
		{"an adapter that names none", nil, nil, 0, []picket.RunEvent{beat("1"), end}, 0, 1},
		{"an adapter that names none, too late", nil, nil, 31 * time.Second, []picket.RunEvent{beat("1"), end}, 0, 0},
	} {
		for _, how := range []string{"exit", "release"} {
			t.Run(tt.name+"/"+how, func(t *testing.T) {
				onBothStores(t, func(t *testing.T, f *fixture) {
					task := f.MustSubmit(t, picket.TaskSpec{})
					h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
					if len(tt.before) > 0 {
						kit.OK(t, f.RunEvents(f.Ctx, h, tt.before))
					}
					gone := picket.Exit{Class: picket.ExitTimeout, Code: kit.Ptr(1), LastEvent: tt.last}
					if how == "release" {
						_, err := f.Release(f.Ctx, h, gone)
						kit.OK(t, err)
					} else {
						_, err := f.Expire(f.Ctx, kit.Operator, task.TaskID, "test")
						kit.OK(t, err)
						kit.OK(t, f.RunExit(f.Ctx, h, gone, ""))
					}
					f.JumpStoreTime(t, tt.wait)
					kit.OK(t, f.RunEvents(f.Ctx, h, tt.after))
					types, _ := f.countRunEvents(t, h.RunID)
					if types[picket.EventAgentHeartbeat] != tt.beats || types[picket.EventAgentTimedOut] != tt.ends {
						t.Errorf("the log has %v, want %d heartbeats and %d ends", types, tt.beats, tt.ends)
					}
				})
			})
		}
	}
}

// The events of another exit of the same run come from the budget, and no exit
// opens the time for late events again.
func TestExitsOfARunAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		_, err := f.Expire(f.Ctx, kit.Operator, task.TaskID, "test")
		kit.OK(t, err)
		for i := range 1000 {
			kit.OK(t, f.RunExit(f.Ctx, h,
				picket.Exit{Class: picket.ExitCrash, Code: kit.Ptr(i % 2), LastEvent: kit.Ptr(fmt.Sprint(i))}, ""))
		}
		kit.OK(t, f.RunEvents(f.Ctx, h,
			[]picket.RunEvent{{Type: picket.EventAgentHeartbeat, ID: "0"},
				{Type: picket.EventAgentHeartbeat, ID: "999"}}))
		f.EndBudgetMinute(t)
		types, _ := f.countRunEvents(t, h.RunID)
		if n := types[picket.EventRunExited]; n < 240 || n > 250 {
			t.Errorf("%d exits were written of 1000", n)
		}
		if types[picket.EventAgentHeartbeat] != 0 || types[picket.EventWriteRefused] > 3 {
			t.Errorf("the log has %v", types)
		}
	})
}
