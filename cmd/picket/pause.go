package main

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

func newPause() *cobra.Command {
	c := &cobra.Command{
		Use: "pause", Short: "Stop granting leases; --hard also ends every run", Args: checkArgs(cobra.NoArgs),
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

func newResume() *cobra.Command {
	c := &cobra.Command{
		Use: "resume", Short: "Grant leases again", Args: checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			reason, _ := cmd.Flags().GetString("reason")
			return changePause(cmd, "/api/v1/resume", reasonBody{reason})
		},
	}
	c.Flags().String("reason", "", "why, for the log")
	return term.FormatFlag(c)
}

func changePause(cmd *cobra.Command, path string, body any) error {
	s, err := connect(cmd)
	if err != nil {
		return err
	}
	var raw jsontext.Value
	var state picket.PauseState
	if err := s.post(cmd.Context(), path, body, &state, &raw); err != nil {
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
	printNext(cmd, "picket resume")
	return nil
}
