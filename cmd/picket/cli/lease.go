package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/internal/text"
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
		more:   moreLeases("those that expire first"),
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

// moreLeases tells how many leases the answer of the server leaves out, and which.
func moreLeases(which string) func(map[string]jsontext.Value, int) string {
	return func(members map[string]jsontext.Value, n int) string {
		var total int
		if err := json.Unmarshal(members["total"], &total); err != nil || total <= n {
			return ""
		}
		return fmt.Sprintf("%d of %d are shown: %s", n, total, which)
	}
}

// NewPS is `picket ps`: what runs now.
func NewPS() *cobra.Command {
	c := listCommand(&cobra.Command{
		Short: "Show what runs now, first what needs a look",
		Long: `Show the runs that hold a lease, and how they go. First come those that were
nudged, because they seem to be stuck; then those that have used more of their
timeout or of their budget; then those whose agent has been silent for longer.

TIMEOUT is the part of the timeout that is used; SPENT is of the task's envelope,
with what its calls hold and its subtasks were given; LEFT is the time until the
lease expires unless it is renewed. What needs a look is red.`,
		Example: "  picket ps\n  picket ps -w\n  picket ps -o json | jq -r '.leases[] | select(.nudge) | .taskId'",
	}, func(cmd *cobra.Command, s *Connection) error {
		of := topic{kinds: []string{"task.", "lease.", "store.", "run.", "budget."}, polled: true}
		byNeed := url.Values{"order": {string(picket.LeasesByNeed)}}
		return runningListing(cmd, s).show(s, of, querying(s.Leases.Find, byNeed))
	})
	c.Use, c.Aliases = "ps", nil
	return c
}

func runningListing(cmd *cobra.Command, s *Connection) Listing[picket.LiveLease] {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return Listing[picket.LiveLease]{
		Cmd:    cmd,
		Member: "leases",
		Empty:  "nothing runs",
		Name:   func(l picket.LiveLease) string { return l.TaskID },
		more:   moreLeases("the server compares the 1,000 that expire first"),
		order: func(all []picket.LiveLease) []picket.LiveLease {
			since := time.Since(s.reads.lastRead()).Milliseconds() // with --watch the clocks go on
			for i := range all {
				all[i].ElapsedMs += since
				all[i].LeaseTTLMs -= since
			}
			slices.SortFunc(all, picket.CompareRunning)
			return all
		},
		Columns: []term.Column[picket.LiveLease]{
			{Head: "TASK", Cell: func(l picket.LiveLease) string { return l.TaskID }, DropOrder: 4},
			{Head: "TITLE", Cell: func(l picket.LiveLease) string { return text.Excerpt(l.Title, 30) }},
			{Head: "AGENT", Cell: func(l picket.LiveLease) string {
				return text.Excerpt(cmp.Or(l.AgentName, l.AgentID, "-"), 20)
			}, DropOrder: 1},
			{Head: "ELAPSED", Cell: func(l picket.LiveLease) string { return term.ShortDuration(ms(l.ElapsedMs)) }},
			{Head: "TIMEOUT", Cell: timeoutText, Alert: func(l picket.LiveLease) bool {
				share, _ := l.TimeoutShare()
				return share >= picket.RunWarnAt
			}},
			{Head: "SPENT", Cell: spentText, DropOrder: 2, Alert: func(l picket.LiveLease) bool {
				return l.SpentShare() >= picket.RunWarnAt
			}},
			{
				Head:      "LEFT",
				Cell:      func(l picket.LiveLease) string { return term.ShortDuration(ms(l.LeaseTTLMs)) },
				DropOrder: 3,
			},
			{Head: "NUDGED", Cell: nudgedText, Alert: picket.LiveLease.Nudged},
			{Head: "REPORTED", Cell: func(l picket.LiveLease) string {
				if l.LastReport == nil {
					return "-"
				}
				return term.Ago(l.LastReport.At)
			}},
			{Head: "LAST REPORT", Cell: func(l picket.LiveLease) string {
				if l.LastReport == nil {
					return "-"
				}
				return l.LastReport.Summary
			}},
		},
	}
}

func timeoutText(l picket.LiveLease) string {
	share, limited := l.TimeoutShare()
	if !limited {
		return "-"
	}
	return fmt.Sprintf("%d%% of %s", int(share*100), term.ShortDuration(time.Duration(*l.TimeoutSeconds)*time.Second))
}

// spentText is in dollars, or in tokens where a larger part of those is used.
func spentText(l picket.LiveLease) string {
	used, granted := l.Used(), l.Granted
	if l.MostlyTokens() {
		return fmt.Sprintf("%d of %d tokens", used.Tokens, granted.Tokens)
	}
	return fmt.Sprintf("%s of %s", Dollars(used.USD), Dollars(granted.USD))
}

func nudgedText(l picket.LiveLease) string {
	if !l.Nudged() {
		return "-"
	}
	return l.Nudge.Cause + " " + term.Ago(l.Nudge.At)
}

func newLeaseExpire() *cobra.Command {
	var run string
	c := newReasonCommand(OnTask, "expire", "End a task's lease; its holder is refused from now on",
		func(s *Connection) reasonedChange {
			return func(ctx context.Context, task, reason string, opts ...client.Option) (picket.Task, error) {
				return s.Leases.Expire(ctx, task, picket.ExpireRequest{Reason: reason, RunID: run}, opts...)
			}
		}, "expired")
	c.Flags().Var((*seenValue)(&run), "run", "only if this run still has the task, such as the one picket ps showed")
	return c
}
