package orchestrator_test

import (
	"maps"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func (f *fixture) mustStats(t *testing.T) picket.Stats {
	t.Helper()
	s, err := f.Stats(f.Ctx)
	kit.OK(t, err)
	return s
}

// What waits for people is counted by kind, and told by what has waited
// longest; the lists behind it are made again for a store that has none.
func TestWhatWaitsForPeopleIsCounted(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		ask := func(kind picket.HandoffKind) string {
			t.Helper()
			_, h := f.SubmitAndLease(t, picket.TaskSpec{})
			asked, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "?", Kind: kind})
			kit.OK(t, err)
			return asked.HandoffID
		}
		review := func() string {
			t.Helper()
			task, h := f.SubmitAndLease(t, picket.TaskSpec{})
			_, err := f.Complete(f.Ctx, h, picket.Completion{})
			kit.OK(t, err)
			return task.TaskID
		}
		expect := func(question, approval, escalation int64, oldest string, oldestReview string) {
			t.Helper()
			s := f.mustStats(t)
			want := map[picket.HandoffKind]int64{
				picket.HandoffQuestion:   question,
				picket.HandoffApproval:   approval,
				picket.HandoffBudget:     0,
				picket.HandoffEscalation: escalation,
			}
			if !maps.Equal(s.HandoffKinds, want) || s.Handoffs != question+approval+escalation {
				t.Errorf("%d hand-offs, by kind %v, want %v", s.Handoffs, s.HandoffKinds, want)
			}
			var since, inReview picket.Instant
			if oldest != "" {
				h, err := f.Handoff(f.Ctx, oldest)
				kit.OK(t, err)
				since = h.CreatedAt
			}
			if oldestReview != "" {
				inReview = f.WantState(t, oldestReview, picket.TaskReview).UpdatedAt
			}
			if s.OldestHandoff != since || s.OldestReview != inReview {
				t.Errorf("waits since %v and in review since %v, want %v and %v", s.OldestHandoff, s.OldestReview,
					since, inReview)
			}
		}
		expect(0, 0, 0, "", "")
		early, slow := f.SubmitAndLease(t, picket.TaskSpec{}) // submitted before the others, handed in after them
		first := ask(picket.HandoffQuestion)
		f.RunReaperFor(t, time.Second)
		second, third := ask(picket.HandoffApproval), ask(picket.HandoffQuestion)
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		_, err := f.Fail(f.Ctx, h, "no", false)
		kit.OK(t, err)
		one := review()
		f.RunReaperFor(t, time.Second)
		_, err = f.Complete(f.Ctx, slow, picket.Completion{})
		kit.OK(t, err)
		expect(2, 1, 1, first, one)

		// as before they were kept
		for _, list := range []string{"open-by-kind:question", "open-by-kind:approval", "in-review"} {
			kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:"+list).Err())
		}
		found, err := f.Inspect(f.Ctx, kit.Operator, picket.InspectRequest{Repair: true})
		if err != nil || len(found.Violations) > 0 || found.Next != "" {
			t.Errorf("an inspection found %+v, %v", found, err)
		}
		expect(2, 1, 1, first, one)

		_, err = f.Answer(f.Ctx, kit.Operator, first, picket.AnswerRequest{Answer: picket.RawJSON(`"x"`)})
		kit.OK(t, err)
		_, err = f.Approve(f.Ctx, kit.Operator, one, picket.Decision{})
		kit.OK(t, err)
		expect(1, 1, 1, second, early.TaskID)
		_, err = f.Finish(f.Ctx, kit.Operator, second, picket.RawJSON(`1`))
		kit.OK(t, err)
		expect(1, 0, 1, third, early.TaskID)
		_, err = f.CancelHandoff(f.Ctx, kit.Operator, third, "")
		kit.OK(t, err)
		_, _, err = f.Reject(f.Ctx, kit.Operator, early.TaskID, picket.Decision{}, nil)
		kit.OK(t, err)
		if s := f.mustStats(t); s.HandoffKinds[picket.HandoffQuestion] != 0 || !s.OldestReview.IsZero() {
			t.Errorf("left: %+v", s)
		}
	})
}

// The figures of money are those of the ledger, and what is held is what calls
// under way have reserved.
func TestMoneyIsSummedUp(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		expect := func(spent, returned, held string) {
			t.Helper()
			m := f.mustStats(t).Money
			if m.Spent.USD != kit.USD(spent) || m.Returned.USD != kit.USD(returned) || m.Held.USD != kit.USD(held) {
				t.Errorf("spent %v, returned %v, held %v; want %s, %s, %s", m.Spent.USD, m.Returned.USD, m.Held.USD,
					spent, returned, held)
			}
			page, err := f.Ledger(f.Ctx, picket.LedgerQuery{Limit: 1000})
			kit.OK(t, err)
			var rows budget.Envelope
			for _, row := range page.Rows {
				rows = rows.Add(row.Charged)
			}
			if rows != (budget.Envelope{
				Tokens: m.Spent.Tokens - m.Returned.Tokens,
				USD:    m.Spent.USD - m.Returned.USD,
			}) {
				t.Errorf("the ledger has %v, the figures are %+v", rows, m)
			}
		}
		expect("0", "0", "0")
		one, two := f.MustReserve(t, h, kit.PaidCall("0.2")), f.MustReserve(t, h, kit.PaidCall("0.3"))
		expect("0", "0", "0.5")
		f.MustSettle(t, kit.DoneSettlement(one, "0.1"))
		f.MustSettle(t, kit.DoneSettlement(one, "0.1"))
		expect("0.1", "0", "0.3")
		f.MustSettle(t, kit.SettlementAs(two, picket.CallUncertain))
		expect("0.4", "0", "0")
		f.MustSettle(t, kit.DoneSettlement(two, "0.25"))
		expect("0.4", "0.05", "0")
		_, err := f.ReportUsage(f.Ctx, h,
			picket.UsageReport{Source: "claude", Session: "s", Tokens: 70, USD: kit.USD("0.01")})
		kit.OK(t, err)
		expect("0.41", "0.05", "0")
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:sums", "held_u",
			-7).Err()) // a call from before it was counted has ended
		expect("0.41", "0.05", "0")
		f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, h, kit.PaidCall("0.1")), "0.1"))
		three := f.MustReserve(t, h, kit.PaidCall("0.1"))
		expect("0.51", "0.05", "0.1")
		f.MustSettle(t, kit.SettlementAs(three, picket.CallUndispatched))
		expect("0.51", "0.05", "0")
	})
}

func TestExpiriesAreCountedByClass(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for range 2 {
			task, _ := f.SubmitAndLease(t, picket.TaskSpec{})
			_, err := f.Expire(f.Ctx, kit.Operator, task.TaskID, "r")
			kit.OK(t, err)
			f.CancelAll(t)
		}
		f.SubmitAndLease(t, picket.TaskSpec{})
		f.RunReaperFor(t, 31*time.Second)
		want := map[picket.ExitClass]int64{picket.ExitByOperator: 2, picket.ExitUndelivered: 1}
		if s := f.mustStats(t); !maps.Equal(s.Expired, want) || s.LeasesDue != 0 {
			t.Errorf("expired %v, want %v; due %d", s.Expired, want, s.LeasesDue)
		}
	})
}

func TestLoginsAndTargetsAreCounted(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		key, err := f.CreateKey(f.Ctx, kit.Operator,
			picket.KeyRequest{Name: "k", Scopes: []picket.Scope{picket.ScopeAdmin}})
		kit.OK(t, err)
		one := f.MustLogin(t, key.Key)
		f.MustLogin(t, key.Key)
		_, err = f.CreateWebhook(f.Ctx, kit.Operator, kit.EveryEvent)
		kit.OK(t, err)
		f.MustSubmit(t, picket.TaskSpec{})
		s := f.mustStats(t)
		if want := (map[picket.WebhookState]int64{picket.WebhookActive: 1}); s.Logins != 2 ||
			!maps.Equal(s.Webhooks, want) || s.WebhookLag != 2 {
			t.Errorf("%d sessions, targets %v, %d events behind", s.Logins, s.Webhooks, s.WebhookLag)
		}
		kit.OK(t, f.CloseLogin(f.Ctx, one, kit.LoginHost))
		if s := f.mustStats(t); s.Logins != 1 {
			t.Errorf("%d sessions after a logout", s.Logins)
		}
		f.MoveStoreTime(t, picket.LoginLifetime)
		if !f.Virtual { // on the virtual clock a leap counts as a second
			if s := f.mustStats(t); s.Logins != 0 {
				t.Errorf("%d sessions after their life", s.Logins)
			}
		}
	})
}

func TestTheClockOfTheStoreIsHeldAgainstOurs(t *testing.T) {
	asked := time.UnixMilli(1_000_000)
	for raw, want := range map[int64]int64{1_000_100: 0, 1_003_100: 3000, 990_100: -10_000} {
		if got := orchestrator.ClockOffset(raw, asked, asked.Add(200*time.Millisecond)); got != want {
			t.Errorf("the store says %d: %d ms ahead, want %d", raw, got, want)
		}
	}
}
