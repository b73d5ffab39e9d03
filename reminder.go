package picket

import (
	"cmp"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/internal/lazyregexp"
)

// ReminderRule reminds people of hand-offs and reviews that have waited for longer than
// After. Each entry that a rule selects is reminded of once. A rule without Role and Label
// selects all.
type ReminderRule struct {
	Name  string        // 1 to 32 letters, digits or -
	After time.Duration // at least a second
	Role  string        // of the task
	Label string        // of the task, name=value
	// Webhook is the name of the only webhook that the reminder is sent to, whatever types it
	// asks for. Without it the reminder is a notice like others.
	Webhook string
}

// MaxReminderRules is how many rules there may be.
const MaxReminderRules = 16

var ruleName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9-]{0,31}$`)

// Check refuses a rule that is out of bounds.
func (r ReminderRule) Check() error {
	if !ruleName().MatchString(r.Name) {
		return Invalid("name", "Write 1 to 32 letters, digits or -.", "%.64q is not a name of a reminder", r.Name)
	}
	if r.After < time.Second || r.After > MaxReminderAfter {
		return Invalid("remind_after", "Write a duration from 1s to 8760h, such as 30m.",
			"remind_after of the reminder %s is %s", r.Name, r.After)
	}
	if r.Label != "" {
		name, value, _ := strings.Cut(r.Label, "=")
		if err := CheckLabel("label", name, value); err != nil {
			return err
		}
	}
	return cmp.Or(CheckOptionalName("role", r.Role), checkWebhookName("webhook", r.Webhook))
}

// MaxReminderAfter is the longest time after which a rule reminds.
const MaxReminderAfter = 365 * 24 * time.Hour

// checkWebhookName refuses a text that no webhook can be called.
func checkWebhookName(field, name string) error {
	if len(name) <= maxWebhookName && !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return nil
	}
	return Invalid(field, "Copy the name from picket webhook list.", "%.64q is not a valid name of a webhook", name)
}

const maxWebhookName = 128 // bytes

// ReminderTarget is the name of the only webhook that a reminder is sent to, or "" if the
// event is not a reminder for one webhook.
func (e Event) ReminderTarget() string {
	if e.Type != EventHandoffReminder && e.Type != EventReviewReminder {
		return ""
	}
	var data struct {
		Webhook string `json:"webhook"`
	}
	_ = json.Unmarshal(e.Data, &data) // what cannot be read names nobody
	return data.Webhook
}
