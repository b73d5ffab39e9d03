package agentheartbeat

import (
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// defaultSettings are the settings of wakes, and their defaults.
var defaultSettings = map[string]string{
	"enabled": "true", "max_body_bytes": "32768", "context_projection_bytes": "4096", "min_interval": "5m",
	"default_interval": "30m", "wake_cooldown": "1m", "max_wakes_per_cycle": "25", "active_session_only": "true",
	"allow_active_hours_preferences": "true", "wake_event_retention": "168h", "session_health_stale_after": "2m",
	"session_health_hook_min_interval": "1m",
}

// refusedSettings are lines of picket.yaml with a setting that is out of bounds.
var refusedSettings = []string{
	"max_body_bytes: 1", "context_projection_bytes: 1", "min_interval: -1s", "default_interval: 1m",
	"wake_cooldown: 25h", "max_wakes_per_cycle: 0", "active_session_only: false", "wake_event_retention: 1m",
	"session_health_stale_after: 0s", "session_health_hook_min_interval: 25h", "budget: -1", "enabled: maybe",
}

// Section 12: the settings of the program, and those that take minutes.
var programChecks = checks{
	"12/defaults": func(t *Trial) {
		o := t.expectExit(t.picket("", "config", "show", "--config", t.file(""), "-o", "jsonl"), 0)
		shown := map[string]string{}
		for line := range strings.Lines(string(o.Raw)) {
			setting := conformance.ParseFields(line)
			if name, ok := strings.CutPrefix(text(setting, "key"), "wake."); ok {
				shown[name] = text(setting, "value")
			}
		}
		for name, value := range defaultSettings {
			t.ExpectEqual("wake."+name, shown[name], value)
		}
	},
	"12/bounds": func(t *Trial) {
		for _, setting := range refusedSettings {
			o := t.expectExit(t.picket("", "config", "show", "--config", t.file("wake: {"+setting+"}\n")), 2)
			name, _, _ := strings.Cut(setting, ":")
			t.holds(o.answer, "a refusal that names wake."+name, strings.Contains(o.errors, "wake."+name))
		}
	},
	"12/session_health_hook_min_interval": func(t *Trial) {
		k := t.keep(t.name(), 1)
		after := t.mark()
		ill := detached(k.session(), "cannot_start")
		for range 3 {
			k.report(ill)
			k.reportIdle()
		}
		t.ExpectEqual("events of changes at once", len(k.events(after, "agent_session.health")), 1)
		for range 3 { // the last change is told when the time is over
			t.Sleep(30 * time.Second)
			k.reportIdle()
		}
		t.ExpectEqual("events of changes", k.events(after, "agent_session.health"),
			slices.Repeat([]string{"agent_session.health"}, 2))
	},
}
