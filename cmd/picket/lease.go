package main

import (
	"context"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

func newLease() *cobra.Command {
	return commandGroup("lease", "See who holds what, and take it away", newLeaseList(), newLeaseExpire())
}

func newLeaseList() *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the leases held now",
		Args:    checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := connect(cmd)
			if err != nil {
				return err
			}
			return leaseListing(cmd, s).
				show(s, topic{kinds: []string{"task.", "lease.", "store."}, polled: true},
					func(ctx context.Context, raw *jsontext.Value) error {
						return s.get(ctx, "/api/v1/leases", nil, raw)
					})
		},
	}
	return watchFlag(term.FormatFlag(c))
}

func leaseListing(cmd *cobra.Command, s *connection) listing[picket.LiveLease] {
	return listing[picket.LiveLease]{
		cmd:    cmd,
		member: "leases",
		empty:  "no leases are held",
		name:   func(l picket.LiveLease) string { return l.TaskID },
		columns: []term.Column[picket.LiveLease]{
			{Head: "TASK", Cell: func(l picket.LiveLease) string { return l.TaskID }},
			{Head: "FENCE", Cell: func(l picket.LiveLease) string { return strconv.FormatInt(l.FencingToken, 10) }},
			{Head: "LEFT", Cell: func(l picket.LiveLease) string {
				return term.ShortDuration(time.Duration(l.LeaseTTLMs)*time.Millisecond - time.Since(s.readAt))
			}},
			{Head: "RENEWALS", Cell: func(l picket.LiveLease) string { return strconv.FormatInt(l.Renewals, 10) }},
			{Head: "AGENT", Cell: func(l picket.LiveLease) string { return l.AgentID }},
			{Head: "RUN", Cell: func(l picket.LiveLease) string { return l.RunID }, Wide: true},
			{Head: "EXPIRES", Cell: func(l picket.LiveLease) string { return l.LeaseExpiresAt.String() }, Wide: true},
		},
	}
}

func newLeaseExpire() *cobra.Command {
	c := onTask("expire", "Take a task's lease away; its holder is refused from now on",
		func(cmd *cobra.Command, s *connection, id string) error {
			reason, _ := cmd.Flags().GetString("reason")
			var raw jsontext.Value
			var task picket.Task
			if err := s.post(cmd.Context(), "/api/v1/leases/"+pathSegment(id)+"/expire", reasonBody{reason}, &task,
				&raw); err != nil {
				return err
			}
			return printTask(cmd, task, raw, "expired")
		})
	c.Flags().String("reason", "", "why, for the log")
	return term.FormatFlag(c)
}
