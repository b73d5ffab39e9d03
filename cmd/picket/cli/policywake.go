package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

func newWake() *cobra.Command {
	c := policyCommand("wake", "Wake a session of an agent, if its policy allows that now",
		func(cmd *cobra.Command, s *Connection, name string) error {
			at, err := policyInstant(cmd)
			if err != nil {
				return err
			}
			var req picket.WakeRequest
			req.SessionID, _ = cmd.Flags().GetString("session")
			req.DryRun, _ = cmd.Flags().GetBool("dry-run")
			if at != 0 {
				req.At = &at
			}
			source, _ := cmd.Flags().GetString("source")
			req.Source = picket.WakeSource(source)
			var raw jsontext.Value
			d, err := s.Policies.Wake(cmd.Context(), name, req, client.WithBody(&raw))
			if err != nil {
				return err
			}
			return printAnswer(cmd, cmd.OutOrStdout(), raw, d.SessionID, func() error {
				printWake(cmd, d)
				return nil
			})
		})
	c.Flags().String("session", "", "the session; it may be left out if the agent has exactly one")
	c.Flags().String("source", "", "who asks: manual (key of an operator) or agent (key that registered the agent); the default fits the key")
	c.Flags().Bool("dry-run", false, "show what would be decided; nothing is sent or stored")
	c.Flags().String("at", "", "with --dry-run: decide for another time, such as 2026-04-11T10:42:17Z")
	c.Example = "  picket agent heartbeat wake reviewer\n  picket agent heartbeat wake reviewer --dry-run --at 2026-04-11T10:42:17Z"
	return c
}

func printWake(cmd *cobra.Command, d picket.WakeDecision) {
	w := cmd.OutOrStdout()
	detail := ""
	if d.DetailCode != nil {
		detail = " (" + string(*d.DetailCode) + ")"
	}
	if d.Envelope != "" {
		detail = " (" + d.Envelope + ")"
	}
	fmt.Fprintln(w, strings.TrimSpace(d.SessionID+"  "+string(d.Result)+": "+string(d.Reason)+detail))
	if d.NextAllowedAt != nil {
		fmt.Fprintln(w, "next allowed at", *d.NextAllowedAt)
	}
	if d.Shortage != nil {
		fmt.Fprintln(w, d.Shortage.Message)
		fmt.Fprintln(w, "fix:", d.Shortage.Remedy)
	}
	printDiagnostics(w, d.Diagnostics)
	switch {
	case d.DryRun:
	case d.Result == picket.WakeResultSent:
		PrintNext(cmd, "picket session logs "+d.SessionID)
	case d.SessionID != "":
		PrintNext(cmd, "picket session status "+d.SessionID)
	}
}

func newWakes() *cobra.Command {
	c := policyCommand("wakes", "List the decisions about wakes of an agent, newest first",
		func(cmd *cobra.Command, s *Connection, name string) error {
			var q picket.WakeQuery
			q.Limit, _ = cmd.Flags().GetInt("limit")
			q.Cursor, _ = cmd.Flags().GetInt64("cursor")
			format, err := term.FormatOf(cmd)
			if err != nil {
				return err
			}
			var raw jsontext.Value
			if _, err := s.Policies.Wakes(cmd.Context(), name, q, client.WithBody(&raw)); err != nil {
				return err
			}
			return wakeListing(cmd).Print(cmd.OutOrStdout(), format, raw)
		})
	c.Flags().Int("limit", 20, "at most this many, 1 to 100")
	c.Flags().Int64("cursor", 0, "only older decisions; the page before shows this cursor")
	return c
}

func wakeListing(cmd *cobra.Command) Listing[picket.WakeRecord] {
	return Listing[picket.WakeRecord]{
		Cmd: cmd, Member: "wakes", Empty: "no decisions about wakes are kept",
		Name: func(r picket.WakeRecord) string { return r.WakeID },
		more: olderPage,
		Columns: []term.Column[picket.WakeRecord]{
			{Head: "WHEN", Cell: func(r picket.WakeRecord) string { return term.Ago(r.At) }},
			{Head: "SESSION", Cell: func(r picket.WakeRecord) string { return cmp.Or(r.SessionID, "-") }},
			{Head: "RESULT", Cell: func(r picket.WakeRecord) string { return string(r.Result) }},
			{Head: "REASON", Cell: func(r picket.WakeRecord) string { return string(r.Reason) }},
			{Head: "SOURCE", Cell: func(r picket.WakeRecord) string { return string(r.Source) }},
			{Head: "OCCASION", Cell: func(r picket.WakeRecord) string { return r.Occasion }},
			{Head: "COUNT", Cell: func(r picket.WakeRecord) string { return strconv.Itoa(r.Count) }},
		},
	}
}
