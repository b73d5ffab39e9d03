package orchestrator_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// reminder is what the event of a reminder says.
type reminder struct {
	noticeFacts
	Rule, Webhook string
	Waited        int64  `json:"waitedSeconds"`
	ClaimedBy     string `json:"claimedBy"`
	Assignee      string `json:"assignee"`
}

// reminders are all so far, as "rule type task".
func (f *fixture) reminders(t *testing.T) (list []string, last reminder) {
	t.Helper()
	page, err := f.Events(f.Ctx, picket.EventQuery{
		Types: []string{picket.EventHandoffReminder, picket.EventReviewReminder}, Limit: 1000})
	kit.OK(t, err)
	for _, e := range page.Events {
		last = reminder{}
		kit.OK(t, json.Unmarshal(e.Data, &last, json.MatchCaseInsensitiveNames(true)))
		list = append(list, last.Rule+" "+e.Type+" "+e.TaskID)
		if !e.IsNotice() || e.AgentID != "a1" {
			t.Errorf("%+v", e)
		}
	}
	return list, last
}

// remind calls for reminders until nothing is left, in two processes by turns.
func (f *fixture) remind(t *testing.T, rules ...picket.ReminderRule) {
	t.Helper()
	for range 100 {
		n, err := f.RemindPeople(f.Ctx, rules, 2)
		kit.OK(t, err)
		if n < 2 {
			return
		}
	}
	t.Fatal("reminders never end")
}

// age makes an entry of a queue older, as if it had come earlier.
func (f *fixture) age(t *testing.T, set, member string, by time.Duration) {
	t.Helper()
	kit.OK(t, f.Raw.ZIncrBy(f.Ctx, "pk:{default}:"+set, float64(-by.Milliseconds()), member).Err())
}

// waiting makes a hand-off and a review that have waited for a while.
func (f *fixture) waiting(t *testing.T, spec picket.TaskSpec, d time.Duration) (asked, hid, done string) {
	t.Helper()
	_, h := f.SubmitAndLease(t, spec)
	help, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "Which?", Options: []string{"a", "b"}})
	kit.OK(t, err)
	f.age(t, "handoffs:open", help.HandoffID, d)
	_, r := f.SubmitAndLease(t, spec)
	_, err = f.Complete(f.Ctx, r, picket.Completion{Output: picket.RawJSON(`1`), Summary: "all is well"})
	kit.OK(t, err)
	f.age(t, "in-review", r.TaskID, d)
	return h.TaskID, help.HandoffID, r.TaskID
}

// A rule reminds once of each hand-off and review that waits for longer than it allows, and
// of none that is younger or decided.
func TestRemindersComeOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		rule := picket.ReminderRule{Name: "day", After: time.Hour}
		f.waiting(t, picket.TaskSpec{Title: "a task"}, 59*time.Minute)
		_, decided, approved := f.waiting(t, picket.TaskSpec{Title: "a task"}, 50*time.Minute)
		asked, _, done := f.waiting(t, picket.TaskSpec{Title: "a task", Assignee: "ada"}, 61*time.Minute)
		want := []string{"day handoff.reminder " + asked, "day review.reminder " + done}
		f.remind(t, rule)
		f.remind(t, rule) // another tick, or another reaper, or the first one after a restart
		got, last := f.reminders(t)
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		if last.Summary != "all is well" || last.Waited < 3660 || last.Task.Assignee != "ada" {
			t.Errorf("%+v", last)
		}
		_, err := f.Answer(f.Ctx, kit.Operator, decided, picket.AnswerRequest{Answer: picket.RawJSON(`"x"`)})
		kit.OK(t, err)
		_, err = f.Approve(f.Ctx, kit.Operator, approved, picket.Decision{})
		kit.OK(t, err)
		// A shorter rule of the same name reminds only of what is new to it.
		f.remind(t, picket.ReminderRule{Name: "day", After: 45 * time.Minute})
		if got, _ = f.reminders(t); len(got) != 4 {
			t.Errorf("%q", got)
		}
		// Another rule reminds again.
		f.remind(t, picket.ReminderRule{Name: "night", After: time.Hour})
		if got, _ = f.reminders(t); len(got) != 6 {
			t.Errorf("%q", got)
		}
	})
}

// A rule selects by role or label and may name one webhook.
func TestRemindersSelect(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		spec := picket.TaskSpec{Title: "a task", Labels: map[string]string{"team": "payments", "x": "y"}}
		asked, hid, done := f.waiting(t, spec, 2*time.Hour)
		f.waiting(t, picket.TaskSpec{Title: "another", Labels: map[string]string{"team": "pay"}}, 2*time.Hour)
		_, err := f.Claim(f.Ctx, kit.Operator, hid, picket.ClaimRequest{Assignee: "ben"})
		kit.OK(t, err)
		f.remind(t, picket.ReminderRule{Name: "b", After: time.Hour, Label: "team=payments", Webhook: "pager"},
			picket.ReminderRule{Name: "c", After: time.Hour, Role: "coder"})
		got, last := f.reminders(t)
		if want := []string{"b handoff.reminder " + asked, "b review.reminder " + done}; !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		if last.Webhook != "pager" {
			t.Errorf("%+v", last)
		}
		page, err := f.Events(f.Ctx, picket.EventQuery{Types: []string{picket.EventHandoffReminder}})
		kit.OK(t, err)
		var first reminder
		kit.OK(t, json.Unmarshal(page.Events[0].Data, &first, json.MatchCaseInsensitiveNames(true)))
		if first.ClaimedBy != kit.Operator.Actor || first.Assignee != "ben" || first.Question != "Which?" ||
			len(first.Options) != 2 || first.HandoffID != hid || page.Events[0].ReminderTarget() != "pager" {
			t.Errorf("%+v", first)
		}
	})
}

// Many entries that came at the same instant are all reminded of, in bounded batches, and nothing
// twice, even if the cursor is one of an earlier version.
func TestRemindersGoOnBehindACursor(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		rule := picket.ReminderRule{Name: "day", After: time.Hour}
		var ids []string
		for range 9 {
			_, hid := f.ask(t)
			ids = append(ids, hid)
		}
		at := time.Now().Add(-2 * time.Hour).UnixMilli()
		for _, id := range ids[:8] {
			f.SetScore(t, "handoffs:open", id, float64(at))
		}
		f.remind(t, rule)
		earlier := fmt.Sprint(at, " ", ids[0])
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:reminders", "handoff day  ", earlier).Err())
		f.remind(t, rule)
		if got, _ := f.reminders(t); len(got) != 8 {
			t.Fatalf("%d reminders, want 8", len(got))
		}
	})
}

// ask makes a hand-off that comes now.
func (f *fixture) ask(t *testing.T) (task, hid string) {
	t.Helper()
	_, h := f.SubmitAndLease(t, picket.TaskSpec{Title: "a task"})
	help, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "Which?"})
	kit.OK(t, err)
	return h.TaskID, help.HandoffID
}

// useTestClock makes the server's clock stand still. The function sets it to an instant, given by
// the time since now.
func (f *fixture) useTestClock(t *testing.T) (set func(sinceNow time.Duration)) {
	t.Helper()
	start := time.Now()
	set = func(sinceNow time.Duration) {
		t.Helper()
		at := start.Add(sinceNow)
		kit.OK(t, f.Raw.HSet(f.Ctx, "rig-clock", "s", at.Unix(), "us", at.Nanosecond()/1000).Err())
	}
	set(0)
	kit.Rewrite(f.Store, kit.UseTestClock)
	return set
}

// After the clock was set back by more than the time of a rule, people are reminded of what comes
// then, even if the first round comes when it is due, or when the clock is ahead again.
func TestRemindersAfterAClockWasSetBack(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		rule, set := picket.ReminderRule{Name: "day", After: time.Hour}, f.useTestClock(t)
		var want []string
		wantReminderOf := func(task string) {
			t.Helper()
			want = append(want, "day handoff.reminder "+task)
			f.remind(t, rule)
			if got, _ := f.reminders(t); !slices.Equal(got, want) {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
		first, _ := f.ask(t)
		set(2 * time.Hour)
		wantReminderOf(first)

		set(-time.Hour)
		second, _ := f.ask(t)
		set(30 * time.Minute)
		wantReminderOf(second)

		set(4 * time.Hour)
		third, _ := f.ask(t)
		set(6 * time.Hour)
		wantReminderOf(third)

		set(-30 * time.Minute)
		f.remind(t, rule) // nothing has waited for an hour
		fourth, _ := f.ask(t)
		set(7 * time.Hour)
		wantReminderOf(fourth)
	})
}

// Cursors of rules that are not used any more do not pile up.
func TestCursorsOfRemindersAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.waiting(t, picket.TaskSpec{Title: "a task"}, 2*time.Hour)
		for i := range 100 {
			f.remind(t, picket.ReminderRule{Name: fmt.Sprint("r", i), After: time.Hour})
		}
		n, err := f.Raw.HLen(f.Ctx, "pk:{default}:reminders").Result()
		kit.OK(t, err)
		if n > 66 {
			t.Errorf("%d cursors are kept", n)
		}
	})
}

func TestReminderRulesAreChecked(t *testing.T) {
	good := picket.ReminderRule{Name: "day", After: time.Hour, Role: "coder", Label: "team=a", Webhook: "#agents"}
	kit.OK(t, good.Check())
	for field, change := range map[string]func(*picket.ReminderRule){
		"name":         func(r *picket.ReminderRule) { r.Name = "a,b" },
		"remind_after": func(r *picket.ReminderRule) { r.After = time.Millisecond },
		"role":         func(r *picket.ReminderRule) { r.Role = "a b" },
		"label":        func(r *picket.ReminderRule) { r.Label = "team={" },
		"webhook":      func(r *picket.ReminderRule) { r.Webhook = "a\nb" },
	} {
		r := good
		change(&r)
		refusal, ok := picket.RefusalOf(r.Check())
		if !ok || refusal.Facts["field"] != field || refusal.Remedy == "" {
			t.Errorf("%s: %v", field, refusal)
		}
	}
}
