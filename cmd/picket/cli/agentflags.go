package cli

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// HealthFlags say what an agent's silence means. The defaults are those of the
// registry.
func HealthFlags(c *cobra.Command) {
	SilenceFlags(c, picket.DefaultHeartbeat*time.Second, picket.DefaultUnhealthy*time.Second,
		picket.DefaultDead*time.Second)
	f := c.Flags()
	f.Duration("drain-timeout", picket.DefaultDrainTimeout*time.Second,
		"time that tasks get to finish in a drain")
	f.String("name", "", "what people call the agent")
	for name, shown := range map[string]string{
		"unhealthy-after": "90s",
		"dead-after":      "5m",
		"drain-timeout":   "2m",
	} {
		f.Lookup(name).DefValue = shown
	}
}

// SilenceFlags are those of HealthFlags that say when silence means what.
func SilenceFlags(c *cobra.Command, heartbeat, unhealthy, dead time.Duration) {
	f := c.Flags()
	f.Duration("heartbeat", heartbeat, "send a heartbeat this often, whole seconds")
	f.Duration("unhealthy-after", unhealthy, "silence after which the agent is unhealthy, at least twice --heartbeat")
	f.Duration("dead-after", dead, "silence after which the agent is dead, at least twice --unhealthy-after")
}

// FillHeartbeat fills the flags of silence that were not given from an entry of picket.yaml.
func FillHeartbeat(cmd *cobra.Command, e settings.Agent) {
	for flag, n := range map[string]*int{
		"heartbeat":       e.Heartbeat.IntervalSeconds,
		"unhealthy-after": e.Heartbeat.UnhealthyAfterSeconds,
		"dead-after":      e.Heartbeat.DeadAfterSeconds,
	} {
		if f := cmd.Flags().Lookup(flag); f != nil && !f.Changed && n != nil {
			_ = f.Value.Set(strconv.Itoa(*n) + "s")
		}
	}
}

// SecondsOf reads a flag of HealthFlags; the registry counts in whole seconds.
func SecondsOf(cmd *cobra.Command, name string) (int, error) {
	d, _ := cmd.Flags().GetDuration(name)
	if d < 0 || d%time.Second != 0 {
		return 0, picket.Refuse(exit.CodeUsage, "Such as 30s or 2m.",
			"--%s %s is not a whole number of seconds", name, d)
	}
	return int(d / time.Second), nil
}

// ThresholdsOf reads the three flags that say what silence means.
func ThresholdsOf(cmd *cobra.Command) (*picket.Thresholds, error) {
	var n [3]int
	for i, name := range []string{"heartbeat", "unhealthy-after", "dead-after"} {
		var err error
		if n[i], err = SecondsOf(cmd, name); err != nil {
			return nil, err
		}
	}
	if twice := "--%s %ds is less than twice --%s (%ds)"; n[1] < 2*n[0] {
		return nil, thresholdError(twice, "unhealthy-after", n[1], "heartbeat", n[0])
	} else if n[2] < 2*n[1] {
		return nil, thresholdError(twice, "dead-after", n[2], "unhealthy-after", n[1])
	}
	t := &picket.Thresholds{IntervalSeconds: &n[0], UnhealthyAfterSeconds: &n[1], DeadAfterSeconds: &n[2]}
	return t, t.Normalize("/heartbeat_config")
}

func thresholdError(format string, args ...any) error {
	return picket.Refuse(exit.CodeUsage,
		"Raise --unhealthy-after and --dead-after with --heartbeat; the defaults are 30s, 90s and 5m.",
		format, args...)
}

// AsFlag names the entry of picket.yaml that a worker stands for.
func AsFlag(c *cobra.Command) {
	c.Flags().String("as", "", "take settings that are not given here from this entry under agents: in picket.yaml")
	_ = c.RegisterFlagCompletionFunc("as",
		func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var names []cobra.Completion
			if cfg, err := settings.LoadSettings(cmd); err == nil {
				for _, e := range cfg.AgentEntries() {
					names = append(names, cobra.CompletionWithDesc(e.Name, "role "+e.Role()))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		})
}

// maxLeases is how many leases one adapter holds at most.
const maxLeases = 100

// ApplyAgentEntry fills the flags that were not given from the entry of --as, and
// answers the settings as they hold for its role.
func ApplyAgentEntry(cmd *cobra.Command, cfg settings.Settings) (settings.Settings, settings.Agent, error) {
	name, _ := cmd.Flags().GetString("as")
	if !cmd.Flags().Changed("as") {
		return cfg, settings.Agent{}, nil
	}
	e, err := cfg.AgentNamed(name)
	if err != nil {
		return cfg, e, err
	}
	if n := e.Capacity.MaxConcurrentTasks; n != nil && !cmd.Flags().Changed("max") &&
		(*n < 1 || *n > maxLeases) {
		return cfg, e, picket.Refuse(exit.CodeUsage, "Add --max, and start several.",
			"%s: agents.%s.capacity.max_concurrent_tasks is %d, and one adapter holds 1 to %d leases", e.Origin("capacity.max_concurrent_tasks"), e.Name, *n, maxLeases)
	}
	fill := func(flag string, items ...string) {
		f := cmd.Flags().Lookup(flag)
		if f == nil || f.Changed || len(items) == 0 || items[0] == "" {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			_ = list.Replace(items)
			return
		}
		_ = f.Value.Set(items[0])
	}
	fill("role", e.Role())
	fill("capability", e.Capabilities...)
	if n := e.Capacity.MaxConcurrentTasks; n != nil {
		fill("max", strconv.Itoa(*n))
	}
	if e.Linger != nil {
		fill("linger", e.Linger.String())
	}
	FillHeartbeat(cmd, e)
	if n := e.DrainTimeoutSeconds; n != nil {
		fill("drain-timeout", strconv.Itoa(*n)+"s")
	}
	return cfg.ForRole(e.Role()), e, nil
}
