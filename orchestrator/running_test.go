package orchestrator_test

import (
	"reflect"
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
