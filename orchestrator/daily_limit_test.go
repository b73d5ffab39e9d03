package orchestrator_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// openWithDailyLimit opens one more process on the store, for which a day has a cap.
func (f *fixture) openWithDailyLimit(t *testing.T, house *budget.Envelope) *fixture {
	t.Helper()
	store, err := orchestrator.Open(t.Context(),
		orchestrator.Config{Redis: f.rigStore.Redis, Memory: f.rigStore.Memory, Sealer: rig.Sealer(),
			Witness: t.TempDir(), DailyLimit: house, Log: slog.New(slog.DiscardHandler)})
	ok(t, err)
	t.Cleanup(func() { _ = store.Close() })
	other := *f
	other.Engine, other.store = store.Engine("default"), store
	return &other
}

func (f *fixture) mustEnvelope(t *testing.T, id string) picket.EnvelopeState {
	t.Helper()
	s, err := f.Envelope(f.ctx, id)
	ok(t, err)
	if !s.Balanced() {
		t.Errorf("the books of %s do not add up: %+v", id, s.Account)
	}
	return s
}

// wantNoViolations lets the scanner look at everything.
func (f *fixture) wantNoViolations(t *testing.T) {
	t.Helper()
	cursor := ""
	for {
		part, err := f.Inspect(f.ctx, operator, picket.InspectRequest{Cursor: cursor})
		ok(t, err)
		for _, v := range part.Violations {
			t.Errorf("%s of %s: %s", v.Kind, v.Subject, v.Detail)
		}
		if cursor = part.Next; cursor == "" {
			return
		}
	}
}

// What the tasks of a day may spend together is carved at submission and given
// back as far as it was not spent.
func TestDailyLimit(t *testing.T) {
	onBothStores(t, func(t *testing.T, plain *fixture) {
		f := plain.openWithDailyLimit(t, worth(1000, "2"))
		today := f.mustEnvelope(t, "house")
		if today.ID != "house:"+time.Now().UTC().Format(time.DateOnly) || today.State != "open" ||
			today.Granted != *worth(1000, "2") ||
			today.Available != *worth(1000, "2") || today.Envelope != *worth(1000, "2") || !today.Spent.IsZero() {
			t.Errorf("the day before its first task: %+v", today)
		}
		if n, err := f.raw.Exists(f.ctx, "pk:{default}:env:"+today.ID).Result(); err != nil || n != 0 {
			t.Errorf("looking has written it: %v", err)
		}
		for _, id := range []string{"house:2020-01-01", "house"} {
			who := f
			if id == "house" {
				who = plain // which has no cap
			}
			_, err := who.Envelope(f.ctx, id)
			refused(t, err, picket.CodeNotFound)
			_, err = who.TopUp(f.ctx, idempotent("n"), id, picket.TopUp{USD: usd("1")})
			refused(t, err, picket.CodeNotFound)
			if says := map[string]string{
				"house":            "there is no limit a day here",
				"house:2020-01-01": "there is no envelope for the day 2020-01-01",
			}[id]; !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v; %s", id, err, err.(*picket.Error).Remedy)
			}
		}
		task, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(100, "1.50")})
		today = f.mustEnvelope(t, "house")
		if today.Available != *worth(900, "0.50") || today.Carved != *worth(100, "1.50") {
			t.Errorf("house %+v", today)
		}
		_, err := f.Submit(f.ctx, operator, picket.TaskSpec{Title: "t", BudgetEnvelope: worth(100, "0.51")})
		refused(t, err, picket.CodeBudgetExceeded)
		if !strings.Contains(err.(*picket.Error).Remedy, "picket budget top-up "+today.ID+" --usd 0.01") {
			t.Errorf("remedy %q", err.(*picket.Error).Remedy)
		}
		f.mustSubmit(t, picket.TaskSpec{BudgetEnvelope: worth(900, "0.50")})
		_, err = f.Submit(f.ctx, operator, picket.TaskSpec{Title: "t", BudgetEnvelope: worth(1, "0")})
		refused(t, err, picket.CodeBudgetExceeded)
		f.mustSubmit(t, picket.TaskSpec{BudgetEnvelope: worth(0, "0")}) // free tools only
		f.mustSettle(t, doneSettlement(f.mustReserve(t, h, paidCall("0.70")), "0.30"))
		_, err = f.Complete(f.ctx, h, picket.Completion{})
		ok(t, err)
		if got := f.mustEnvelope(t, "house"); got.Available.USD != 0 { // not terminal yet
			t.Errorf("house %+v", got)
		}
		_, _, err = f.Reject(f.ctx, operator, task.TaskID, picket.Decision{Note: "again"},
			&picket.TaskSpec{Title: "fix", BudgetEnvelope: worth(0, "1.21")})
		refused(t, err, picket.CodeBudgetExceeded)
		_, _, err = f.Reject(f.ctx, operator, task.TaskID, picket.Decision{Note: "again"}, nil)
		ok(t, err)
		if got := f.mustEnvelope(t, "house"); got.Available != *worth(100, "1.20") {
			t.Errorf("house %+v", got)
		}
		_, err = f.Retry(f.ctx, operator, task.TaskID, "r")
		refused(t, err, picket.CodeBudgetExceeded)
		_, err = f.TopUp(f.ctx, idempotent("h"), "house", picket.TopUp{USD: usd("0.30")})
		ok(t, err)
		again, err := f.Retry(f.ctx, operator, task.TaskID, "r")
		ok(t, err)
		if again.BudgetEnvelope != *worth(100, "1.50") {
			t.Errorf("the repeat has %v", again.BudgetEnvelope)
		}
		// What is rejected pays, as far as it can, for its repair.
		twin, h := f.submitAndLease(t, picket.TaskSpec{BudgetEnvelope: worth(0, "0"), Priority: ptr(9)})
		_, err = f.TopUp(f.ctx, idempotent("i"), "house", picket.TopUp{USD: usd("0.40")})
		ok(t, err)
		_, err = f.TopUp(f.ctx, idempotent("j"), twin.TaskID, picket.TopUp{USD: usd("0.40")})
		ok(t, err)
		_, err = f.Complete(f.ctx, h, picket.Completion{})
		ok(t, err)
		_, fix, err := f.Reject(f.ctx, operator, twin.TaskID, picket.Decision{Note: "again"},
			&picket.TaskSpec{Title: "fix", BudgetEnvelope: worth(0, "0.40")})
		ok(t, err)
		_, err = f.Cancel(f.ctx, operator, fix, "r")
		ok(t, err)
		// Another cap holds from the next task on, without one nothing is carved.
		more := plain.openWithDailyLimit(t, worth(2000, "3"))
		more.mustSubmit(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "1.40")})
		plain.mustSubmit(t, picket.TaskSpec{BudgetEnvelope: worth(1000, "1000")})
		if got := f.mustEnvelope(t, "house"); got.Available != *worth(0, "0") || got.Granted != *worth(2000, "3.70") {
			t.Errorf("house %+v", got)
		}
		f.wantNoViolations(t)
	})
}

// The day of a house is right for every date until 2100, on both stores.
func TestDateOfTheDailyLimit(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, rest, _ := strings.Cut(luaText(t, "_money"), "local function today()")
		body, _, _ := strings.Cut(rest, "\nend")
		first, days := time.Date(2023, 12, 1, 23, 59, 59, 0, time.UTC), 28_000
		got, err := f.raw.Eval(f.ctx, `local DAY, raw, out = 86400000, tonumber(ARGV[1]), {}
			local function today()`+body+`
			end
			for i = 1, tonumber(ARGV[2]) do
				out[i] = today()
				raw = raw + DAY
			end
			return out`, []string{meta}, first.UnixMilli(), days).StringSlice()
		ok(t, err)
		for i, day := range got {
			if want := first.AddDate(0, 0, i).Format(time.DateOnly); day != want {
				t.Fatalf("%s is said to be %s", want, day)
			}
		}
		if len(got) != days {
			t.Errorf("%d days", len(got))
		}
	})
}
