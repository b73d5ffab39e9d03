package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// reminderFindings are about the rules of this machine's picket.yaml that remind people, and the
// webhooks of the server that send the reminders. There are none without rules.
func reminderFindings(ctx context.Context, cfg settings.Settings, s *cli.Connection) []Finding {
	rules, err := cfg.ReminderRules()
	if err == nil && len(rules) == 0 {
		return nil
	}
	var webhooks []picket.Webhook
	if err == nil {
		webhooks, err = s.Webhooks.List(ctx)
	}
	if err != nil {
		return []Finding{{"reminders", "warn", exit.Text(err), exit.Remedy(err)}}
	}
	return checkReminders(rules, webhooks)
}

// checkReminders are the rules whose reminders reach nobody.
func checkReminders(rules []picket.ReminderRule, webhooks []picket.Webhook) (found []Finding) {
	for _, rule := range rules {
		detail, remedy := "", ""
		if rule.Webhook != "" {
			detail, remedy = checkReminderTarget(rule, webhooks)
		} else {
			detail, remedy = checkReminderTypes(webhooks)
		}
		if detail != "" {
			found = append(found, Finding{"reminders", "warn", settings.ReminderKey(rule) + ": " + detail, remedy})
		}
	}
	if len(found) == 0 {
		return []Finding{{"reminders", "ok", fmt.Sprintf("every rule has an active webhook (%d in all)", len(rules)), ""}}
	}
	return found
}

// checkReminderTarget says why the webhook that a rule names gets no reminders. Several can have
// the same name.
func checkReminderTarget(rule picket.ReminderRule, webhooks []picket.Webhook) (detail, remedy string) {
	name := term.ShellQuote(rule.Webhook)
	var inactive *picket.Webhook
	for i, w := range webhooks {
		switch {
		case w.Name != rule.Webhook && w.WebhookID != rule.Webhook:
		case w.State == picket.WebhookActive:
			return "", ""
		default:
			inactive = &webhooks[i]
		}
	}
	if inactive != nil {
		return fmt.Sprintf("the webhook %s is %s, so nobody gets its reminders", name, inactive.State),
			"picket webhook revive " + inactive.WebhookID
	}
	return fmt.Sprintf("the server has no webhook %s, so nobody gets its reminders", name),
		fmt.Sprintf("Write a name of picket webhook list, or add it: picket webhook create URL --name %s", name)
}

// checkReminderTypes says which reminders no webhook gets, of a rule that names none.
func checkReminderTypes(webhooks []picket.Webhook) (detail, remedy string) {
	var missing []string
	for _, kind := range []string{picket.EventHandoffReminder, picket.EventReviewReminder} {
		gets := func(w picket.Webhook) bool {
			return w.State == picket.WebhookActive && (len(w.Types) == 0 || slices.Contains(w.Types, kind))
		}
		if !slices.ContainsFunc(webhooks, gets) {
			missing = append(missing, kind)
		}
	}
	if len(missing) == 0 {
		return "", ""
	}
	return "no active webhook gets " + strings.Join(missing, " or "),
		"Add one that gets notices: picket webhook create URL; see also: picket webhook list"
}
