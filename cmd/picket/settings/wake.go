package settings

import (
	"time"

	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// Wake says how wake policies are read.
type Wake struct {
	Enabled                     bool          `yaml:"enabled" default:"true" check:"yes_no" doc:"Whether wake policies allow wakes. With false the status of every policy is heartbeat_disabled."`
	MaxBodyBytes                int           `yaml:"max_body_bytes" default:"32768" check:"wake_body" doc:"The bytes of the text below the front matter of a HEARTBEAT.md, 1024 to 262144. A longer text cannot be written."`
	MinInterval                 time.Duration `yaml:"min_interval" default:"5m" check:"min_interval" doc:"The least preferences.min_interval of a policy, 0s to 8760h. A shorter one is raised to it."`
	DefaultInterval             time.Duration `yaml:"default_interval" default:"30m" check:"default_interval" doc:"The interval of a policy without preferences.min_interval, 1s to 8760h and at least wake.min_interval. It is part of the digest of every policy. Nothing is woken by it yet."`
	AllowActiveHoursPreferences bool          `yaml:"allow_active_hours_preferences" default:"true" check:"yes_no" doc:"Whether preferences.active_hours of policies apply. Their quiet_windows apply in any case."`
	Dir                         string        `yaml:"dir" check:"argument" unset:"agents in the data directory of picket up" doc:"The directory with the files NAME/HEARTBEAT.md, which mirror the policies. picket up has agents in its data directory, and other servers have none by default."`
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
