package orchestrator_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A row of the leases says how its run goes.
func TestLeasesTellHowRunsGo(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, picket.Registration{AgentID: "a1", Name: "Ada", RoleID: "coder"})
		task := f.MustSubmit(t, picket.TaskSpec{
			Title:          "fix the build",
			Role:           "coder",
			Labels:         map[string]string{"team": "core"},
			TimeoutSeconds: kit.Ptr(100),
			BudgetEnvelope: kit.Worth(1000, "2"),
		})
		leases, err := f.Acquire(f.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: "a1", Role: "coder"})
		kit.OK(t, err)
		lease := leases[0]
		h := f.OpenLease(t, lease)
		got := f.onlyLease(t)
		if got.LastReport != nil || got.Nudge != nil || got.IdleMs != nil || got.StallAfterSeconds != nil ||
			got.NeedsALook() {
			t.Errorf("before the run has done anything: %+v", got)
		}
		_, err = f.Report(f.Ctx, h, "", picket.Progress{Summary: "half\n" + strings.Repeat("done ", 100)})
		kit.OK(t, err)
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.5")), "0.25"))
		f.MustReserve(t, h, kit.PaidCall("1"))
		f.MoveStoreTime(t, time.Second)
		got = f.onlyLease(t)
		if note := got.LastReport; note == nil || !strings.HasPrefix(note.Summary, "half done") ||
			len(note.Summary) > picket.MaxReportNote+len("…") || note.At < got.StartedAt {
			t.Errorf("the last report is %+v", note)
		}
		if got.IdleMs == nil || *got.IdleMs < 1000 {
			t.Errorf("idle for %v ms", got.IdleMs)
		}
		want := picket.LiveLease{
			TaskID:         task.TaskID,
			RunID:          lease.RunID,
			AgentID:        "a1",
			AgentName:      "Ada",
			FencingToken:   1,
			Title:          "fix the build",
			Role:           "coder",
			Labels:         map[string]string{"team": "core"},
			Attempt:        1,
			TimeoutSeconds: kit.Ptr(100),
			Granted:        *kit.Worth(1000, "2"),
			Spent:          budget.Envelope{USD: kit.USD("0.25")},
			Held:           budget.Envelope{USD: kit.USD("1")},
			// What time decides is looked at elsewhere.
			LeaseExpiresAt: got.LeaseExpiresAt,
			LeaseTTLMs:     got.LeaseTTLMs,
			StartedAt:      got.StartedAt,
			ElapsedMs:      got.ElapsedMs,
			IdleMs:         got.IdleMs,
			LastReport:     got.LastReport,
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		stalled := picket.RunEvent{Type: picket.EventRunStalled, ID: "1", IdleSeconds: kit.Ptr(9.0)}
		kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{stalled}))
		if got = f.onlyLease(t); !got.Nudged() || got.Nudge.Cause != picket.NudgeSilent || !got.NeedsALook() {
			t.Errorf("after a nudge: %+v", got.Nudge)
		}
	})
}

func (f *fixture) onlyLease(t *testing.T) picket.LiveLease {
	t.Helper()
	page, err := f.Leases(f.Ctx)
	kit.OK(t, err)
	if page.Total != 1 || len(page.Leases) != 1 {
		t.Fatalf("leases %+v", page)
	}
	return page.Leases[0]
}

// The list of leases is bounded in bytes, and says how many there are in all.
func TestLeasesAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for range 3 {
			task, _ := f.SubmitAndLease(t, picket.TaskSpec{})
			spec := `{"title":"` + strings.Repeat("x", 3<<20) + `"}`
			kit.OK(t, f.Raw.Set(f.Ctx, "pk:{default}:spec:"+task.TaskID, spec, 0).Err())
		}
		page, err := f.Leases(f.Ctx)
		kit.OK(t, err)
		if len(page.Leases) != 1 || page.Total != 3 {
			t.Errorf("%d of %d leases are listed", len(page.Leases), page.Total)
		}
	})
}

// A list of leases gives what it is asked for: one task, one agent, or first what needs a look.
func TestLeasesAreSelected(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		find := func(q picket.LeaseQuery) (titles []string, total int64) {
			t.Helper()
			page, err := f.FindLeases(f.Ctx, q)
			kit.OK(t, err)
			for _, l := range page.Leases {
				titles = append(titles, l.Title)
			}
			return titles, page.Total
		}
		f.MustRegister(t, picket.Registration{AgentID: "known"})
		tasks, held := map[string]string{}, map[string]picket.LeaseCredential{}
		for i, spec := range []picket.TaskSpec{
			{Title: "calm", LeaseWindowSeconds: kit.Ptr(900)},
			{Title: "late", TimeoutSeconds: kit.Ptr(10), LeaseWindowSeconds: kit.Ptr(800)},
			{Title: "dear", BudgetEnvelope: kit.Worth(1000, "2"), LeaseWindowSeconds: kit.Ptr(700)},
			{Title: "nudged", LeaseWindowSeconds: kit.Ptr(600)},
			{
				Title:              `"timeoutSeconds":1`,
				Labels:             map[string]string{"timeoutSeconds": "1"},
				LeaseWindowSeconds: kit.Ptr(500),
			},
		} {
			task := f.MustSubmit(t, spec)
			by, agent := kit.Operator, "stranger"
			if i < 2 {
				by, agent = kit.AgentOwner, "known"
			}
			leases, err := f.Acquire(f.Ctx, by, picket.AcquireRequest{AgentID: agent})
			kit.OK(t, err)
			h := f.OpenLease(t, leases[0])
			_, err = f.Report(f.Ctx, h, "", picket.Progress{Summary: "begun"})
			kit.OK(t, err)
			tasks[spec.Title], held[spec.Title] = task.TaskID, h
		}
		f.MustReserve(t, held["dear"], kit.PaidCall("1.5"))
		f.MoveStoreTime(t, 9*time.Second) // 0.9 of the timeout
		stalled := picket.RunEvent{Type: picket.EventRunStalled, ID: "1", IdleSeconds: kit.Ptr(9.0)}
		kit.OK(t, f.RunEvents(f.Ctx, held["nudged"], []picket.RunEvent{stalled}))

		byNeed := picket.LeaseQuery{Order: picket.LeasesByNeed}
		got, total := find(byNeed)
		if len(got) != 5 || total != 5 || got[0] != "nudged" {
			t.Errorf("by need: %v of %d", got, total)
		}
		page, err := f.FindLeases(f.Ctx, byNeed)
		kit.OK(t, err)
		if !slices.IsSortedFunc(page.Leases, picket.CompareRunning) {
			t.Errorf("by need, but in another order than CompareRunning: %v", got)
		}
		byNeed.Limit = 2
		if two, total := find(byNeed); !slices.Equal(two, got[:2]) || total != 5 {
			t.Errorf("the first two of %v: %v of %d", got, two, total)
		}
		if got, total := find(picket.LeaseQuery{Limit: 2}); total != 5 || len(got) != 2 || got[1] != "nudged" {
			t.Errorf("by expiry: %v of %d", got, total)
		}
		for want, q := range map[string]picket.LeaseQuery{
			"late":                           {TaskID: tasks["late"]},
			"late calm":                      {AgentID: "known"},
			`"timeoutSeconds":1 nudged dear`: {AgentID: "stranger"},
			"":                               {AgentID: "nobody"},
		} {
			got, total := find(q)
			if strings.Join(got, " ") != want || total != int64(len(got)) {
				t.Errorf("%+v: %q of %d, want %q", q, got, total, want)
			}
		}
		_, err = f.Release(f.Ctx, held["late"], picket.Exit{Class: picket.ExitReleased})
		kit.OK(t, err)
		if got, total := find(picket.LeaseQuery{TaskID: tasks["late"]}); len(got) != 0 || total != 0 {
			t.Errorf("a lease that has ended is listed: %v of %d", got, total)
		}
		for _, q := range []picket.LeaseQuery{{TaskID: "x"}, {AgentID: "a b"}, {Order: "size"}, {Limit: 1001},
			{TaskID: tasks["late"], AgentID: "known"}} {
			_, err := f.FindLeases(f.Ctx, q)
			kit.Refused(t, err, picket.CodeValidation)
		}
	})
}

// An adapter sets a timeout for a task that has none, and tells it in the launcher's events. The run is
// then shown and ordered by it, and notices have it. A task's own timeout counts more.
func TestLeasesShowTheTimeoutOfTheAdapter(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		beat := func(spec picket.TaskSpec, seconds float64) picket.LeaseCredential {
			t.Helper()
			_, h := f.SubmitAndLease(t, spec)
			kit.OK(t, f.Raw.HIncrBy(f.Ctx, "pk:{default}:run:"+h.RunID, "started", -90_000).Err())
			kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{
				Type: picket.EventAgentHeartbeat,
				LauncherFields: picket.LauncherFields{
					Agent:          `"timeoutSeconds":1`,
					ElapsedSeconds: kit.Ptr(90.0),
					TimeoutSeconds: &seconds,
				},
			}}))
			return h
		}
		calm := beat(picket.TaskSpec{Title: "its own", TimeoutSeconds: kit.Ptr(1000)}, 100)
		none := beat(picket.TaskSpec{Title: "none"}, 0)
		late := beat(picket.TaskSpec{Title: "late"}, 100)
		page, err := f.FindLeases(f.Ctx, picket.LeaseQuery{Order: picket.LeasesByNeed})
		kit.OK(t, err)
		if len(page.Leases) != 3 || page.Leases[0].TaskID != late.TaskID || page.Leases[1].TaskID != calm.TaskID ||
			!slices.IsSortedFunc(page.Leases, picket.CompareRunning) {
			t.Fatalf("by need: %+v", page.Leases)
		}
		for h, want := range map[picket.LeaseCredential]*int{calm: kit.Ptr(1000), none: nil, late: kit.Ptr(100)} {
			page, err := f.FindLeases(f.Ctx, picket.LeaseQuery{TaskID: h.TaskID})
			kit.OK(t, err)
			if got := page.Leases[0]; !reflect.DeepEqual(got.TimeoutSeconds, want) {
				t.Errorf("%s has the timeout %v", got.Title, got.TimeoutSeconds)
			}
		}
		stalled := picket.RunEvent{Type: picket.EventRunStalled, IdleSeconds: kit.Ptr(9.0)}
		kit.OK(t, f.RunEvents(f.Ctx, late, []picket.RunEvent{stalled}))
		if facts, _ := f.lastFacts(t, picket.EventRunStalled); facts.Timeout == nil || *facts.Timeout != 100 {
			t.Errorf("%+v", facts)
		}
	})
}
