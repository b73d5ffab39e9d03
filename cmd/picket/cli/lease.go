package cli

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// NewLease is `picket lease`: the leases that are held.
func NewLease() *cobra.Command {
	return CommandGroup("lease", "List the leases, and end them", newLeaseList(), newLeaseExpire())
}

func newLeaseList() *cobra.Command {
	return listCommand(&cobra.Command{Short: "List the leases held now"},
		func(cmd *cobra.Command, s *Connection) error {
			of := topic{kinds: []string{"task.", "lease.", "store."}, polled: true}
			return leaseListing(cmd, s).show(s, of, reading(s.Leases.List))
		})
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
	return newReasonCommand(OnTask, "expire", "End a task's lease; its holder is refused from now on",
		func(s *Connection) reasonedChange { return s.Leases.Expire }, "expired")
}
