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
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// openWithDailyLimit opens one more process on the store, for which a day has a cap.
func (f *fixture) openWithDailyLimit(t *testing.T, house *budget.Envelope) *fixture {
	t.Helper()
	store, err := orchestrator.Open(t.Context(),
		orchestrator.Config{Redis: f.RigStore.Redis, Memory: f.RigStore.Memory, Sealer: rig.Sealer(),
			Witness: t.TempDir(), DailyLimit: house, Log: slog.New(slog.DiscardHandler)})
	kit.OK(t, err)
	t.Cleanup(func() { _ = store.Close() })
	other := *f.Fixture
	other.Engine, other.Store = store.Engine("default"), store
	return &fixture{&other}
}

func (f *fixture) mustEnvelope(t *testing.T, id string) picket.EnvelopeState {
	t.Helper()
	s, err := f.Envelope(f.Ctx, id)
	kit.OK(t, err)
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
		part, err := f.Inspect(f.Ctx, kit.Operator, picket.InspectRequest{Cursor: cursor})
		kit.OK(t, err)
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
		f := plain.openWithDailyLimit(t, kit.Worth(1000, "2"))
		today := f.mustEnvelope(t, "house")
		if today.ID != "house:"+time.Now().UTC().Format(time.DateOnly) || today.State != "open" ||
			today.Granted != *kit.Worth(1000, "2") ||
			today.Available != *kit.Worth(1000, "2") || today.Envelope != *kit.Worth(1000, "2") ||
			!today.Spent.IsZero() {
			t.Errorf("the day before its first task: %+v", today)
		}
		if n, err := f.Raw.Exists(f.Ctx, "pk:{default}:env:"+today.ID).Result(); err != nil || n != 0 {
			t.Errorf("looking has written it: %v", err)
		}
		for _, id := range []string{"house:2020-01-01", "house"} {
			who := f
			if id == "house" {
				who = plain // which has no cap
			}
			_, err := who.Envelope(f.Ctx, id)
			kit.Refused(t, err, picket.CodeNotFound)
			_, err = who.TopUp(f.Ctx, kit.Idempotent("n"), id, picket.TopUp{USD: kit.USD("1")})
			kit.Refused(t, err, picket.CodeNotFound)
			if says := map[string]string{
				"house":            "there is no limit a day here",
				"house:2020-01-01": "there is no envelope for the day 2020-01-01",
			}[id]; !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v; %s", id, err, err.(*picket.Error).Remedy)
			}
		}
		task, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(100, "1.50")})
		today = f.mustEnvelope(t, "house")
		if today.Available != *kit.Worth(900, "0.50") || today.Carved != *kit.Worth(100, "1.50") {
			t.Errorf("house %+v", today)
		}
		_, err := f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "t", BudgetEnvelope: kit.Worth(100, "0.51")})
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		if !strings.Contains(err.(*picket.Error).Remedy, "picket budget top-up "+today.ID+" --usd 0.01") {
			t.Errorf("remedy %q", err.(*picket.Error).Remedy)
		}
		f.MustSubmit(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(900, "0.50")})
		_, err = f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "t", BudgetEnvelope: kit.Worth(1, "0")})
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		f.MustSubmit(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "0")}) // free tools only
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.70")), "0.30"))
		_, err = f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		if got := f.mustEnvelope(t, "house"); got.Available.USD != 0 { // not terminal yet
			t.Errorf("house %+v", got)
		}
		_, _, err = f.Reject(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Note: "again"},
			&picket.TaskSpec{Title: "fix", BudgetEnvelope: kit.Worth(0, "1.21")})
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		_, _, err = f.Reject(f.Ctx, kit.Operator, task.TaskID, picket.Decision{Note: "again"}, nil)
		kit.OK(t, err)
		if got := f.mustEnvelope(t, "house"); got.Available != *kit.Worth(100, "1.20") {
			t.Errorf("house %+v", got)
		}
		_, err = f.Retry(f.Ctx, kit.Operator, task.TaskID, "r")
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		_, err = f.TopUp(f.Ctx, kit.Idempotent("h"), "house", picket.TopUp{USD: kit.USD("0.30")})
		kit.OK(t, err)
		again, err := f.Retry(f.Ctx, kit.Operator, task.TaskID, "r")
		kit.OK(t, err)
		if again.BudgetEnvelope != *kit.Worth(100, "1.50") {
			t.Errorf("the repeat has %v", again.BudgetEnvelope)
		}
		// What is rejected pays, as far as it can, for its repair.
		twin, h := f.SubmitAndLease(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(0, "0"), Priority: kit.Ptr(9)})
		_, err = f.TopUp(f.Ctx, kit.Idempotent("i"), "house", picket.TopUp{USD: kit.USD("0.40")})
		kit.OK(t, err)
		_, err = f.TopUp(f.Ctx, kit.Idempotent("j"), twin.TaskID, picket.TopUp{USD: kit.USD("0.40")})
		kit.OK(t, err)
		_, err = f.Complete(f.Ctx, h, picket.Completion{})
		kit.OK(t, err)
		_, fix, err := f.Reject(f.Ctx, kit.Operator, twin.TaskID, picket.Decision{Note: "again"},
			&picket.TaskSpec{Title: "fix", BudgetEnvelope: kit.Worth(0, "0.40")})
		kit.OK(t, err)
		_, err = f.Cancel(f.Ctx, kit.Operator, fix, "r")
		kit.OK(t, err)
		// Another cap holds from the next task on, without one nothing is carved.
		more := plain.openWithDailyLimit(t, kit.Worth(2000, "3"))
		more.MustSubmit(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1.40")})
		plain.MustSubmit(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1000")})
		if got := f.mustEnvelope(t, "house"); got.Available != *kit.Worth(0, "0") ||
			got.Granted != *kit.Worth(2000, "3.70") {
			t.Errorf("house %+v", got)
		}
		f.wantNoViolations(t)
	})
}

// The day of a house is right for every date until 2100, on both stores.
func TestDateOfTheDailyLimit(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, rest, _ := strings.Cut(kit.LuaText(t, "_money"), "local function date_of(ms)")
		body, _, _ := strings.Cut(rest, "\nend")
		first, days := time.Date(2023, 12, 1, 23, 59, 59, 0, time.UTC), 28_000
		got, err := f.Raw.Eval(f.Ctx, `local DAY, at, out = 86400000, tonumber(ARGV[1]), {}
			local function date_of(ms)`+body+`
			end
			for i = 1, tonumber(ARGV[2]) do
				out[i] = date_of(at)
				at = at + DAY
			end
			return out`, []string{kit.Meta}, first.UnixMilli(), days).StringSlice()
		kit.OK(t, err)
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
