package cli

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// NewPause is `picket pause`: no more leases are granted.
func NewPause() *cobra.Command {
	c := &cobra.Command{
		Use: "pause", Short: "Stop granting leases; --hard also ends every run", Args: CheckArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			hard, _ := cmd.Flags().GetBool("hard")
			reason, _ := cmd.Flags().GetString("reason")
			return changePause(cmd, "/api/v1/pause", struct {
				Hard   bool   `json:"hard"`
				Reason string `json:"reason,omitempty"`
			}{hard, reason})
		},
	}
	c.Flags().Bool("hard", false, "end every run now; tasks are queued again")
	c.Flags().String("reason", "", "why, for the log")
	return term.FormatFlag(c)
}

// NewResume is `picket resume`: leases are granted again after a pause.
func NewResume() *cobra.Command {
	c := &cobra.Command{
		Use: "resume", Short: "Grant leases again", Args: CheckArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			reason, _ := cmd.Flags().GetString("reason")
			return changePause(cmd, "/api/v1/resume", ReasonBody{reason})
		},
	}
	c.Flags().String("reason", "", "why, for the log")
	return term.FormatFlag(c)
}

func changePause(cmd *cobra.Command, path string, body any) error {
	s, err := Connect(cmd)
	if err != nil {
		return err
	}
	var raw jsontext.Value
	var state picket.PauseState
	if err := s.Post(cmd.Context(), path, body, &state, &raw); err != nil {
		return err
	}
	format, err := term.FormatOf(cmd)
	if err != nil {
		return err
	}
	switch {
	case format == "json" || format == "jsonl" || format == "yaml":
		return term.PrintValue(cmd.OutOrStdout(), format, raw)
	case state.Hard:
		fmt.Fprintln(cmd.OutOrStdout(), "paused, every run is being ended")
	case state.Paused:
		fmt.Fprintln(cmd.OutOrStdout(), "paused")
	default:
		fmt.Fprintln(cmd.OutOrStdout(), "running")
		return nil
	}
	PrintNext(cmd, "picket resume")
	return nil
}
