package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
)

func newRun() *cobra.Command {
	c := &cobra.Command{
		Use: "run [flags] -- COMMAND [ARG ...]", Short: "Submit a command as a task, run it here and watch it",
		Long: "Submit a command as a task, run it on this machine under a lease and watch it. The agent's output passes\n" +
			"through; its standard input is empty (--input hands it something); its questions can be answered in place.\n" +
			"Ctrl-C leaves it running, a second Ctrl-C cancels it. Exit code: 0 completed or in review, 1 failed,\n" +
			"rejected, cancelled or escalated, 124 timed out, 130 left running.",
		Example: `  picket run -- make test
  picket run --timeout 10m --retries 2 -- ./agent.sh
  picket run --detach --label team=a -- make bench`,
		RunE: runRun,
	}
	specFlags(c)
	f := c.Flags()
	f.String("title", "", "the task's title (default: the command)")
	f.BoolP("detach", "d", false, "do not watch: print the task's id and return")
	placeFlags(c, adapter.WorkspaceHere)
	return c
}

func runRun(cmd *cobra.Command, given []string) error {
	if cmd.ArgsLenAtDash() < 0 && len(given) == 1 && strings.ContainsAny(given[0], " \t\n") {
		return notYet("a prompt", "agent presets", "Give a command instead: picket run -- make test")
	}
	command, err := afterDash(cmd, given)
	if err != nil {
		return err
	}
	offerSelf()
	if err := startable(command); err != nil {
		return err
	}
	cfg, err := loadSettings(cmd)
	if err != nil {
		return err
	}
	s, err := connect(cmd)
	if err != nil {
		return err
	}
	spec, err := runSpec(cmd, cfg, command)
	if err != nil {
		return err
	}
	w, err := newWorker(cmd, cfg, s, spec, command)
	if err != nil {
		return err
	}
	var task picket.Task
	if err := s.post(cmd.Context(), "/api/v1/tasks", spec, &task, nil); err != nil {
		return err
	}
	if err := w.start(task.TaskID); err != nil {
		s.cancel(cmd.Context(), task.TaskID, "its adapter could not be started")
		return err
	}
	if detach, _ := cmd.Flags().GetBool("detach"); detach {
		fmt.Fprintln(cmd.OutOrStdout(), task.TaskID)
		follow := []string{"picket task watch " + task.TaskID, "picket task logs -f " + task.TaskID}
		if task.ReviewBy != picket.ReviewByNone {
			follow = append(follow, "picket review approve "+task.TaskID)
		}
		next(cmd, follow...)
		return nil
	}
	return attach(cmd, s, task, w)
}

// runSpec is the task of a command: pinned to an adapter of its own, complete
// when the command succeeds, if its role does not say otherwise.
func runSpec(cmd *cobra.Command, cfg settings, command []string) (picket.TaskSpec, error) {
	title, _ := cmd.Flags().GetString("title")
	if title == "" {
		title = commandTitle(command)
	}
	spec, err := specOf(cmd, cfg, title)
	if err != nil {
		return spec, err
	}
	spec.Agent = "run-" + strings.ToLower(rand.Text()[:16])
	if spec.OnExit == "" {
		spec.OnExit = picket.OnExitComplete
	}
	checked := spec
	return spec, checked.Normalize()
}

func commandTitle(command []string) string {
	title := []rune(commandLine(command))
	if len(title) > picket.MaxTitle {
		title = append(title[:picket.MaxTitle-1], '…')
	}
	return string(title)
}

func (s *server) cancel(ctx context.Context, task, reason string) {
	_ = s.post(ctx, "/api/v1/tasks/"+segment(task)+"/cancel", reasonBody{reason}, nil, nil)
}
