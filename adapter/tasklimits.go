package adapter

import (
	"cmp"
	"math"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
)

// Tests replace these to see that the defaults of a preset are what is used.
var (
	presetTimeout    = agents.Preset.Timeout
	presetStallAfter = agents.Preset.StallAfter
)

// fillTaskLimits fills in and checks the limits of tasks that set none.
func (cfg *Config) fillTaskLimits() error {
	cfg.Timeout = cmp.Or(cfg.Timeout, presetTimeout(cfg.Preset))
	cfg.StallAfter = cmp.Or(cfg.StallAfter, presetStallAfter(cfg.Preset))
	if d := cfg.Timeout; d > 0 && (d < time.Second || d > picket.MaxTimeout*time.Second) {
		return picket.Invalid("Timeout", "Set it to 1 s to 7 days, or to a negative value for no limit.",
			"the timeout of runs is %s", d)
	}
	if d := cfg.StallAfter; d > 0 && (d < picket.MinStall*time.Second || d > picket.MaxStall*time.Second) {
		return picket.Invalid("StallAfter", "Set it to 2 s to 24 h, or to a negative value for never.",
			"the silence after which runs are nudged is %s", d)
	}
	return nil
}

// limitTask gives a task the limits that it does not set itself.
func (cfg *Config) limitTask(task *picket.LeaseTask) {
	if task.TimeoutSeconds == nil {
		task.TimeoutSeconds = wholeSeconds(cfg.Timeout)
	}
	if task.StallAfterSeconds == nil {
		task.StallAfterSeconds = wholeSeconds(cfg.StallAfter)
	}
}

// wholeSeconds rounds up; nil stands for no limit.
func wholeSeconds(d time.Duration) *int {
	if d <= 0 {
		return nil
	}
	return new(int(math.Ceil(d.Seconds())))
}

// TaskLimits are the limits of runs whose tasks set none; 0 stands for no limit.
func (a *Adapter) TaskLimits() (timeout, stallAfter time.Duration) {
	return max(0, a.cfg.Timeout), max(0, a.cfg.StallAfter)
}
