package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// countRunEvents reads the whole log and counts the events of a run by type, and how
// many of its events were counted instead of written.
func (f *fixture) countRunEvents(t *testing.T, runID string) (types map[string]int, counted int) {
	t.Helper()
	types = map[string]int{}
	q := picket.EventQuery{Limit: 1000}
	for {
		page, err := f.Events(f.ctx, q)
		ok(t, err)
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
			ok(t, json.Unmarshal(ev.Data, &data))
			if ev.Type == picket.EventWriteRefused && data.Verb == "events" {
				counted += data.Count
			}
		}
	}
}

// floodHeartbeats posts n heartbeats with ids of their own.
func (f *fixture) floodHeartbeats(t *testing.T, h picket.LeaseCredential, name string, n int) {
	t.Helper()
	for done := 0; done < n; done += 100 {
		var list []picket.RunEvent
		for i := range min(100, n-done) {
			list = append(list, picket.RunEvent{
				Type: picket.EventAgentHeartbeat,
				ID:   fmt.Sprintf("%s%d", name, done+i),
			})
		}
		ok(t, f.RunEvents(f.ctx, h, list))
	}
}

// endBudgetMinute ends the minute, so that what was only counted is told.
func (f *fixture) endBudgetMinute(t *testing.T) {
	t.Helper()
	f.jumpStoreTime(t, time.Minute)
	ok(t, f.Tick(f.ctx))
}

// A holder that floods the log writes its budget and no more. The others are
// counted, and the two events that the adapter owes the log still arrive once.
func TestEventBudgetBoundsAFlood(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{})
		h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		f.floodHeartbeats(t, h, "a", 3000)
		timed := []picket.RunEvent{{Type: picket.EventAgentTimeoutWarning, ID: "w"},
			{Type: picket.EventAgentTimedOut, ID: "t"}}
		ok(t, f.RunEvents(f.ctx, h, timed))
		f.floodHeartbeats(t, h, "b", 200) // displaces what the run remembers of ids
		ok(t, f.RunEvents(f.ctx, h, timed))
		f.endBudgetMinute(t)
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
		f.mustSubmit(t, picket.TaskSpec{})
		h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		const beats = 400
		for i := range beats {
			_, err := f.Renew(f.ctx, h)
			ok(t, err)
			ok(t, f.RunEvents(f.ctx, h, []picket.RunEvent{{Type: picket.EventAgentHeartbeat, ID: fmt.Sprint(i)}}))
			f.jumpStoreTime(t, 5*time.Second)
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
		task := f.mustSubmit(t, picket.TaskSpec{})
		h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		_, err := f.Expire(f.ctx, operator, task.TaskID, "test")
		ok(t, err)
		next := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		f.floodHeartbeats(t, h, "a", 1000)
		for range 3 {
			ok(t, f.RunEvents(f.ctx, h, []picket.RunEvent{{Type: picket.EventRunStalled, IdleSeconds: ptr(9.0)},
				{Type: picket.EventAgentTimedOut, ID: "t"}, {Type: picket.EventAgentTimedOut, ID: "another"}}))
		}
		f.endBudgetMinute(t)
		types, counted := f.countRunEvents(t, h.RunID)
		if types[picket.EventAgentHeartbeat]+types[picket.EventRunStalled] != 0 ||
			types[picket.EventAgentTimedOut] != 1 || counted != 1006 {
			t.Errorf("the log has %v, %d were counted", types, counted)
		}
		ok(t, f.RunEvents(f.ctx, next, []picket.RunEvent{{Type: picket.EventAgentHeartbeat}}))
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
		{"the last one comes after the exit", nil, ptr("end"), 0, []picket.RunEvent{beat("1"), end, beat("2"), end}, 1,
			1},
		{"the last one came before", []picket.RunEvent{beat("1"), end}, ptr("end"), 0,
			[]picket.RunEvent{beat("2"), end, beat("3")}, 1, 1},
		{"the last one comes after 29 s", nil, ptr("end"), 29 * time.Second, []picket.RunEvent{beat("1"), end}, 1, 1},
		{"the last one comes too late", nil, ptr("end"), 31 * time.Second, []picket.RunEvent{beat("1"), end}, 0, 0},
		{"there was none", nil, ptr(""), 0, []picket.RunEvent{beat("1"), end}, 0, 0},
		{"an adapter that names none", nil, nil, 0, []picket.RunEvent{beat("1"), end}, 0, 1},
		{"an adapter that names none, too late", nil, nil, 31 * time.Second, []picket.RunEvent{beat("1"), end}, 0, 0},
	} {
		for _, how := range []string{"exit", "release"} {
			t.Run(tt.name+"/"+how, func(t *testing.T) {
				onBothStores(t, func(t *testing.T, f *fixture) {
					task := f.mustSubmit(t, picket.TaskSpec{})
					h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
					if len(tt.before) > 0 {
						ok(t, f.RunEvents(f.ctx, h, tt.before))
					}
					gone := picket.Exit{Class: picket.ExitTimeout, Code: ptr(1), LastEvent: tt.last}
					if how == "release" {
						_, err := f.Release(f.ctx, h, gone)
						ok(t, err)
					} else {
						_, err := f.Expire(f.ctx, operator, task.TaskID, "test")
						ok(t, err)
						ok(t, f.RunExit(f.ctx, h, gone, ""))
					}
					f.jumpStoreTime(t, tt.wait)
					ok(t, f.RunEvents(f.ctx, h, tt.after))
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
		task := f.mustSubmit(t, picket.TaskSpec{})
		h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		_, err := f.Expire(f.ctx, operator, task.TaskID, "test")
		ok(t, err)
		for i := range 1000 {
			ok(t, f.RunExit(f.ctx, h,
				picket.Exit{Class: picket.ExitCrash, Code: ptr(i % 2), LastEvent: ptr(fmt.Sprint(i))}, ""))
		}
		ok(t, f.RunEvents(f.ctx, h,
			[]picket.RunEvent{{Type: picket.EventAgentHeartbeat, ID: "0"},
				{Type: picket.EventAgentHeartbeat, ID: "999"}}))
		f.endBudgetMinute(t)
		types, _ := f.countRunEvents(t, h.RunID)
		if n := types[picket.EventRunExited]; n < 240 || n > 250 {
			t.Errorf("%d exits were written of 1000", n)
		}
		if types[picket.EventAgentHeartbeat] != 0 || types[picket.EventWriteRefused] > 3 {
			t.Errorf("the log has %v", types)
		}
	})
}
