package cli

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// NewPause is `picket pause`: no more leases are granted.
func NewPause() *cobra.Command {
	c := &cobra.Command{
		Use: "pause", Short: "Stop granting leases; --hard also ends every run", Args: CheckArgs(cobra.NoArgs),
		RunE: connected(func(cmd *cobra.Command, s *Connection, _ []string) error {
			hard, _ := cmd.Flags().GetBool("hard")
			reason, _ := cmd.Flags().GetString("reason")
			var raw jsontext.Value
			state, err := s.Server.Pause(cmd.Context(), hard, reason, client.WithBody(&raw))
			return printPause(cmd, state, raw, err)
		}),
	}
	c.Flags().Bool("hard", false, "end every run now; tasks are queued again")
	c.Flags().String("reason", "", "why, for the log")
	return term.FormatFlag(c)
}

// NewResume is `picket resume`: leases are granted again after a pause.
func NewResume() *cobra.Command {
	c := &cobra.Command{
		Use: "resume", Short: "Grant leases again", Args: CheckArgs(cobra.NoArgs),
		RunE: connected(func(cmd *cobra.Command, s *Connection, _ []string) error {
			var req picket.ResumeRequest
			req.Reason, _ = cmd.Flags().GetString("reason")
			if seen, _ := cmd.Flags().GetString("paused-at"); seen != "" {
				at, err := time.Parse(time.RFC3339, seen)
				if err != nil {
					return picket.Refuse(exit.CodeUsage, "Copy the time that picket pause printed, such as 2026-04-11T10:42:17.123Z.",
						"--paused-at %s is not a time", term.ShellQuote(seen))
				}
				req.PausedAt = picket.InstantOf(at)
			}
			var raw jsontext.Value
			state, err := s.Server.Resume(cmd.Context(), req, client.WithBody(&raw))
			return printPause(cmd, state, raw, err)
		}),
	}
	c.Flags().String("reason", "", "why, for the log")
	c.Flags().Var(new(seenValue), "paused-at", "only if it is still the pause of this time: a later stop stays")
	return term.FormatFlag(c)
}

func printPause(cmd *cobra.Command, state picket.PauseState, raw jsontext.Value, err error) error {
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	return printAnswer(cmd, w, raw, "", func() error {
		switch {
		case state.Hard:
			fmt.Fprintln(w, "paused, every run is being ended")
		case state.Paused:
			fmt.Fprintln(w, "paused")
		default:
			fmt.Fprintln(w, "running")
			return nil
		}
		PrintNext(cmd, "picket resume --paused-at "+state.At.String())
		return nil
	})
}
