package attach

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// runOptions say how runs are reported while they last, and what of them stays on this
// machine.
type runOptions struct {
	progress adapter.ProgressTickConfig
	keep     time.Duration
	logLimit settings.Memory
}

// runFlags are the flags of runOptions.
func runFlags(c *cobra.Command) {
	f := c.Flags()
	f.Duration("launcher-heartbeat", 30*time.Second, "report a running agent this often (event agent-heartbeat)")
	f.String("timeout-warning", "0.8", "warn once after this share of a run's timeout, above 0 and up to 1")
	f.Duration("keep-runs", 7*24*time.Hour, "keep the files and the output of ended runs on this machine this long")
	f.Lookup("keep-runs").DefValue = "168h"
	f.String("log-limit", "64MiB", "keep this much of each output stream of a run on this machine; 0 keeps all")
}

// runOptionsOf reads the flags of runFlags and the settings behind them.
func runOptionsOf(cfg settings.Settings) runOptions {
	return runOptions{
		progress: adapter.ProgressTickConfig{
			Interval:                cfg.Launcher.HeartbeatInterval,
			TimeoutWarningThreshold: float64(cfg.Launcher.TimeoutWarning),
		},
		keep:     cfg.Runs.Keep,
		logLimit: cfg.Runs.LogLimit,
	}
}

func (o runOptions) applyTo(conf *adapter.Config) {
	conf.ProgressTick, conf.KeepRuns = o.progress, o.keep
	if conf.LogLimit = int64(o.logLimit); o.logLimit == 0 {
		conf.LogLimit = math.MaxInt64
	}
}

// commandFlags are the flags that say the same to another process. That process reads the
// same variables and the same file, which say general, but it knows neither the flags of c
// nor the role.
func (o runOptions) commandFlags(c *cobra.Command, general runOptions) (args []string) {
	was, now := general.texts(), o.texts()
	for _, flag := range slices.Sorted(maps.Keys(now)) {
		text := now[flag]
		if text != was[flag] || c.Flags().Changed(flag) {
			args = append(args, "--"+flag, text)
		}
	}
	return args
}

// texts are the options by their flags.
func (o runOptions) texts() map[string]string {
	return map[string]string{
		"launcher-heartbeat": o.progress.Interval.String(),
		"timeout-warning":    settings.Share(o.progress.TimeoutWarningThreshold).String(),
		"keep-runs":          o.keep.String(),
		"log-limit":          o.logLimit.String(),
	}
}
