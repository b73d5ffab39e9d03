package settings

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// Reminder reminds people once of each hand-off and review that has waited for RemindAfter, which
// is required.
type Reminder struct {
	RemindAfter time.Duration `yaml:"remind_after" check:"remind" doc:"Remind people once of each hand-off and review that has waited for this time, 1s to 8760h."`
	Role        string        `yaml:"role" check:"role" doc:"Select only tasks of this role."`
	Label       string        `yaml:"label" check:"label" doc:"Select only tasks with this label, name=value."`
	Webhook     string        `yaml:"webhook" check:"webhook" doc:"Send the reminder to the webhook of this name and to no other. The default is every webhook that gets notices."`
}

// defaultReminder is the name of the rule that notify.remind_after makes.
const defaultReminder = "notify"

// ReminderKey is the key of picket.yaml that makes a rule.
func ReminderKey(rule picket.ReminderRule) string {
	if rule.Name == defaultReminder {
		return "notify.remind_after"
	}
	return "reminders." + rule.Name
}

// ReminderRules returns the rules of notify.remind_after and of reminders.
func (s Settings) ReminderRules() ([]picket.ReminderRule, error) {
	var rules []picket.ReminderRule
	if s.Notify.RemindAfter > 0 {
		rules = append(rules, picket.ReminderRule{Name: defaultReminder, After: s.Notify.RemindAfter})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Reminders)) {
		r := s.Reminders[name]
		where := s.values[keyOf([]string{"reminders", name})].Origin
		if r.RemindAfter == 0 {
			return nil, exit.Usagef("%s: reminders.%s needs remind_after, such as 30m", where, name)
		}
		if name == defaultReminder {
			return nil, picket.Refuse(exit.CodeUsage, "Choose another name.",
				"%s: the name reminders.%s is reserved for the rule of notify.remind_after", where, name)
		}
		rules = append(rules, picket.ReminderRule{Name: name, After: r.RemindAfter, Role: r.Role, Label: r.Label,
			Webhook: r.Webhook})
	}
	if len(rules) > picket.MaxReminderRules {
		return nil, exit.Usagef("there are %d reminders, and at most %d are allowed: remove some from picket.yaml",
			len(rules), picket.MaxReminderRules)
	}
	return rules, nil
}

func checkLabelFilter(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return errors.New("write a label as name=value, such as team=payments")
	}
	return picket.CheckLabel("label", name, value)
}

func checkWebhookName(text string) error {
	return picket.ReminderRule{Name: "x", After: time.Hour, Webhook: text}.Check()
}
