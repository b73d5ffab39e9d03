package adapter

import (
	"cmp"
	"runtime/debug"
	"time"

	"github.com/picket-dev/picket"
)

// HealthConfig sets what silence of this adapter means, for the registry and for the adapter
// itself. After DeadAfter without a heartbeat it is dead and its leases have ended. The adapter has
// killed its agents a margin before. All times are whole seconds.
type HealthConfig struct {
	// Interval lies between two heartbeats. Defaults to 30 s.
	Interval time.Duration
	// UnhealthyAfter is the silence after which a warning is told, at least
	// twice Interval. Defaults to 90 s.
	UnhealthyAfter time.Duration
	// DeadAfter is the silence that ends all work, at least twice
	// UnhealthyAfter. Defaults to 300 s.
	DeadAfter time.Duration
	// DrainTimeout is how long running agents may take to finish in a drain. A negative value gives
	// them no time. Defaults to 120 s.
	DrainTimeout time.Duration
}

func (h *HealthConfig) fill() error {
	h.Interval = cmp.Or(h.Interval, picket.DefaultHeartbeat*time.Second)
	h.UnhealthyAfter = cmp.Or(h.UnhealthyAfter, picket.DefaultUnhealthy*time.Second)
	h.DeadAfter = cmp.Or(h.DeadAfter, picket.DefaultDead*time.Second)
	h.DrainTimeout = max(cmp.Or(h.DrainTimeout, picket.DefaultDrainTimeout*time.Second), 0)
	for _, m := range []struct {
		field string
		d     time.Duration
	}{{"Interval", h.Interval}, {"UnhealthyAfter", h.UnhealthyAfter}, {"DeadAfter", h.DeadAfter},
		{"DrainTimeout", h.DrainTimeout}} {
		if m.d%time.Second != 0 {
			return picket.Invalid("Health."+m.field, "Use whole seconds.", "%s is %s", m.field, m.d)
		}
	}
	return nil
}

func (h *HealthConfig) thresholds() *picket.Thresholds {
	return &picket.Thresholds{
		IntervalSeconds:       new(int(h.Interval / time.Second)),
		UnhealthyAfterSeconds: new(int(h.UnhealthyAfter / time.Second)),
		DeadAfterSeconds:      new(int(h.DeadAfter / time.Second)),
	}
}

// buildVersion is the version of this module that the program was built with.
func buildVersion() string {
	const module = "github.com/picket-dev/picket"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	if info.Main.Path == module && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(len(s.Value), 12)]
		}
	}
	return "devel"
}
