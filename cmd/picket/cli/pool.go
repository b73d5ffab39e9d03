package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// NewPool is `picket pool`: the agents of a role and what they can take.
func NewPool() *cobra.Command {
	return CommandGroup("pool", "See the agents of each role together: how many, how busy", newPoolList(), newPoolGet())
}

func newPoolList() *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the pools: all agents that share a role",
		Args:    CheckArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := Connect(cmd)
			if err != nil {
				return err
			}
			return poolListing(cmd).show(s, agentTopic, func(ctx context.Context, raw *jsontext.Value) error {
				return s.Get(ctx, "/api/v1/pools", nil, raw)
			})
		},
	}
	return watchFlag(term.FormatFlag(c))
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
	return watchFlag(term.FormatFlag(&cobra.Command{
		Use:               "get ROLE",
		Short:             "Show the pool of a role",
		Args:              CheckArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: completeFirstID(poolRoles),
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := Connect(cmd)
			if err != nil {
				return err
			}
			format, err := term.FormatOf(cmd)
			if err != nil {
				return err
			}
			return showOrWatch(cmd, s, agentTopic, func(ctx context.Context, w io.Writer) error {
				var raw jsontext.Value
				err := s.Get(ctx, "/api/v1/pools/"+PathSegment(given[0]), nil, &raw)
				var refusal *picket.Error
				if errors.Is(err, picket.CodeNotFound) && errors.As(err, &refusal) {
					refusal.Remedy = "See: picket pool list"
				}
				if err != nil {
					return err
				}
				term.NoteAnswer(w, raw)
				if format == "json" || format == "jsonl" || format == "yaml" {
					return term.PrintValue(w, format, raw)
				}
				list, err := json.Marshal(map[string][]jsontext.Value{"pools": {raw}})
				if err != nil {
					return err
				}
				return poolListing(cmd).Print(w, format, list)
			})
		},
	}))
}

func (s *Connection) poolCandidates(ctx context.Context) ([]candidate, error) {
	var list picket.PoolList
	err := s.Get(ctx, "/api/v1/pools", &list, nil)
	var all []candidate
	for _, p := range list.Pools {
		all = append(all, candidate{p.RoleID, fmt.Sprintf("%d active", p.Members[picket.AgentActive])})
	}
	return all, err
}

func poolRoles(s *Connection) candidateLister { return s.poolCandidates }
