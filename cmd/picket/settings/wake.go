package settings

import (
	"time"

	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// Wake says how wake policies are read.
type Wake struct {
	Enabled                      bool          `yaml:"enabled" default:"true" check:"yes_no" doc:"Whether wake policies allow wakes. With false the status of every policy is heartbeat_disabled."`
	MaxBodyBytes                 int           `yaml:"max_body_bytes" default:"32768" check:"wake_body" doc:"The bytes of the text below the front matter of a HEARTBEAT.md, 1024 to 262144. A longer text cannot be written."`
	MinInterval                  time.Duration `yaml:"min_interval" default:"5m" check:"min_interval" doc:"The least preferences.min_interval of a policy, 0s to 8760h. A shorter one is raised to it."`
	DefaultInterval              time.Duration `yaml:"default_interval" default:"30m" check:"default_interval" doc:"The scheduler wakes a session this long after its last wake or activity, or after the min_interval of its policy if that is longer, 1s to 8760h and at least wake.min_interval. It is part of the digest of every policy."`
	WakeCooldown                 time.Duration `yaml:"wake_cooldown" default:"1m" check:"wake_cooldown" doc:"The least time between two wakes of one session, 0s to 24h."`
	MaxWakesPerCycle             int           `yaml:"max_wakes_per_cycle" default:"25" check:"wakes_per_cycle" doc:"How many wakes the sessions that one key has of an agent name get within 30 seconds, 1 to 1000."`
	ContextProjectionBytes       int           `yaml:"context_projection_bytes" default:"4096" check:"projection" doc:"How many bytes of the text of a policy a wake quotes, 256 to 262144. wake.max_body_bytes is the upper bound."`
	WakeEventRetention           time.Duration `yaml:"wake_event_retention" default:"168h" check:"wake_retention" doc:"How long the decisions about wakes are kept, 1h to 8760h."`
	SessionHealthStaleAfter      time.Duration `yaml:"session_health_stale_after" default:"2m" check:"stale_after" doc:"The age beyond which the report about a session is stale, 1s to 24h. A stale session is not woken."`
	SessionHealthHookMinInterval time.Duration `yaml:"session_health_hook_min_interval" default:"1m" check:"wake_cooldown" doc:"The least time between two events agent_session.health of one session, 0s to 24h."`
	ActiveSessionOnly            bool          `yaml:"active_session_only" default:"true" check:"only_true" doc:"Only sessions that an adapter keeps now are woken. A wake never starts a session, so only true is allowed."`
	WhenIdle                     bool          `yaml:"when_idle" default:"false" check:"yes_no" doc:"Whether the scheduler wakes a session by the clock although nothing has changed for it."`
	AllowActiveHoursPreferences  bool          `yaml:"allow_active_hours_preferences" default:"true" check:"yes_no" doc:"Whether preferences.active_hours of policies apply. Their quiet_windows apply in any case."`
	Budget                       budget.Money  `yaml:"budget" default:"5" check:"dollars" doc:"The dollars that all agent sessions of a namespace may spend through the tool proxy on a UTC day. 0 refuses every wake and prompt."`
	Dir                          string        `yaml:"dir" check:"argument" unset:"agents in the data directory of picket up" doc:"The directory with the files NAME/HEARTBEAT.md, which mirror the policies. picket up has agents in its data directory, and other servers have none by default."`
}

// checkWake refuses intervals of wakes that contradict each other.
func (s Settings) checkWake() error {
	if s.Wake.DefaultInterval >= s.Wake.MinInterval {
		return nil
	}
	least, interval := s.values["wake.min_interval"], s.values["wake.default_interval"]
	return exit.Usagef("wake.default_interval (from %s) is %s, and must be at least wake.min_interval (from %s), %s",
		interval.Origin, interval.Text, least.Origin, least.Text)
}
