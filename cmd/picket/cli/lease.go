package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// NewLease is `picket lease`: the leases that are held.
func NewLease() *cobra.Command {
	return CommandGroup("lease", "See who holds what, and take it away", newLeaseList(), newLeaseExpire())
}

func newLeaseList() *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the leases held now",
		Args:    CheckArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := Connect(cmd)
			if err != nil {
				return err
			}
			return leaseListing(cmd, s).
				show(s, topic{kinds: []string{"task.", "lease.", "store."}, polled: true},
					func(ctx context.Context, raw *jsontext.Value) error {
						return s.Get(ctx, "/api/v1/leases", nil, raw)
					})
		},
	}
	return watchFlag(term.FormatFlag(c))
}

func leaseListing(cmd *cobra.Command, s *Connection) Listing[picket.LiveLease] {
	return Listing[picket.LiveLease]{
		Cmd:    cmd,
		Member: "leases",
		Empty:  "no leases are held",
		Name:   func(l picket.LiveLease) string { return l.TaskID },
		Columns: []term.Column[picket.LiveLease]{
			{Head: "TASK", Cell: func(l picket.LiveLease) string { return l.TaskID }},
			{Head: "FENCE", Cell: func(l picket.LiveLease) string { return strconv.FormatInt(l.FencingToken, 10) }},
			{Head: "LEFT", Cell: func(l picket.LiveLease) string {
				return term.ShortDuration(time.Duration(l.LeaseTTLMs)*time.Millisecond - time.Since(s.reads.lastRead()))
			}},
			{Head: "RENEWALS", Cell: func(l picket.LiveLease) string { return strconv.FormatInt(l.Renewals, 10) }},
			{Head: "AGENT", Cell: func(l picket.LiveLease) string { return l.AgentID }},
			{Head: "RUN", Cell: func(l picket.LiveLease) string { return l.RunID }, Wide: true},
			{Head: "EXPIRES", Cell: func(l picket.LiveLease) string { return l.LeaseExpiresAt.String() }, Wide: true},
		},
	}
}

func newLeaseExpire() *cobra.Command {
	c := OnTask("expire", "Take a task's lease away; its holder is refused from now on",
		func(cmd *cobra.Command, s *Connection, id string) error {
			reason, _ := cmd.Flags().GetString("reason")
			var raw jsontext.Value
			var task picket.Task
			if err := s.Post(cmd.Context(), "/api/v1/leases/"+PathSegment(id)+"/expire", ReasonBody{reason}, &task,
				&raw); err != nil {
				return err
			}
			return printTask(cmd, task, raw, "expired")
		})
	c.Flags().String("reason", "", "why, for the log")
	return term.FormatFlag(c)
}
