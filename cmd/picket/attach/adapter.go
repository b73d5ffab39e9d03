package attach

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/tracing"
)

// NewAdapter is `picket adapter`: it works on tasks until it is told to end.
func NewAdapter() *cobra.Command {
	c := &cobra.Command{
		Use:   "adapter [flags] [-- COMMAND ...]",
		Short: "Work on tasks: lease, launch, renew, release",
		Long: "Work on tasks until stopped. The adapter registers, sends heartbeats and leases tasks. For each\n" +
			"task it starts the command with the lease in its environment, renews the lease, watches the\n" +
			"process and reports how it ended. SIGTERM drains: the adapter takes no new lease, and running\n" +
			"agents finish. A second SIGTERM ends them and gives their leases back. --agent names a coding\n" +
			"agent, which needs no command. --as takes the command, and every setting that is not given here,\n" +
			"from an entry under agents: in picket.yaml.",
		Example: "  picket adapter --role coder --capability go --max 4 -- ./agent.sh\n  picket adapter --agent claude --role coder\n  picket adapter --as coder",
		RunE:    runAdapter,
	}
	f := c.Flags()
	f.StringSlice("capability", nil, "a capability tasks may need")
	f.String("role", "", "take tasks of this role (and those that name none)")
	f.Int("max", 1, "hold this many leases at once, 1 to 100")
	f.String("agent-id", "", "the worker's name (default: a new one)")
	f.Bool("pinned-only", false, "take only tasks pinned to --agent-id")
	f.Duration("linger", 10*time.Second,
		"time an agent gets to exit after it handed in its result (coding agents: 1m)")
	f.Duration("grace", 5*time.Second, "time between SIGTERM and SIGKILL")
	f.Bool("unregistered", false,
		"stay out of the registry: no record, no heartbeats; leases end by their own deadline only")
	cli.LimitFlags(c)
	cli.HealthFlags(c)
	cli.AsFlag(c)
	f.String("log-level", "info", "how much is logged: debug, info, warn or error")
	term.Choices(c, "log-level", "debug", "info", "warn", "error")
	agentFlag(c)
	workspaceFlags(c, workspace.Empty)
	runFlags(c)
	f.String("for-task", "", "end when this task is closed, in review or escalated, and nothing below it runs")
	// `picket run` starts one adapter for its task.
	f.Bool("pass-output", false, "copy the agent's output to stdout and stderr")
	f.String("log-file", "", "write the adapter's own log here")
	f.Int("handover", 0, "read the key from this descriptor")
	f.Bool("attached", false, "register in the role attached, which is in no pool")
	for _, internal := range []string{"pass-output", "log-file", "handover", "attached"} {
		_ = f.MarkHidden(internal)
	}
	return c
}

func runAdapter(cmd *cobra.Command, given []string) error {
	_ = HideProcess()
	handed, err := receivedSecrets(cmd)
	if err != nil {
		return err
	}
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		return err
	}
	if cmd.Flag("for-task").Value.String() == "" { // else `picket run` has reported them
		cli.ReportLocalSettings(cmd, cfg)
	}
	cfg, entry, err := cli.ApplyAgentEntry(cmd, cfg)
	if err != nil {
		return err
	}
	if err := checkUnregisteredFlags(cmd); err != nil {
		return err
	}
	launch, err := adapterLaunch(cmd, given, entry)
	if err != nil {
		return err
	}
	s, err := connectAdapter(cmd, &handed)
	if err != nil {
		return err
	}
	addSelfToPath()
	if err := launch.checkStartable(); err != nil {
		return err
	}
	log, err := adapterLog(cmd, cfg)
	if err != nil {
		return err
	}
	conf, err := adapterConfig(cmd, cfg, s, launch, log)
	if err != nil {
		return err
	}
	conf.Env, conf.StateKey = entry.Env(conf.Env), handed.StateKey
	tracer := tracing.FromEnv(cmd.Context(), "picket-adapter", log)
	defer tracer.Close()
	conf.OnEvent = traceProcesses(tracer)
	if err := keepSessions(&conf, entry, launch, s); err != nil {
		return err
	}
	if launch.foreign != nil {
		defer serveForeign(cmd.Context(), &conf, launch.foreign, s)()
	}
	a, err := adapter.New(conf)
	if err != nil {
		return err
	}
	if timeout, stallAfter := a.TaskLimits(); timeout > 0 || stallAfter > 0 {
		log.Info("limits of runs whose tasks set none; --timeout and --stall-after change them",
			"timeout", limitText(timeout), "stall_after", limitText(stallAfter))
	}
	ctx, drain := context.WithCancelCause(cmd.Context())
	defer drain(nil)
	defer onTerminate(log, func() {
		log.Info("draining: running agents finish; SIGTERM again ends them")
		drain(errors.New("asked to end"))
	}, a.ReleaseNow)()
	if task, _ := cmd.Flags().GetString("for-task"); task != "" {
		go func() { drain(untilAtRest(ctx, s, task)) }()
	} else if launch.foreign == nil {
		log.Info("an agent that exits with 0 without mark_complete ends its run with class no_result, a failure; " +
			"if exit 0 means success, submit the task with --on-exit complete")
	}
	if handed.Key != "" {
		// The adapter needs the key until its last agent has ended.
		working, stop := context.WithCancel(context.WithoutCancel(ctx))
		go keepRunKeyRenewed(working, s, log)
		defer deleteRunKey(s, log)
		defer stop()
	}
	return s.WithRemedy(a.Run(ctx))
}

func limitText(d time.Duration) string {
	if d == 0 {
		return "none"
	}
	return term.ShortDuration(d)
}

// receivedSecrets is what `picket run` hands over. It is empty if the adapter was
// started on its own.
func receivedSecrets(cmd *cobra.Command) (adapterSecrets, error) {
	fd, _ := cmd.Flags().GetInt("handover")
	if fd == 0 {
		return adapterSecrets{}, nil
	}
	return receiveSecrets(fd)
}

// connectAdapter connects with the key that was handed over, or else with that
// of the environment or the profile. The last two have a state key of their own.
func connectAdapter(cmd *cobra.Command, handed *adapterSecrets) (*cli.Connection, error) {
	if handed.Key != "" {
		return cli.ConnectWith(cmd, handed.Key, "the key that `picket run` handed over")
	}
	s, err := cli.Connect(cmd)
	if err == nil {
		handed.StateKey = stateKey(s.Key())
	}
	return s, err
}

// addSelfToPath puts this binary's directory at the end of PATH when there is no
// picket on it, so that an agent's `picket tool` works without an installation.
func addSelfToPath() {
	if term.OnPath() {
		return
	}
	if self, err := os.Executable(); err == nil && filepath.Base(self) == "picket" {
		_ = os.Setenv("PATH", os.Getenv("PATH")+string(filepath.ListSeparator)+filepath.Dir(self))
	}
}

// commandAfterDash answers the command after "--", which must stand first.
func commandAfterDash(cmd *cobra.Command, given []string) ([]string, error) {
	dash := cmd.ArgsLenAtDash()
	if dash < 0 || dash == len(given) {
		return nil, picket.Refuse(exit.CodeUsage,
			"Put it after --, for example: "+cmd.CommandPath()+" -- make test",
			"the command to run is missing")
	}
	if dash > 0 {
		return nil, picket.Refuse(exit.CodeUsage,
			"Put the whole command after --: "+cmd.CommandPath()+" -- make test",
			"%q stands before --", given[0])
	}
	return given, nil
}

// checkStartable refuses a command that cannot be started here, before a task is made
// for it or taken with it.
func checkStartable(command []string) error {
	if _, err := exec.LookPath(command[0]); err != nil {
		reason := err
		var of *exec.Error
		if errors.As(err, &of) {
			reason = of.Err
		}
		return picket.Refuse(exit.CodeUsage,
			"Give a program on PATH, or a path such as ./agent.sh to a file with chmod +x; shell syntax goes through sh -c '…'.",
			"%s cannot be started: %v", term.ShellQuote(command[0]), reason)
	}
	return nil
}

// noneIfZero turns a flag of zero into "none": to the library, zero is "default".
func noneIfZero(d time.Duration, _ error) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

func adapterConfig(cmd *cobra.Command, cfg settings.Settings, s *cli.Connection, l launch,
	log *slog.Logger) (conf adapter.Config, err error) {
	f := cmd.Flags()
	conf = adapter.Config{BaseURL: s.URL(), Key: s.Key(), Log: log}
	l.applyTo(&conf)
	conf.Role, _ = f.GetString("role")
	conf.Capabilities, _ = f.GetStringSlice("capability")
	conf.Max, _ = f.GetInt("max")
	conf.AgentID, _ = f.GetString("agent-id")
	conf.PinnedOnly, _ = f.GetBool("pinned-only")
	conf.Name, _ = f.GetString("name")
	conf.Unregistered, _ = f.GetBool("unregistered")
	conf.Attached, _ = f.GetBool("attached")
	if conf.Health, err = healthConfigOf(cmd); err != nil {
		return conf, err
	}
	conf.Grace = noneIfZero(f.GetDuration("grace"))
	if conf.Timeout, err = cli.TimeoutFlag(cmd); err != nil {
		return conf, err
	}
	conf.Timeout, conf.StallAfter = cmp.Or(conf.Timeout, cfg.Timeout), cfg.StallAfter
	// else the library's own, by kind of agent
	if l := f.Lookup("linger"); l.Changed || l.Value.String() != l.DefValue {
		conf.Linger = noneIfZero(f.GetDuration("linger"))
	}
	at, err := workspaceOptionsOf(cmd, cfg, l.preset)
	if err != nil {
		return conf, err
	}
	at.applyTo(&conf)
	runOptionsOf(cfg).applyTo(&conf)
	conf.Containment, conf.Limits = cfg.Containment, cfg.ProcessLimits()
	if conf.Max < 1 { // to the library, zero is "default"
		return conf, exit.Usagef("--max %d: 1 to 100", conf.Max)
	}
	if pass, _ := f.GetBool("pass-output"); pass {
		conf.Stdout, conf.Stderr = l.preset.Readable(term.SafeOutput(cmd.OutOrStdout())),
			term.SafeOutput(cmd.ErrOrStderr())
		conf.OutputOf, _ = f.GetString("for-task")
	}
	return conf, nil
}

func adapterLog(cmd *cobra.Command, cfg settings.Settings) (*slog.Logger, error) {
	path, _ := cmd.Flags().GetString("log-file")
	if path == "" {
		return settings.NewLog(cfg, cmd.ErrOrStderr()), nil
	}
	// Left open: it is written until the process ends.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, exit.Usagef("the log file cannot be used: %v", err)
	}
	return settings.NewLog(cfg, f), nil
}
