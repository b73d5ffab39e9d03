package settings

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// The rules of reminders come from notify.remind_after and from the section reminders.
func TestReminderRules(t *testing.T) {
	read := func(text string) ([]picket.ReminderRule, error) {
		s, err := ConfigFile{Path: "picket.yaml", Text: []byte(text)}.decode()
		if err != nil {
			return nil, err
		}
		return s.ReminderRules()
	}
	rules, err := read("reminders:\n  oncall: {remind_after: 2h, label: team=payments, webhook: '#pager'}\n" +
		"  day: {remind_after: 90s, role: coder}\n")
	want := []picket.ReminderRule{{Name: "day", After: 90 * time.Second, Role: "coder"},
		{Name: "oncall", After: 2 * time.Hour, Label: "team=payments", Webhook: "#pager"}}
	if err != nil || !slices.Equal(rules, want) {
		t.Errorf("%+v, %v", rules, err)
	}
	s := Settings{}
	s.Notify.RemindAfter = time.Hour
	if rules, err := s.ReminderRules(); err != nil || len(rules) != 1 || rules[0].Name != "notify" {
		t.Errorf("%+v, %v", rules, err)
	}
	for text, says := range map[string]string{
		"reminders:\n  day: {role: coder}":                          "needs remind_after, such as 30m",
		"reminders:\n  day: {remind_after: soon}":                   "not a duration from 1s to 8760h, such as 30m",
		"reminders:\n  day: {remind_after: 1ms}":                    "not a duration from 1s to 8760h",
		"reminders:\n  notify: {remind_after: 1h}":                  "is reserved for the rule of notify.remind_after",
		"reminders:\n  a.b: {remind_after: 1h}":                     "1 to 32 letters, digits or -",
		"reminders:\n  day: {remind_after: 1h, label: team}":        "write a label as name=value",
		"reminders:\n  day: {remind_after: 1h, role: 'a b'}":        "role",
		"reminders:\n  day: {remind_after: 1h, hook: x}":            "hook",
		"reminders:\n  day: {remind_after: 1h, webhook: \"a\\tb\"}": "is not a valid name of a webhook",
	} {
		_, err := read(text)
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "picket.yaml:") {
			t.Errorf("%s: %v, want %q with its place", text, err, says)
		}
	}
}
