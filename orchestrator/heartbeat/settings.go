package heartbeat

import (
	"fmt"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// Settings are the keys of wake: in picket.yaml. [Defaults] has their defaults. A key is named
// as its field, in snake case: wake.max_body_bytes.
type Settings struct {
	// Enabled is false if no session may be woken.
	Enabled bool
	// MaxBodyBytes bounds the body of HEARTBEAT.md. A longer one cannot be written; that of a
	// file is cut where it is quoted.
	MaxBodyBytes int
	// ContextProjectionBytes is how much of the body a wake prompt quotes.
	ContextProjectionBytes int
	// MinInterval is the least min_interval of a file. A shorter one is raised to it.
	MinInterval time.Duration
	// DefaultInterval is how long after its last wake or activity the scheduler wakes a session.
	DefaultInterval time.Duration
	// WakeCooldown is the least time between two wakes of one session.
	WakeCooldown time.Duration
	// MaxWakesPerCycle bounds the wakes of one agent name and key in one cycle of the scheduler.
	MaxWakesPerCycle int
	// ActiveSessionOnly is true: only sessions that an adapter keeps now are woken. A wake
	// never starts a session.
	ActiveSessionOnly bool
	// AllowActiveHoursPreferences is false if active_hours of files are ignored. Their
	// quiet_windows apply in any case.
	AllowActiveHoursPreferences bool
	// WakeEventRetention is how long the audit rows of wakes are kept.
	WakeEventRetention time.Duration
	// SessionHealthStaleAfter is the age beyond which a report about a session is stale.
	SessionHealthStaleAfter time.Duration
	// SessionHealthHookMinInterval is the least time between two events agent_session.health
	// of one session.
	SessionHealthHookMinInterval time.Duration
	// Dir is the directory that mirrors the policies in files. If it is empty, there are no files.
	Dir string
	// Budget is what all wakes of a namespace may spend in one UTC day.
	Budget budget.Money
	// WhenIdle is true if a wake by the clock goes out also when nothing has changed.
	WhenIdle bool
}

// Bounds of settings and files.
const (
	MaxInterval     = 365 * 24 * time.Hour // of any interval of a file or a setting
	minBodyBytes    = 1 << 10
	maxBodyBytes    = 256 << 10
	minProjection   = 256
	maxWakesInCycle = 1000
)

// Defaults returns the settings of a picket.yaml without wake:.
func Defaults() Settings {
	return Settings{
		Enabled:                      true,
		MaxBodyBytes:                 32 << 10,
		ContextProjectionBytes:       4 << 10,
		MinInterval:                  5 * time.Minute,
		DefaultInterval:              30 * time.Minute,
		WakeCooldown:                 time.Minute,
		MaxWakesPerCycle:             25,
		ActiveSessionOnly:            true,
		AllowActiveHoursPreferences:  true,
		WakeEventRetention:           168 * time.Hour,
		SessionHealthStaleAfter:      2 * time.Minute,
		SessionHealthHookMinInterval: time.Minute,
		Budget:                       5_000_000_000,
	}
}

// settingCheck is a bound of one setting.
type settingCheck struct {
	valid  bool
	key    string
	value  any
	remedy string
}

// Check refuses the first setting that is out of bounds. The refusal names the key, its value
// and what is allowed.
func (s Settings) Check() error {
	for _, c := range s.checks() {
		if !c.valid {
			return picket.Invalid("wake."+c.key, c.remedy, "wake.%s is %v", c.key, c.value)
		}
	}
	return nil
}

func (s Settings) checks() []settingCheck {
	return []settingCheck{
		number("max_body_bytes", s.MaxBodyBytes, minBodyBytes, maxBodyBytes),
		number("context_projection_bytes", s.ContextProjectionBytes, minProjection, s.MaxBodyBytes),
		interval("min_interval", s.MinInterval, 0, MaxInterval),
		interval("default_interval", s.DefaultInterval, max(s.MinInterval, time.Second), MaxInterval),
		interval("wake_cooldown", s.WakeCooldown, 0, 24*time.Hour),
		number("max_wakes_per_cycle", s.MaxWakesPerCycle, 1, maxWakesInCycle),
		{s.ActiveSessionOnly, "active_session_only", false,
			"Leave it true. A wake goes to a session that an adapter keeps; it never starts one."},
		interval("wake_event_retention", s.WakeEventRetention, time.Hour, MaxInterval),
		interval("session_health_stale_after", s.SessionHealthStaleAfter, time.Second, 24*time.Hour),
		interval("session_health_hook_min_interval", s.SessionHealthHookMinInterval, 0, 24*time.Hour),
		{!strings.ContainsRune(s.Dir, 0), "dir", "not a path", "Write a path without NUL bytes."},
		{s.Budget >= 0 && s.Budget <= budget.MaxMoney, "budget", s.Budget.Dollars(),
			"Write dollars from 0 to " + budget.MaxMoney.String() + ". With 0 no session is woken."},
	}
}

func number(key string, n, least, most int) settingCheck {
	return settingCheck{n >= least && n <= most, key, n, fmt.Sprintf("Write a number from %d to %d.", least, most)}
}

func interval(key string, d, least, most time.Duration) settingCheck {
	return settingCheck{d >= least && d <= most, key, d, fmt.Sprintf("Write a duration from %s to %s.", least, most)}
}
