package attach

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// NewRun is `picket run`: it submits a task, works on it here and watches it.
func NewRun() *cobra.Command {
	c := &cobra.Command{
		Use:   "run [flags] [PROMPT] [-- COMMAND ...]",
		Short: "Submit a command or a prompt as a task, run it here and watch it",
		Long: "Submit a command, or a prompt for a coding agent, as a task. Run it on this machine under a\n" +
			"lease, and watch it. A coding agent in a git repository works in a worktree of its own. The\n" +
			"agent's output is shown. Its standard input is empty; use --input to hand it something. At a\n" +
			"terminal you can answer its questions. Ctrl-C stops watching and leaves the task running; a\n" +
			"second Ctrl-C cancels it. A notice on the desktop tells you when the task needs you, is in\n" +
			"review or has ended. Exit code: 0 completed or in review, 1 failed, rejected, cancelled or\n" +
			"escalated, 5 out of budget, 124 timed out, 130 left running.",
		Example: `  picket run -- make test
  picket run --agent claude --budget 0.50 "fix the flaky test"
  picket run --timeout 10m --retries 2 -- ./agent.sh
  picket run --detach --label team=a -- make bench`,
		RunE: runRun,
	}
	cli.SpecFlags(c)
	f := c.Flags()
	f.String("title", "", "the task's title (default: the command)")
	f.BoolP("detach", "d", false, "do not watch: print the task's id and return")
	f.Bool("no-notify", false, "show no notice on the desktop when the task needs you, is in review or has ended")
	// Shorter than those of a worker: the death of this machine is noticed within a minute.
	cli.SilenceFlags(c, 5*time.Second, 15*time.Second, time.Minute)
	f.Lookup("dead-after").DefValue = "1m"
	agentFlag(c)
	workspaceFlags(c, workspace.Here)
	runFlags(c)
	return c
}

func runRun(cmd *cobra.Command, given []string) error {
	_ = HideProcess()
	cfg, err := settings.LoadSettings(cmd)
	if err != nil {
		return err
	}
	cli.ReportLocalSettings(cmd, cfg)
	job, err := runJobOf(cmd, cfg, given)
	if err != nil {
		return err
	}
	addSelfToPath()
	if err := job.checkStartable(); err != nil {
		return err
	}
	s, err := cli.Connect(cmd)
	if err != nil {
		return err
	}
	spec, err := runSpec(cmd, cfg, job)
	if err != nil {
		return err
	}
	w, err := newAdapterProcess(cmd, cfg, s, spec, job.launch)
	if err != nil {
		return err
	}
	task, err := s.Submit(cmd.Context(), spec)
	if err != nil {
		return err
	}
	if err := w.start(task.TaskID); err != nil {
		cancelTask(cmd.Context(), s, task.TaskID, "its adapter could not be started")
		return err
	}
	if job.preset.CodingAgent() {
		fmt.Fprintln(cmd.ErrOrStderr(), limitsText(spec))
	}
	silent, _ := cmd.Flags().GetBool("no-notify")
	if detach, _ := cmd.Flags().GetBool("detach"); detach {
		fmt.Fprintln(cmd.OutOrStdout(), task.TaskID)
		follow := []string{"picket task watch " + task.TaskID, "picket task logs -f " + task.TaskID}
		if !silent {
			follow = append(follow, "picket task watch --notify "+task.TaskID+" >/dev/null &")
		}
		if task.ReviewBy != picket.ReviewByNone {
			follow = append(follow, "picket review approve "+task.TaskID)
		}
		cli.PrintNext(cmd, follow...)
		return nil
	}
	return attach(cmd, s, task, w, newDesktopNotifier(cmd, cfg, !silent))
}

// runJob is what `picket run` submits: a command, or a prompt for a coding agent.
type runJob struct {
	launch
	prompt string
}

func runJobOf(cmd *cobra.Command, cfg settings.Settings, given []string) (job runJob, err error) {
	role, _ := cmd.Flags().GetString("role")
	e, _ := cfg.AgentOfRole(role)
	if job.preset, err = presetOf(cmd, e); err != nil {
		return job, err
	}
	if job.preset.CodingAgent() && (cmd.Flags().Changed("agent") || cmd.ArgsLenAtDash() != 0) {
		job.launch = codingAgentLaunch(cmd, job.preset, given, e)
		job.prompt, err = promptOf(cmd, given)
		return job, err
	}
	if cmd.ArgsLenAtDash() < 0 && len(given) == 1 && strings.ContainsAny(given[0], " \t\n") {
		return job, agentMissingError(cmd, given[0])
	}
	job.preset = "" // a command: whatever workers of the role start
	job.command, err = commandAfterDash(cmd, given)
	return job, err
}

// runSpec is the task of a job, pinned to an adapter of its own. A command's is
// complete when it succeeds, if its role does not say otherwise; a coding agent
// hands in its result itself.
func runSpec(cmd *cobra.Command, cfg settings.Settings, job runJob) (picket.TaskSpec, error) {
	title, _ := cmd.Flags().GetString("title")
	if title == "" && job.prompt != "" {
		line, _, _ := strings.Cut(job.prompt, "\n")
		title = titleOf(line)
	} else if title == "" {
		title = titleOf(term.ShellJoin(job.command))
	}
	spec, err := cli.SpecOf(cmd, cfg, title)
	if err != nil {
		return spec, err
	}
	if spec.Input, err = promptInput(job.prompt, title, spec.Input); err != nil {
		return spec, err
	}
	cfg.ForRole(spec.Role).ForPreset(job.preset).LimitTask(&spec)
	spec.Agent = "run-" + strings.ToLower(rand.Text()[:16])
	if spec.OnExit == "" && job.prompt == "" {
		spec.OnExit = picket.OnExitComplete
	}
	checked := spec
	return spec, checked.Normalize()
}

// limitsText describes the limits of a coding agent's runs, and how to change them.
func limitsText(spec picket.TaskSpec) string {
	seconds := func(n int) string { return term.ShortDuration(time.Duration(n) * time.Second) }
	return "a run is ended after " + seconds(*spec.TimeoutSeconds) + " (--timeout). It is nudged after " +
		seconds(*spec.StallAfterSeconds) + " of silence and ended after " + seconds(2**spec.StallAfterSeconds) +
		" (--stall-after)"
}

// titleOf shortens a text to a title.
func titleOf(text string) string {
	title := []rune(strings.TrimSpace(text))
	if len(title) > picket.MaxTitle {
		title = append(title[:picket.MaxTitle-1], '…')
	}
	return string(title)
}

func cancelTask(ctx context.Context, s *cli.Connection, task, reason string) {
	_, _ = s.Tasks.Cancel(ctx, task, reason)
}
