package attach

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// NewTaskWatch is `picket task watch`: it follows the events of a task until it is at rest.
func NewTaskWatch() *cobra.Command {
	c := cli.OnTask("watch", "Follow a task's events until it is closed, in review or escalated",
		func(cmd *cobra.Command, s *cli.Connection, id string) error {
			format, err := term.FormatOf(cmd)
			if err != nil {
				return err
			}
			interruptible, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			cfg, err := settings.LoadSettings(cmd)
			if err != nil {
				return err
			}
			wanted, _ := cmd.Flags().GetBool("notify")
			d := newDesktopNotifier(cmd, cfg, wanted)
			defer d.wait()
			task, err := s.Tasks.Get(interruptible, id)
			if cli.IsTaskMissing(err) {
				return err // it never was there, as far as is known here
			}
			ctx, cancel := context.WithCancelCause(interruptible)
			defer cancel(nil)
			go func() { cancel(s.AwaitTaskLost(ctx, id)) }()
			err = s.Events.Follow(ctx, client.Follower{
				Query: picket.EventQuery{TaskID: id},
				After: "0",
				Event: func(e picket.Event, raw []byte) error {
					if err := cli.PrintEvent(cmd, format, e, raw); err != nil {
						return err
					}
					// The log may be ahead of nothing: the task read after an event is at
					// least as new as the event.
					now, err := s.Tasks.Get(ctx, id)
					if cli.IsTaskMissing(err) {
						return cli.ErrTaskLost
					} else if err != nil {
						return err
					}
					task = now
					if caughtUp(task, e) {
						d.taskChanged(task)
						d.handleEvent(e, task)
					}
					if atRest(task) && caughtUp(task, e) {
						return errAtRest
					}
					return nil
				},
			})
			switch {
			case errors.Is(err, errAtRest):
				fmt.Fprintf(cmd.ErrOrStderr(), "%s is %s\n", id, task.State)
				return exitOutcome(cmd.Context(), s, task)
			case errors.Is(err, cli.ErrTaskLost):
				return cli.TaskLostError(id, "")
			case interruptible.Err() != nil:
				return exit.Status(exit.Interrupted)
			case errors.Is(err, context.Canceled):
				return nil
			}
			return err
		})
	c.Long = "Follow a task's events from its beginning. Exit code: 0 completed or in review, 1 failed, rejected,\n" +
		"cancelled or escalated, 5 out of budget, 124 timed out."
	c.Flags().Bool("notify", false, "show a notice on the desktop when the task needs you, is in review or has ended")
	return term.FormatFlag(c)
}

// caughtUp reports whether an event is the task's last so far, so that a
// finished task is printed with all of its history.
func caughtUp(t picket.Task, e picket.Event) bool { return e.At >= t.UpdatedAt }

// exitOutcome is the exit code of a command that waited for a task.
func exitOutcome(ctx context.Context, s *cli.Connection, t picket.Task) error {
	switch {
	case t.State == picket.TaskReview, t.State == picket.TaskCompleted:
		return nil
	case cli.LastRun(t).Exit != nil && cli.LastRun(t).Exit.Class == picket.ExitTimeout:
		return exit.Status(exit.Timeout)
	}
	if shortageOf(ctx, s, t).outOfBudget {
		return exit.Status(exit.Budget)
	}
	return exit.Status(exit.Error)
}
