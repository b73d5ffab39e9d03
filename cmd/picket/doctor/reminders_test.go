package doctor

import (
	"slices"
	"testing"

	"github.com/picket-dev/picket"
)

func TestRemindersWithoutAWebhook(t *testing.T) {
	active := func(name string, types ...string) picket.Webhook {
		return picket.Webhook{WebhookID: "webhook_" + name, Name: name, Types: types, State: picket.WebhookActive}
	}
	inactive := func(w picket.Webhook, state picket.WebhookState) picket.Webhook {
		w.State = state
		return w
	}
	const none = "notify.remind_after: no active webhook gets handoff.reminder or review.reminder"
	dead := inactive(active("pager"), picket.WebhookDead)
	all, pager := picket.ReminderRule{Name: "notify"}, picket.ReminderRule{Name: "team", Webhook: "pager"}
	byID := picket.ReminderRule{Name: "team", Webhook: "webhook_a"}
	for name, c := range map[string]struct {
		rule     picket.ReminderRule
		webhooks []picket.Webhook
		want     string // "" for no warning
	}{
		"no webhooks": {all, nil, none},
		"notices":     {all, []picket.Webhook{active("a")}, ""},
		"off":         {all, []picket.Webhook{inactive(active("a"), picket.WebhookOff)}, none},
		"other types": {all, []picket.Webhook{active("a", picket.EventTaskReview)}, none},
		"one of the types": {all, []picket.Webhook{active("a", picket.EventReviewReminder)},
			"notify.remind_after: no active webhook gets handoff.reminder"},
		"both types": {all, []picket.Webhook{active("a", picket.EventReviewReminder),
			active("b", picket.EventHandoffReminder)}, ""},
		"target is unknown": {pager, []picket.Webhook{active("a")},
			"reminders.team: the server has no webhook pager, so nobody gets its reminders"},
		"target of any types": {pager, []picket.Webhook{active("pager", picket.EventTaskReview)}, ""},
		"target by its ID":    {byID, []picket.Webhook{active("a")}, ""},
		"target is dead": {pager, []picket.Webhook{dead},
			"reminders.team: the webhook pager is dead, so nobody gets its reminders"},
		"one target is active": {pager, []picket.Webhook{dead, active("pager")}, ""},
	} {
		want := Finding{"reminders", "ok", "every rule has an active webhook (1 in all)", ""}
		got := checkReminders([]picket.ReminderRule{c.rule}, c.webhooks)
		if c.want != "" {
			want = Finding{"reminders", "warn", c.want, got[0].Remedy}
		}
		if !slices.Equal(got, []Finding{want}) || (c.want == "") != (got[0].Remedy == "") {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}
