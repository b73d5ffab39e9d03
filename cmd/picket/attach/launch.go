package attach

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// checkUnregisteredFlags refuses flags of the registry beside --unregistered.
func checkUnregisteredFlags(cmd *cobra.Command) error {
	f := cmd.Flags()
	if out, _ := f.GetBool("unregistered"); !out {
		return nil
	}
	for _, name := range []string{"name", "heartbeat", "unhealthy-after", "dead-after", "drain-timeout"} {
		if f.Changed(name) {
			return picket.Refuse(exit.CodeUsage, "Leave one of them out.",
				"--%s has no meaning with --unregistered", name)
		}
	}
	return nil
}

// healthConfigOf is ThresholdsOf for the adapter.
func healthConfigOf(cmd *cobra.Command) (h adapter.HealthConfig, err error) {
	t, err := cli.ThresholdsOf(cmd)
	if err != nil {
		return h, err
	}
	drain, err := cli.SecondsOf(cmd, "drain-timeout")
	if err != nil {
		return h, err
	}
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	of := t.Config()
	return adapter.HealthConfig{
		Interval:       seconds(of.IntervalSeconds),
		UnhealthyAfter: seconds(of.UnhealthyAfterSeconds),
		DeadAfter:      seconds(of.DeadAfterSeconds),
		DrainTimeout:   noneIfZero(seconds(drain), nil),
	}, picket.CheckDrainTimeout("/drain_timeout_seconds", &drain)
}

// adapterLaunch is what the adapter launches.
func adapterLaunch(cmd *cobra.Command, given []string, e settings.Agent) (launch, error) {
	if e.Remote.URL != "" {
		return foreignLaunch(cmd, given, e)
	}
	p, err := presetOf(cmd, e)
	if err != nil || !p.CodingAgent() {
		command, bad := adapterCommand(cmd, given, e)
		return launch{preset: p, command: command}, cmp.Or(err, bad)
	}
	if words := cmd.ArgsLenAtDash(); words > 0 || words < 0 && len(given) > 0 {
		return launch{}, picket.Refuse(exit.CodeUsage,
			"A worker gets its work from tasks: picket task create, or picket run --agent "+string(p)+" \"PROMPT\". Arguments for "+string(p)+" itself follow --.",
			"%s stands where nothing is expected", term.ShellQuote(given[0]))
	}
	return codingAgentLaunch(cmd, p, given, e), nil
}

// adapterCommand is a plain command: what stands after --, else what the entry
// of --as launches.
func adapterCommand(cmd *cobra.Command, given []string, e settings.Agent) ([]string, error) {
	if launch := e.Launch.Command; len(launch) > 0 && cmd.ArgsLenAtDash() < 0 && len(given) == 0 {
		return launch, nil
	}
	command, err := commandAfterDash(cmd, given)
	var refusal *picket.Error
	if errors.As(err, &refusal) && e.Name != "" {
		refusal.Remedy = strings.TrimSuffix(refusal.Remedy, ".") + "; or give agents." + e.Name +
			" a launch: {command: […]} or {preset: claude}"
	}
	return command, err
}
