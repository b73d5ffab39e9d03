package heartbeat

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

func TestDefaultsAreValid(t *testing.T) {
	if err := Defaults().Check(); err != nil {
		t.Error(err)
	}
	s := Defaults()
	if !s.Enabled || s.MaxBodyBytes != 32768 || s.ContextProjectionBytes != 4096 || s.MinInterval != 5*time.Minute ||
		s.DefaultInterval != 30*time.Minute || s.WakeCooldown != time.Minute || s.MaxWakesPerCycle != 25 ||
		!s.ActiveSessionOnly || !s.AllowActiveHoursPreferences || s.WakeEventRetention != 168*time.Hour ||
		s.SessionHealthStaleAfter != 2*time.Minute || s.SessionHealthHookMinInterval != time.Minute || s.Dir != "" ||
		s.Budget.Dollars() != "$5.00" || s.WhenIdle {
		t.Errorf("defaults = %+v", s)
	}
}

// A refusal names the key, its value and what is allowed.
func TestSettingsOutOfBounds(t *testing.T) {
	for field, change := range map[string]func(*Settings){
		"wake.max_body_bytes":                   func(s *Settings) { s.MaxBodyBytes = 1 << 20 },
		"wake.context_projection_bytes":         func(s *Settings) { s.ContextProjectionBytes = s.MaxBodyBytes + 1 },
		"wake.min_interval":                     func(s *Settings) { s.MinInterval = -1 },
		"wake.default_interval":                 func(s *Settings) { s.DefaultInterval = s.MinInterval - 1 },
		"wake.wake_cooldown":                    func(s *Settings) { s.WakeCooldown = 25 * time.Hour },
		"wake.max_wakes_per_cycle":              func(s *Settings) { s.MaxWakesPerCycle = 0 },
		"wake.active_session_only":              func(s *Settings) { s.ActiveSessionOnly = false },
		"wake.wake_event_retention":             func(s *Settings) { s.WakeEventRetention = 0 },
		"wake.session_health_stale_after":       func(s *Settings) { s.SessionHealthStaleAfter = 0 },
		"wake.session_health_hook_min_interval": func(s *Settings) { s.SessionHealthHookMinInterval = -1 },
		"wake.dir":                              func(s *Settings) { s.Dir = "a\x00" },
		"wake.budget":                           func(s *Settings) { s.Budget = -1 },
	} {
		s := Defaults()
		change(&s)
		var refusal *picket.Error
		if err := s.Check(); !errors.As(err, &refusal) || refusal.Facts["field"] != field || refusal.Remedy == "" ||
			!strings.HasPrefix(refusal.Message, field+" is ") {
			t.Errorf("%s: %+v", field, err)
		}
	}
	s := Defaults()
	s.MinInterval, s.WakeCooldown, s.DefaultInterval, s.SessionHealthHookMinInterval = 0, 0, time.Second, 0
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
