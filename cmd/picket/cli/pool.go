package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// NewPool is `picket pool`: the agents of a role and what they can take.
func NewPool() *cobra.Command {
	return CommandGroup("pool", "Show the agents of each role together: how many and how busy", newPoolList(), newPoolGet())
}

func newPoolList() *cobra.Command {
	c := listCommand(&cobra.Command{Short: "List the pools: all agents that share a role"},
		func(cmd *cobra.Command, s *Connection) error {
			pools := poolListing(cmd)
			if all, _ := cmd.Flags().GetBool("all"); !all {
				pools.order, pools.more = wantedPools, hiddenPools
			}
			return pools.show(s, agentTopic, reading(s.Pools.List))
		})
	c.Flags().Bool("all", false, "show in tables also the pools without living members that picket.yaml does not advise")
	return c
}

// wantedPools leaves out the pools of which nothing is left but records.
func wantedPools(all []picket.Pool) []picket.Pool {
	return slices.DeleteFunc(all, func(p picket.Pool) bool { return p.Living() == 0 && p.Advisory == nil })
}

func hiddenPools(members map[string]jsontext.Value, n int) string {
	var all []picket.Pool
	if err := json.Unmarshal(members["pools"], &all); err != nil {
		return ""
	}
	if len(all) == n {
		return ""
	}
	return fmt.Sprintf("%s without living members not shown: add --all", Plural(len(all)-n, "pool"))
}

func poolListing(cmd *cobra.Command) Listing[picket.Pool] {
	members := func(status picket.AgentStatus) func(picket.Pool) string {
		return func(p picket.Pool) string { return strconv.Itoa(p.Members[status]) }
	}
	return Listing[picket.Pool]{
		Cmd:    cmd,
		Member: "pools",
		Empty:  "no agent with a role is registered",
		Name:   func(p picket.Pool) string { return p.RoleID },
		Columns: []term.Column[picket.Pool]{
			{Head: "ROLE", Cell: func(p picket.Pool) string { return p.RoleID }},
			{Head: "ACTIVE", Cell: members(picket.AgentActive)},
			{Head: "UNHEALTHY", Cell: members(picket.AgentUnhealthy)},
			{Head: "DRAINING", Cell: members(picket.AgentDraining)},
			{Head: "DEAD", Cell: members(picket.AgentDead), Wide: true},
			{Head: "DEREGISTERED", Cell: members(picket.AgentDeregistered), Wide: true},
			{
				Head: "LOAD",
				Cell: func(p picket.Pool) string { return fmt.Sprintf("%d/%d", p.CurrentLoad, p.MaxConcurrentTasks) },
			},
			{Head: "FREE", Cell: func(p picket.Pool) string { return strconv.Itoa(p.AvailableCapacity) }},
			{Head: "ADVISED", Cell: func(p picket.Pool) string { return AdviceText(p.Advisory) }},
		},
	}
}

// AdviceText is how many members the workflow file wants.
func AdviceText(a *picket.PoolAdvice) string {
	switch {
	case a == nil || a.MinInstances == nil && a.MaxInstances == nil:
		return "-"
	case a.MaxInstances == nil:
		return fmt.Sprintf("%d or more", *a.MinInstances)
	case a.MinInstances == nil:
		return fmt.Sprintf("up to %d", *a.MaxInstances)
	case *a.MinInstances == *a.MaxInstances:
		return strconv.Itoa(*a.MinInstances)
	}
	return fmt.Sprintf("%d to %d", *a.MinInstances, *a.MaxInstances)
}

func newPoolGet() *cobra.Command {
	asTyped := func(_ *Connection, _ context.Context, role string) (string, error) { return role, nil }
	return watchFlag(term.FormatFlag(onOne("get ROLE", "Show the pool of a role", asTyped, poolRoles,
		func(cmd *cobra.Command, s *Connection, role string) error {
			err := showOne(cmd, s, agentTopic, role, s.Pools.Get,
				func(_ context.Context, w io.Writer, p picket.Pool, raw jsontext.Value) error {
					return printAnswer(cmd, w, raw, p.RoleID, func() error {
						format, _ := term.FormatOf(cmd)
						term.PrintTable(w, poolListing(cmd).Columns, []picket.Pool{p}, format == "wide")
						return nil
					})
				})
			var refusal *picket.Error
			if errors.Is(err, picket.CodeNotFound) && errors.As(err, &refusal) {
				refusal.Remedy = "See: picket pool list"
			}
			return err
		})))
}
