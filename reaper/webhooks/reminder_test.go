package webhooks_test

import (
	"slices"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// A reminder for one webhook reaches that webhook, whatever types it has, and no other. A
// reminder for all reaches the webhooks that get notices or ask for its type.
func TestARemindersOnlyTarget(t *testing.T) {
	virtual(t, func(h *fixture) {
		add := func(name string, types ...string) {
			_, err := h.CreateWebhook(h.ctx, operator, picket.WebhookSpec{Name: name, Types: types,
				URL: picket.Secret("https://" + name + ".test/")})
			must(t, err)
		}
		add("notices")
		add("pager", picket.EventStoreAdopted)
		add("typed", picket.EventHandoffReminder)
		add("other", picket.EventStoreAdopted)
		got := &target{}
		defer h.startDeliverer(got, nil)()
		held := h.lease("Choose a region", "coder-1", nil)
		_, err := h.RequestHelp(h.ctx, held, picket.HelpRequest{Question: "Which?"})
		must(t, err)
		time.Sleep(time.Minute)
		reached := func(rule picket.ReminderRule) (hosts []string) {
			before, err := h.LastSeq(h.ctx)
			must(t, err)
			_, err = h.RemindPeople(h.ctx, []picket.ReminderRule{rule}, 100)
			must(t, err)
			time.Sleep(time.Minute)
			for _, d := range got.deliveries() {
				if d.seq > before {
					hosts = append(hosts, d.host)
				}
			}
			slices.Sort(hosts)
			return hosts
		}
		only := reached(picket.ReminderRule{Name: "a", After: time.Second, Webhook: "pager"})
		if want := []string{"pager.test"}; !slices.Equal(only, want) {
			t.Errorf("a reminder for pager reached %q", only)
		}
		all := reached(picket.ReminderRule{Name: "b", After: time.Second})
		if want := []string{"notices.test", "typed.test"}; !slices.Equal(all, want) {
			t.Errorf("a reminder for all reached %q, want %q", all, want)
		}
	})
}
